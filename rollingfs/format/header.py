"""The header of a segment as a value: its fields, limits and invariants. Pure.

`codec` writes it as text, `transitions` change it. ``docs/protocol/`` specifies the format. The idea of a header
that maps offsets to chunk files is Pravega's RollingStorage (PDP-19).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar

from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.values import value_class

PLAIN_INCARNATION = "plain "
"""The prefix of a plain file's incarnation; a segment's incarnation is a uuid."""


@value_class
class Adopted:
    """The plain file that this header shadows."""

    token: str
    modified_ms: int

    @property
    def incarnation(self) -> str:
        """Return the mark that distinguishes this plain file from later files of its name.

        It has the date in whole seconds: a listing may know milliseconds where a look at the same file does not.
        """
        return f"{PLAIN_INCARNATION}{self.modified_ms // 1000} {self.token}"


@value_class
class Origin:
    """The plain file that became this segment; `Adopted` may name another, which an overwrite hides."""

    segment: str
    """Incarnation. A client that does not know this line may carry it into another, where it has no meaning."""
    modified_ms: int


TEXT_BYTES_MAX = 64 * 1024
TAIL_BYTES_MAX = 1024 * 1024
RECORDS_MAX = 128
"""Maximum records of a header file: a new reader folds them in within a millisecond, and a single commit of 128
replaces."""
RECORD_LINE_BYTES_MAX = 256
"""Maximum bytes of a record's line; a writer's id is 32 characters, and a longer id makes no record."""
HEADER_BYTES_MAX = TEXT_BYTES_MAX + TAIL_BYTES_MAX + RECORDS_MAX * RECORD_LINE_BYTES_MAX
"""Maximum bytes of a header file."""
LOOSE_CHUNKS_MAX = 128
PAGE_CHUNKS = 128
PAGES_JOINED = 32
LARGE_PAGE_CHUNKS = PAGE_CHUNKS * PAGES_JOINED
DROPS_MAX = 128
TIERS_MAX = 8
TIER_PATH_BYTES_MAX = 1024
PIECES_MAX = 16
"""Maximum pieces of a file whose checksums its entry keeps: its line stays short, and a piece of a block of 64 MiB has
some 4 MiB."""
ATTRS_MAX = 64
ATTRS_BYTES_MAX = 4096
COMMITS_MAX = 64
"""Commit lines of this number of last versions stay; older lines go if there are more lines than this."""
CARRIED_LINES_MAX = 256
"""Maximum lines with an offset, of an older release, among the lines of the last `COMMITS_MAX` versions."""
MARKS_MAX = 128
MARKS_BYTES_MAX = 32 * 1024
"""The limit for the text of `Merged` and `Aborted` lines. A header without any may take the lines of a single
commit."""
OFFSET_MAX = 2**63 - 1

AGE_S_MAX = 3600
"""D: a chunk whose upload began earlier is not committed but written again first."""
GRACE_S = 24 * 3600
"""G: collection keeps unreferenced files that are younger."""


class Phase(StrEnum):
    """The state of a segment: which operations it allows."""

    OPEN = "open"
    SEALED = "sealed"
    MERGING = "merging"
    DELETED = "deleted"


@value_class
class Chunk:
    """A run of the segment's bytes in a chunk file."""

    start: int
    """Segment offset of the first byte used (in an index page: offset within the page)."""
    length: int
    """Bytes used."""
    file: str
    """Reference, relative to the header's folder (see `names`)."""
    crc32c: int | None
    """Checksum of the whole file; None if no client has read the file (an adopted plain file)."""
    at_ms: int
    """Time when the file was written, in milliseconds since 1970."""
    offset: int = 0
    """Offset within the file of the first byte used."""
    size: int = -1
    """Bytes of the whole file; by default `length`."""
    tier: str = ""
    """Alias of the tier that the file is in; empty for the hot store."""
    moved_ms: int = 0
    """Time when the file was written in the tier, in milliseconds since 1970; 0 in the hot store."""
    pieces: tuple[tuple[int, int], ...] = ()
    """Length and checksum of each piece of the file, in their order; empty if only `crc32c` is known."""

    def __post_init__(self) -> None:
        if self.size < 0:
            object.__setattr__(self, "size", self.length)
        if self.start < 0 or self.length < 1 or self.offset < 0 or self.offset + self.length > self.size:
            raise ValueError("a chunk's range lies outside its file, or is empty")
        lengths = [length for length, _ in self.pieces]
        if lengths and (len(lengths) > PIECES_MAX or min(lengths) < 1 or sum(lengths) != self.size):
            raise ValueError("a chunk's pieces are too many, or are not the file")

    @property
    def end(self) -> int:
        return self.start + self.length


