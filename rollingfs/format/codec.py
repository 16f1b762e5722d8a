"""The header's text form: parse and format. Pure.

Both directions check the whole header: its form, its limits and its checksums. So every written header can be read.
``docs/protocol.md`` specifies the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rollingfs.format import line_codec, tokens
from rollingfs.format.header import (
    TAIL_BYTES_MAX,
    TEXT_BYTES_MAX,
    Chunk,
    Commit,
    Drop,
    Entry,
    Floor,
    Header,
    Mark,
    Page,
    Tier,
)
from rollingfs.format.names import HEADER_SUFFIX, chunks_folder, find, parent
from rollingfs.format.plain_file import Adopted, Origin

FORMAT = "rollingfs 1"


TEXTS_KEPT_MAX = 32

_texts: dict[int, tuple[tuple[Entry, ...], str, bool]] = {}
"""The text of entries, by identity: many commits in a row write the same tuple, often of hundreds of entries."""


def _entries_text(entries: tuple[Entry, ...]) -> str:
    return _known_text(entries)[0]


def _known_text(entries: tuple[Entry, ...]) -> tuple[str, bool]:
    """The text of entries, and whether one of them names a tier."""
    kept = _texts.get(id(entries))
    if kept is not None and kept[0] is entries:
        return kept[1], kept[2]
    text = "\n".join(
        line_codec.format_chunk(entry) if isinstance(entry, Chunk) else line_codec.format_page(entry)
        for entry in entries
    )
    if len(_texts) >= TEXTS_KEPT_MAX:
        _texts.clear()
    _texts[id(entries)] = entries, text, line_codec.TIER_FIELD in text
    return text, line_codec.TIER_FIELD in text


PLAIN_LINES_BYTES_MAX = 2048
"""All lines of a header that come once, without the words that users choose."""
PLAIN_LINE_BYTES_MAX = 128
"""A line of an attribute or a commit, without such words."""
QUOTED_BYTES_MAX = 8
"""What one character takes at most: ``%10ffff``, or four bytes."""


def is_surely_short(header: Header, room: int) -> bool:
    """Whether the header's text leaves so much room below its limit; False if only the text itself tells."""
    if header.merge or header.merges or header.aborts or header.drops or header.unknown:
        return False
    entries = _entries_text(header.entries)
    words = [header.owner or "", header.turn or "", header.merged or "", *header.attrs, *header.attrs.values()]
    if header.adopted is not None:
        words.append(header.adopted.token)
    count = len(header.attrs) + len(header.commits) + len(header.tiers)
    writers = "".join(line.writer for line in header.commits)
    lines = PLAIN_LINE_BYTES_MAX * count + PLAIN_LINES_BYTES_MAX
    lines += len(writers) * (1 if writers.isascii() and writers.isalnum() else QUOTED_BYTES_MAX)
    size = len(entries) + QUOTED_BYTES_MAX * sum(map(len, words)) + lines
    return entries.isascii() and size + room <= TEXT_BYTES_MAX


def _lines(header: Header) -> Iterable[str]:
    yield FORMAT
    yield f"segment {header.segment}"
    yield f"version {header.version}"
    yield line_codec.format_state(header)
    yield f"epoch {header.epoch}" + (f" {tokens.quote(header.owner)}" if header.owner is not None else "")
    yield line_codec.format_policy(header.policy)
    yield f"time created={tokens.format_time(header.created_ms)} modified={tokens.format_time(header.modified_ms)}"
    yield f"start {header.start}"
    if header.adopted is not None:
        yield f"Adopted {tokens.quote(header.adopted.token)} {tokens.format_time(header.adopted.modified_ms)}"
    yield from map(line_codec.format_tier, header.tiers)
    if header.entries:
        yield _entries_text(header.entries)
    if header.tail:
        at = tokens.format_time(header.tail_at_ms)
        until = f" until={tokens.format_time(header.tail_until_ms)}" if header.tail_until_ms is not None else ""
        yield f"Inline {header.tail_start} {len(header.tail)} crc32c={tokens.crc32c(header.tail):08x} at={at}{until}"
    for key, value in header.attrs.items():
        yield f"attr {tokens.quote(key)} {tokens.quote(value)}"
    for commit in header.commits:
        if commit.offset is None:
            yield f"commit {tokens.quote(commit.writer)} {commit.number} {commit.version}"
    if header.evicted:
        yield f"evicted {header.evicted}"
    if header.turn is not None:
        yield f"turn {tokens.quote(header.turn)} {header.version}"
    for kind, marks in (("Merged", header.merges), ("Aborted", header.aborts)):
        for mark in marks:
            yield f"{kind} {mark.txn} {tokens.quote_path(mark.source)}"
    yield from map(line_codec.format_drop, header.drops)
    # last: a client that does not know these lines keeps them there
    if header.origin is not None:
        yield f"origin {header.origin.segment} {tokens.format_time(header.origin.modified_ms)}"
    if header.root is not None:
        yield f"root {header.root}"
    if header.asks is not None and header.asks.version == header.version:
        yield f"asks {header.asks.base} {header.asks.version}"
    if header.carried_since:
        yield f"carries {header.segment} {header.carried_since}"
        yield from map(format_carried, header.carried)
    if header.offload is not None:
        yield line_codec.format_offload(header.offload)
    yield from header.unknown


def format_carried(line: Commit) -> str:
    """The line of an operation that another writer's commit has carried."""
    return f"carried {tokens.quote(line.writer)} {line.number} {line.version} {line.offset}"


def format_text(header: Header) -> bytes:
    """The header's text without the inline tail, of any length; the caller moves entries to pages if it is too long."""
    text = "\n".join(_lines(header)).encode() + b"\n"
    return tokens.seal_text(text)


def format_header(header: Header) -> bytes:
    """The header file's content: text, blank line, inline tail.

    Raises
    ------
    ValueError
        The header breaks an invariant or a limit of the format.
    """
    header.check()
    if not header.tiers and header.entries and _known_text(header.entries)[1]:
        raise ValueError("an entry names a tier, which has no line of its own")
    text = format_text(header)
    if len(text) > TEXT_BYTES_MAX:
        raise ValueError(f"the header's text would be {len(text)} bytes, but at most {TEXT_BYTES_MAX} are allowed")
    return text + header.tail