@value_class
class Page:
    """A run of the segment's bytes whose chunks an index page lists."""

    start: int
    """Segment offset of the first byte used."""
    length: int
    """Bytes used."""
    file: str
    """Reference of the page's file. References inside the page are relative to the folder where the *page* belongs."""
    count: int
    """Chunks that the page lists."""
    crc32c: int
    """Checksum of the page's file."""
    size: int
    """Bytes of the page's file."""
    offset: int = 0
    """Offset within the page of the first byte used."""
    foreign: int = 0
    """Chunks of the page that the segment must not delete itself: in other folders, or staged."""
    tier: ClassVar[str] = ""
    """A page is in the hot store."""

    def __post_init__(self) -> None:
        if self.start < 0 or self.length < 1 or self.offset < 0 or not 1 <= self.count <= LARGE_PAGE_CHUNKS:
            raise ValueError("a page's range is empty or negative, or its count is out of range")
        if not 0 <= self.foreign <= self.count or self.size < 1:
            raise ValueError("a page's size or its count of foreign chunks is out of range")

    @property
    def end(self) -> int:
        return self.start + self.length


Entry = Chunk | Page


@value_class
class Drop:
    """A file that is no longer part of the segment and must still be deleted. There are three kinds.

    - A *file*.
    - The chunks of a *page* that end in ``(start, end]`` of the page; if `whole`, the page's file after them.
    - A *hint*: `size` bytes in another folder (or staged chunks in the own folder, "."). Only that folder's
      collection may free them.
    """

    file: str
    at_ms: int
    start: int = -1
    end: int = -1
    whole: bool = False
    size: int = 0
    after_ms: int = 0
    """Do not delete before this time, for readers of older snapshots; 0 for at once."""
    tier: str = ""
    """Alias of the tier that the file is in; empty for the hot store."""

    @property
    def is_hint(self) -> bool:
        return self.file.endswith("/")

    @property
    def is_page(self) -> bool:
        return self.end >= 0


@value_class
class Tier:
    """A tier in which the segment may have files."""

    alias: str
    key: str
    """The names of its files there have this key."""
    at_ms: int
    """When an offload last began, in milliseconds since 1970."""
    id: str = ""
    """Id of the mark at the root of the tier; empty in lines of older releases."""
    path: str = ""
    """The path of the segment by which its files were put there; empty if it is not known."""


@value_class
class Commit:
    """A writer's last operation, by which the writer recognises its own commit."""

    writer: str
    number: int
    version: int
    offset: int | None = None
    """Begin of its data, in a line that an older release wrote for another writer. A commit copies it."""


WRITER = attrgetter("writer")
VERSION = attrgetter("version")
FILE = attrgetter("file")
TIER = attrgetter("tier")
ALIAS = attrgetter("alias")


@value_class
class Edges:
    """The kind of the bytes after one offset of a segment, and of the bytes before another.

    A concat that knows them need not read these bytes.
    """

    start: int
    head: str
    """Of the first `HEAD_BYTES` from `start` on."""
    end: int
    tail: str
    """Of the last `TAIL_BYTES` before `end`."""


@value_class
class Merge:
    """The mark of a source whose entries a concat or rename is moving into a target."""

    txn: str
    target: str
    """Path of the target segment, relative to the source's folder."""
    target_segment: str
    """The target's incarnation (for a rename: its future incarnation)."""
    prior: Phase
    at_ms: int


@value_class
class MergeOutcome:
    """In a target: a transaction that took place (merged), or that never will (aborted)."""

    txn: str
    source: str
    """Path of the source segment, relative to the target's folder."""