class _Parser:
    """Collects the fields of a header, line by line; one method for each kind of line."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.entries: list[Entry] = []
        self.attrs: dict[str, str] = {}
        self.commits: list[Commit] = []
        self.carried: list[Commit] = []
        self.drops: list[Drop] = []
        self.tiers: list[Tier] = []
        self.marks: dict[str, list[Mark]] = {"Merged": [], "Aborted": []}
        self.inline: tuple[int, int, int] | None = None

    def line(self, line: str) -> None:
        if line.startswith(line_codec.ENTRY_KINDS) and (entry := line_codec.parse_entry_line(line)) is not None:
            self.entries.append(entry)
            return
        kind, *parts = line.split(" ")
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, parts)
        elif kind[:1].isupper():
            raise tokens.Malformed(f"line kind {kind!r} is too new for this release: upgrade rollingfs to read it")
        elif kind[:1].islower():
            self.unknown.append(line)
        else:
            raise tokens.Malformed("does not begin with a word")

    def _once(self, **fields: Any) -> None:
        for name, value in fields.items():
            if name in self.fields:
                raise tokens.Malformed("comes twice")
            self.fields[name] = value

    def _on_segment(self, parts: Sequence[str]) -> None:
        self._once(segment=tokens.uuid(*tokens.exactly(parts, 1)))

    def _on_version(self, parts: Sequence[str]) -> None:
        self._once(version=tokens.number(*tokens.exactly(parts, 1)))

    def _on_state(self, parts: Sequence[str]) -> None:
        self._once(**line_codec.parse_state(parts))

    def _on_epoch(self, parts: Sequence[str]) -> None:
        self._once(
            epoch=tokens.number(parts[0]), owner=tokens.unquote(tokens.exactly(parts, 2)[1]) if len(parts) > 1 else None
        )

    def _on_policy(self, parts: Sequence[str]) -> None:
        self._once(policy=line_codec.parse_policy(parts))

    def _on_time(self, parts: Sequence[str]) -> None:
        fields = tokens.fields(parts, {"created": tokens.parse_time, "modified": tokens.parse_time}, strict=False)
        self._once(created_ms=fields.get("created", 0), modified_ms=fields.get("modified", 0))

    def _on_start(self, parts: Sequence[str]) -> None:
        self._once(start=tokens.number(*tokens.exactly(parts, 1)))

    def _on_Adopted(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        token, modified = tokens.exactly(parts, 2)
        self._once(adopted=Adopted(tokens.unquote(token), tokens.parse_time(modified)))

    def _on_plain(self, parts: Sequence[str]) -> None:
        segment, start, *since = parts
        if since:
            tokens.parse_time(*tokens.exactly(since, 1))
        tokens.number(start)
        self._once(plain_copy=(tokens.uuid(segment), not since))

    def _on_origin(self, parts: Sequence[str]) -> None:
        segment, modified = tokens.exactly(parts, 2)
        self._once(origin=Origin(tokens.uuid(segment), tokens.parse_time(modified)))

    def _on_root(self, parts: Sequence[str]) -> None:
        self._once(root=tokens.uuid(*tokens.exactly(parts, 1)))

    def _on_Tier(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.tiers.append(line_codec.parse_tier(parts))

    def _on_Chunk(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.entries.append(line_codec.parse_chunk(parts))

    def _on_Page(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.entries.append(line_codec.parse_page(parts))

    def _on_Inline(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        fields = tokens.fields(parts[2:], {"crc32c": tokens.crc, "at": tokens.parse_time, "until": tokens.parse_time})
        tokens.need(fields, "crc32c", "at")
        self._once(tail_at_ms=fields["at"], tail_until_ms=fields.get("until"))
        self.inline = tokens.number(parts[0]), tokens.number(parts[1]), fields["crc32c"]

    def _on_attr(self, parts: Sequence[str]) -> None:
        key, value = map(tokens.unquote, tokens.exactly(parts, 2))
        if key in self.attrs:
            raise tokens.Malformed("comes twice")
        self.attrs[key] = value

    def _on_commit(self, parts: Sequence[str]) -> None:
        writer, number, version = tokens.exactly(parts, 3)
        self.commits.append(Commit(tokens.unquote(writer), tokens.number(number), tokens.number(version)))

    def _on_evicted(self, parts: Sequence[str]) -> None:
        self._once(evicted=tokens.number(*tokens.exactly(parts, 1)))

    def _on_turn(self, parts: Sequence[str]) -> None:
        writer, version = tokens.exactly(parts, 2)
        self._once(turn=(tokens.unquote(writer), tokens.number(version)))

    def _on_asks(self, parts: Sequence[str]) -> None:
        base, version = tokens.exactly(parts, 2)
        self._once(asks=Floor(tokens.number(base), tokens.number(version)))

    def _on_carries(self, parts: Sequence[str]) -> None:
        segment, since = tokens.exactly(parts, 2)
        self._once(carries=(tokens.uuid(segment), tokens.number(since)))

    def _on_carried(self, parts: Sequence[str]) -> None:
        writer, *numbers = tokens.exactly(parts, 4)
        self.carried.append(Commit(tokens.unquote(writer), *map(tokens.number, numbers)))

    def _on_offload(self, parts: Sequence[str]) -> None:
        self._once(offload=line_codec.parse_offload(parts))

    def _on_Merged(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        txn, source = tokens.exactly(parts, 2)
        self.marks["Merged"].append(Mark(tokens.uuid(txn), tokens.segment_path(source)))

    def _on_Aborted(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        txn, source = tokens.exactly(parts, 2)
        self.marks["Aborted"].append(Mark(tokens.uuid(txn), tokens.segment_path(source)))

    def _on_Drop(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.drops.append(line_codec.parse_drop(parts))

    def header(self, tail: bytes) -> Header:
        tokens.need(self.fields, "segment", "version", "phase", "epoch", "policy", "start")
        if "turn" in self.fields:  # a client that does not know the line may carry it into another version
            writer, version = self.fields["turn"]
            self.fields["turn"] = writer if version == self.fields["version"] else None
        if "asks" in self.fields and self.fields["asks"].version != self.fields["version"]:
            self.fields["asks"] = None  # likewise
        segment, since = self.fields.pop("carries", ("", 0))
        if segment != self.fields["segment"]:  # such a client has made the incarnation, perhaps of another segment
            self.carried, since = [], 0
        copy = self.fields.pop("plain_copy", None)
        header = Header(
            **self.fields,
            entries=tuple(self.entries),
            tail=tail,
            attrs=self.attrs,
            commits=(*self.commits, *self.carried),
            carried_since=since,
            drops=tuple(self.drops),
            tiers=tuple(self.tiers),
            merges=tuple(self.marks["Merged"]),
            aborts=tuple(self.marks["Aborted"]),
            unknown=tuple(self.unknown),
        )
        if (self.inline is not None) != bool(tail):
            raise tokens.Malformed("the inline tail and its line do not go together")
        if self.inline is not None and self.inline != (header.tail_start, len(tail), tokens.crc32c(tail)):
            raise tokens.Malformed("the inline tail does not have the offset, length and checksum that its line says")
        header.check()
        if not self.tiers and any(isinstance(entry, Chunk) and entry.tier for entry in self.entries):
            raise tokens.Malformed("an entry names a tier, which has no line of its own")
        return _without_copy(header, *copy) if copy is not None else header


_HANDLERS: dict[str, Callable[[_Parser, Sequence[str]], None]] = {
    name.removeprefix("_on_"): handler for name, handler in vars(_Parser).items() if name.startswith("_on_")
}


def _without_copy(header: Header, segment: str, is_whole: bool) -> Header:
    """The header without the lines on a plain copy, which older releases wrote: nobody deletes that file.

    If the copy is whole, `Adopted` names it. If not, `Adopted` may still name the file of `origin`.
    """
    if header.deleted or segment != header.segment:
        return header  # the line means nothing
    is_origin = header.adopted is not None and header.adopted.modified_ms == header.origin_ms
    return replace(header, adopted=header.adopted if is_origin and not is_whole else None, has_plain_copy=True)


def _check_pages(header: Header, name: str) -> None:
    """Refuse an index page that is named twice, by two spellings of the reference too."""
    pages = [entry.file for entry in header.entries if isinstance(entry, Page)]
    if any("/" in page for page in pages):
        segment = name.removesuffix(HEADER_SUFFIX)
        folder, own = parent(segment), f"{chunks_folder(segment)}/"
        if len({find(folder, page) or page if "/" in page else own + page for page in pages}) != len(pages):
            raise tokens.Malformed("an index page is named twice")


def parse_header(data: bytes, name: str) -> Header | None:
    """Read a header file's content.

    Parameters
    ----------
    data
        The whole file, with the inline tail.
    name
        The file's path, for the error.

    Returns
    -------
    Header or None
        None for an empty file: an interrupted create, which made no segment.

    Raises
    ------
    CorruptHeaderError
        The header is malformed; the message has the line and the reason.
    """
    if not data:
        return None
    parser, position, line = _Parser(), 0, ""
    try:
        tokens.check_size(data, TEXT_BYTES_MAX + TAIL_BYTES_MAX)
        text_lines, end = tokens.split_text(data, FORMAT)
        if end > TEXT_BYTES_MAX:
            raise tokens.Malformed(f"its text has {end} bytes, but at most {TEXT_BYTES_MAX} are allowed")
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            parser.line(line)
        position, line = 0, ""
        header = parser.header(data[end:])
        _check_pages(header, name)
        return header
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)