@value_class(slots=False)
class Header:
    """The content of a header file, with the inline tail. It has no slots: `changed` copies its dictionary."""

    segment: str
    """Incarnation: a uuid; a re-created segment has another."""
    version: int
    """+1 with every commit, also when the segment is made again."""
    phase: Phase = Phase.OPEN
    merge: Merge | None = None
    merged: str | None = None
    """In a tombstone: the transaction that took the content away."""
    epoch: int = 0
    owner: str | None = None
    policy: RollingPolicy = field(default_factory=RollingPolicy)
    offload: OffloadPolicy | None = None
    start: int = 0
    entries: tuple[Entry, ...] = ()
    tail: bytes = b""
    edges: Edges | None = None
    """The kinds of its first bytes and of those before the tail, as their writers noted them."""
    tail_at_ms: int = 0
    """When the tail's first byte was written."""
    tail_until_ms: int | None = None
    """When its last byte was, if later; only an append sets it."""
    attrs: Mapping[str, str] = field(default_factory=dict)
    commits: tuple[Commit, ...] = ()
    """The last operation of each writer."""
    evicted: int = 0
    turn: str | None = None
    """The writer that asked the others to leave the next commit to it."""
    drops: tuple[Drop, ...] = ()
    tiers: tuple[Tier, ...] = ()
    adopted: Adopted | None = None
    origin: Origin | None = None
    root: str | None = None
    """The incarnation from which renames have made this one; or None. Offsets mean the same in both."""
    rewritten: int = 0
    """Bytes that consolidations have written again since the incarnation began."""
    merges: tuple[MergeOutcome, ...] = ()
    aborts: tuple[MergeOutcome, ...] = ()
    created_ms: int = 0
    modified_ms: int = 0
    unknown: tuple[str, ...] = ()
    """Lower-case lines of a newer release, kept unchanged."""

    @property
    def tail_start(self) -> int:
        """Segment offset of the inline tail's first byte."""
        return self.entries[-1].end if self.entries else self.start

    @property
    def length(self) -> int:
        """End offset."""
        return (self.entries[-1].end if self.entries else self.start) + len(self.tail)

    @property
    def size(self) -> int:
        """Return bytes retained."""
        return self.length - self.start

    @property
    def written_ms(self) -> int | None:
        """Return the time of the newest byte; None without bytes, or if an index page has it."""
        if self.tail:
            return self.tail_at_ms if self.tail_until_ms is None else self.tail_until_ms
        last = self.entries[-1] if self.entries else None
        return last.at_ms if isinstance(last, Chunk) else None

    @property
    def sealed(self) -> bool:
        """Return whether the segment takes no more bytes; for readers, a merging source has its state from before."""
        return self.phase is Phase.SEALED or (self.merge is not None and self.merge.prior is Phase.SEALED)

    @property
    def deleted(self) -> bool:
        return self.phase is Phase.DELETED

    @property
    def origin_ms(self) -> int | None:
        """Return the date of the plain file that became this segment, or None."""
        return self.origin.modified_ms if self.origin is not None and self.origin.segment == self.segment else None

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Return the incarnations of the segment, also before renames and adoption.

        Offsets mean the same in all of them.
        """
        adopted = self.adopted
        plain = [] if adopted is None or adopted.modified_ms != self.origin_ms else [adopted.incarnation]
        return (self.segment, *([self.root] if self.root else []), *plain)

    @property
    def lineage(self) -> str:
        """Return the incarnation that the segment had before all renames."""
        return self.root or self.segment

    @property
    def was_plain(self) -> bool:
        """Return whether a plain file became this segment.

        A reader of that file may continue with the segment.
        """
        return self.origin_ms is not None

    @property
    def must_settle(self) -> bool:
        """Return whether merge marks must be settled before the segment may disappear or change its incarnation."""
        return bool(self.merges or self.aborts)

    @property
    def chunk_count(self) -> int:
        """Number of chunks, with those in index pages (a page that is used in part counts whole: `Pages.count`)."""
        loose = self.loose_count
        if loose == len(self.entries):
            return loose
        return loose + sum(entry.count for entry in self.entries if isinstance(entry, Page))

    @property
    def cut_pages(self) -> tuple[Page, ...]:
        """Return the pages that begin before the retained bytes: a truncation may have dropped chunks of them."""
        if self.loose_count == len(self.entries):
            return ()
        pages = (entry for entry in self.entries if isinstance(entry, Page))
        return tuple(page for page in pages if page.offset or page.start < self.start)

    @property
    def loose_count(self) -> int:
        return list(map(type, self.entries)).count(Chunk)

    @property
    def waiting_bytes(self) -> int:
        """Return bytes that wait for the collection of their folders."""
        return sum(drop.size for drop in self.drops if drop.is_hint)

    def tier(self, alias: str) -> Tier | None:
        """Return the line of a tier."""
        return next((tier for tier in self.tiers if tier.alias == alias), None)

    def commit_of(self, writer: str) -> Commit | None:
        """Return the commit line of a writer."""
        for line in self.commits:
            if line.writer == writer:
                return line
        return None


def changed(header: Header, **changes: Any) -> Header:
    """Replace fields as `dataclasses.replace` does, in less time, for what every commit does."""
    made: Header = object.__new__(Header)
    vars(made).update(vars(header), **changes)
    return made
