"""The plan of a rebuild: which chunk files make a segment whose header is lost. Pure, without guesses.

An index page that lists a file, or the metadata of a later file, shows where the file was committed. Its own metadata
or its name shows the place that its writer expected. The plan is the only chain of files that begins at a given offset,
in which each file begins at the end of the file before: if two chains with other bytes are possible, there is no plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase

from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.crc import combined
from rollingfs.format.header import Chunk
from rollingfs.format.side_files import Label
from rollingfs.runtime.values import value_class

DOUBLES_SHOWN_MAX = 20
SAME = "other files of the plan have the same bytes"
BEFORE = "it lies before the start that was asked for"
INSIDE = "it lies within bytes for which there is another file"
BEYOND = "it lies beyond a gap"
OTHER = "it is of another incarnation"
DAMAGED = "it does not have the size or the checksum that is noted of it"
MISSING = "an index page lists it, and it is not there"
NO_PLACE = "nothing says at which offset it lies"
DISAGREES = "its name has no offset, or a lower one than the names of the chunks that it lists"
LEFT_OUT = "it was to be left out"


class By(IntEnum):
    """Evidence of the place of a file; the greater value is the better evidence."""

    NAME = 1
    """Its name: the offset that its writer expected. It may never have been committed, or elsewhere."""
    LABEL = 2
    """Its metadata: the offset that its writer expected, and the incarnation."""
    LATER = 3
    """The metadata of a file that was written later: it was committed there."""
    PAGE = 4
    """An index page that lists it: it was committed there."""

    @property
    def is_exact(self) -> bool:
        """Whether it shows the place of a commit, not only the place that a writer expected."""
        return self >= By.LATER


class AmbiguousRebuildError(RollingError, ValueError):
    """The files of a lost segment allow several contents, so no segment was made. The message names them."""


@value_class
class ChunkFile:
    """A chunk file as it was read."""

    path: str
    size: int
    crc32c: int
    modified_ms: int
    label: Label | None = None


@value_class
class FileRange:
    """A range of a file, at an offset of the segment."""

    start: int
    length: int
    file: ChunkFile
    by: By
    offset: int = 0
    """Offset within the file."""
    incarnation: str | None = None
    """Of the segment whose chunk it was, if that is known."""

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def is_whole(self) -> bool:
        return self.length == self.file.size

    @property
    def content(self) -> tuple[object, ...]:
        """Equal for two pieces only if they have the same bytes."""
        if self.is_whole:
            return self.length, self.file.crc32c
        return self.length, self.file.path, self.offset


@value_class
class Gap:
    """Gaps: offsets without a file that are followed by files."""

    start: int
    end: int


@value_class
class Left:
    """A file that is not part of the plan."""

    file: str
    reason: str
    start: int | None = None
    """Its expected place; None if no file shows it."""


Places = dict[tuple[str, int], dict[int, list[str]]]
"""For each file, and offset within it, that index pages list: its places, each with the pages that show it. An attempt
that lost its race leaves its page to collection, and its chunks have other places in the next page."""
Evidence = tuple[Sequence[FileRange], Sequence[Left], Places]
"""The pieces that something puts at an offset, the files that are not part of the segment, and the places by pages."""
Plan = tuple[Sequence[tuple[FileRange, tuple[str, ...]]], Sequence[Gap], Sequence[Left]]
"""The chain, each piece with its rivals (see `Placed`); the gaps after it; and the files outside it."""


@value_class
class Placed:
    """A range of the new segment, and what places its file there."""

    start: int
    end: int
    file: str
    by: str
    """``page`` (an index page) and ``later`` (metadata of a file that was written later) prove that it was committed
    there. ``label`` and ``name`` (its own metadata or name) show only the place that its writer expected."""
    rivals: tuple[str, ...] = ()
    """Left files that may be there as well, or index pages that put the file at different offsets. A rebuild is refused
    unless the caller leaves out these files, or all these pages except a single page."""


def is_named(path: str, by: Collection[str]) -> bool:
    """Return whether any of these texts is the path of a file, or its last part, or a pattern of its last part."""
    return path in by or any(fnmatchcase(path.rpartition("/")[2], one) for one in by)


def gather(
    segment: str, files: Mapping[str, ChunkFile], pages: Mapping[str, Sequence[Chunk]], leave_out: Collection[str] = ()
) -> Evidence:
    """Return the pieces that index pages, metadata and names put at offsets.

    Parameters
    ----------
    segment
        Path of the lost segment.
    files
        Its chunk files, and the files that its pages list, by path.
    pages
        By path, what each index page lists, with offsets within the page.
    leave_out
        Names, as `is_named` takes them, of files that are not part of the segment by the user's word, and of
        pages that are not to count.
    """
    pieces: list[FileRange] = []
    places: Places = {}
    out = {path for path in (*files, *pages) if is_named(path, leave_out)}
    left = [Left(path, LEFT_OUT) for path in sorted(out)]
    damaged = {path for path, file in files.items() if file.label and file.label.crc32c not in (None, file.crc32c)}
    for page, chunks in pages.items():
        if page in out:
            continue
        base = _base(page, chunks)
        if base is None:
            left.append(Left(page, DISAGREES))
            continue
        for chunk in chunks:
            path = names.locate(segment, chunk.file, chunk.tier)
            file, start = files.get(path), base + chunk.start
            if path in out:
                continue
            if file is None:
                left.append(Left(path, MISSING, start))
            elif file.size != chunk.size or chunk.crc32c not in (None, file.crc32c):
                damaged.add(path)
            else:
                places.setdefault((path, chunk.offset), {}).setdefault(start, []).append(page)
                pieces.append(FileRange(start, chunk.length, file, By.PAGE, chunk.offset))
    left += [Left(path, DAMAGED, _written_at(path)) for path in sorted(damaged - out)]
    listed = {piece.file.path for piece in pieces}
    pieces = [piece for piece in pieces if piece.file.path not in damaged]
    later = _later(segment, files)
    for path in sorted(files.keys() - listed - out - damaged):
        pieces += later.get(path) or _by_itself(files[path], left)
    return list(dict.fromkeys(pieces)), left, places


def _later(segment: str, files: Mapping[str, ChunkFile]) -> dict[str, list[FileRange]]:
    """Return the pieces that metadata of later files place: each names the last piece when it was begun."""
    found: dict[str, list[FileRange]] = {}
    for later in files.values():
        label = later.label or Label()
        if label.last is None or label.incarnation is None:
            continue
        file = files.get(names.locate(segment, label.last.file, label.last.tier))
        if file is not None and file.size == label.last.length:
            piece = FileRange(label.last.start, file.size, file, By.LATER, 0, label.incarnation)
            if piece not in found.setdefault(file.path, []):
                found[file.path].append(piece)
    return found


def _by_itself(file: ChunkFile, left: list[Left]) -> list[FileRange]:
    label = file.label or Label()
    start = _written_at(file.path) if label.offset is None else label.offset
    if start is None or not file.size:
        left.append(Left(file.path, NO_PLACE))
        return []
    incarnation = label.incarnation
    return [FileRange(start, file.size, file, By.LABEL if incarnation else By.NAME, 0, incarnation)]


def _written_at(path: str) -> int | None:
    """Return the offset in the name of a chunk."""
    return names.offset_of(path.rpartition("/")[2])


def _base(page: str, chunks: Sequence[Chunk]) -> int | None:
    """Return the offset of a page, by its name; None if a chunk is later, because its page is committed after it."""
    base = names.index_start(page)
    expected = [
        (_written_at(chunk.file) or 0) - chunk.start
        for chunk in chunks
        if "/" not in chunk.file and not chunk.offset and chunk.length == chunk.size
    ]
    return base if base is not None and max(expected, default=0) <= base else None


def plan(evidence: Evidence, start: int, incarnations: Collection[str] = ()) -> Plan:
    """Return the chain from `start` on, and what is outside it.

    Parameters
    ----------
    incarnations
        If given, only files of these incarnations and files that do not name any.

    Raises
    ------
    AmbiguousRebuildError
        There are two chains with other bytes, or files of several incarnations.
    ValueError
        An incarnation of `incarnations` has no file.
    """
    known, given, places = evidence
    left = list(given)
    pieces = _of_incarnations(known, incarnations, left)
    at: dict[int, list[FileRange]] = {}
    for piece in pieces:
        at.setdefault(piece.start, []).append(piece)
    chain: list[FileRange] = []
    same: set[str] = set()
    end = start
    while here := at.get(end):
        piece, doubles = _only(here, at)
        chain.append(piece)
        same |= {double.file.path for double in doubles} - {piece.file.path}
        end = piece.end
    used = {piece.file.path for piece in chain}
    starts = {piece.file.path: piece.start for piece in reversed(pieces)}
    left += [Left(path, SAME, starts[path]) for path in sorted(same - used)]
    rest = [piece for piece in pieces if piece.file.path not in used | same]
    for piece in sorted(rest, key=lambda piece: (piece.start, piece.file.path)):
        reason = BEFORE if piece.end <= start else BEYOND if piece.start > end else INSIDE
        left.append(Left(piece.file.path, reason, piece.start))
    rivals = _rivals(start, chain, left, rest)
    for piece in chain:
        pages = places.get((piece.file.path, piece.offset), {})
        if len(pages) > 1:  # a commit names a file at a single offset
            rivals[piece] = tuple(sorted({page for several in pages.values() for page in several}))
    return [(piece, rivals.get(piece, ())) for piece in chain], _gaps(end, rest), left


def _rivals(
    start: int, chain: Sequence[FileRange], left: Sequence[Left], rest: Sequence[FileRange]
) -> dict[FileRange, tuple[str, ...]]:
    """Return the left files that may be at the place of a piece which only an expectation places.

    A file is never before the offset that its writer expected, because a lost race moves it on.
    A chain of files that ends at the begin of the plan is at its expected place: the user leaves it out.
    """
    before = {start}
    known = {piece.file.path for piece in rest if piece.by.is_exact}
    for piece in sorted(rest, key=lambda piece: -piece.end):
        if piece.end in before and piece.end <= start:
            before.add(piece.start)
            known.add(piece.file.path)
    reasons = (BEFORE, INSIDE, BEYOND, NO_PLACE, DAMAGED)
    loose = [one for one in left if one.reason in reasons and one.file not in known]
    missing = [(one.file, one.start) for one in left if one.reason == MISSING and one.start is not None]
    rivals = {}
    for piece in chain:
        if piece.by.is_exact:
            continue
        files = [one.file for one in loose if one.start is None or one.start < piece.end]
        files += [file for file, place in missing if piece.start <= place < piece.end]
        files += [one.file.path for one in rest if one.by.is_exact and one.start < piece.end and one.end > piece.start]
        if files:
            rivals[piece] = tuple(sorted(set(files)))
    return rivals


def _gaps(end: int, rest: Iterable[FileRange]) -> list[Gap]:
    found = []
    for piece in sorted((piece for piece in rest if piece.end > end), key=lambda piece: piece.start):
        if piece.start > end:
            found.append(Gap(end, piece.start))
        end = max(end, piece.end)
    return found


def check(chain: Iterable[tuple[FileRange, tuple[str, ...]]]) -> None:
    """Refuse a chain in which other files may be at an expected place.

    Raises
    ------
    AmbiguousRebuildError
        The message names the first of them.
    """
    for piece, rivals in chain:
        shown = " and ".join(rivals[:DOUBLES_SHOWN_MAX])
        more = f" and {len(rivals) - DOUBLES_SHOWN_MAX} more" if len(rivals) > DOUBLES_SHOWN_MAX else ""
        if rivals and all(map(names.is_index, rivals)):
            raise AmbiguousRebuildError(
                f"the index pages {shown}{more} put {piece.file.path} at different offsets, one of them at "
                f"{piece.start}, and only one was committed; nothing was made: leave out the pages that are wrong "
                "(a lost race moves a file on: the page with the greatest offset is right, unless its writer died)"
            )
        if rivals:
            raise AmbiguousRebuildError(
                f"only its {piece.by.name.lower()} says that {piece.file.path} lies at offset {piece.start}, and bytes "
                f"there may be those of {shown}{more}; nothing was made: a dry run lists all such files, leave out "
                "those that are not part of the segment"
            )


def _of_incarnations(pieces: Sequence[FileRange], wanted: Collection[str], left: list[Left]) -> list[FileRange]:
    known = sorted({piece.incarnation for piece in pieces if piece.incarnation})
    if not wanted and len(known) > 1:
        raise AmbiguousRebuildError(
            f"the files are of {len(known)} incarnations of the segment, {', '.join(known)}: say which are meant; "
            "nothing was made"
        )
    if unknown := sorted({*wanted} - {*known}):
        raise ValueError(f"no file is of the incarnation {', '.join(unknown)}; nothing was made")
    meant = {None, *(wanted or known)}
    left += [Left(piece.file.path, OTHER, piece.start) for piece in pieces if piece.incarnation not in meant]
    return [piece for piece in pieces if piece.incarnation in meant]


def _only(here: Sequence[FileRange], at: Mapping[int, Sequence[FileRange]]) -> tuple[FileRange, list[FileRange]]:
    """Return the piece that goes on, and the pieces with the same bytes.

    Raises
    ------
    AmbiguousRebuildError
        Two pieces may go on with other bytes.
    """
    committed = max((piece.length for piece in here if piece.by.is_exact), default=0)
    # where a file was committed, one that is only expected is not; but a longer one may have been made of it
    likely = [piece for piece in here if piece.by.is_exact or piece.length > committed]
    ranked = sorted(likely, key=lambda piece: (-piece.length, -piece.by, piece.file.path))
    first = ranked[0]
    if all(piece.content == first.content for piece in ranked):
        return first, [piece for piece in here if piece is not first and piece.content == first.content]
    tiling = _tiled(first, at)
    if tiling is None:
        files = [f"{p.file.path} ({p.length} bytes)" for p in ranked[:DOUBLES_SHOWN_MAX]]
        more = f" and {len(ranked) - len(files)} more" if len(ranked) > len(files) else ""
        raise AmbiguousRebuildError(
            f"at offset {first.start} there are {' and '.join(files)}{more}, and nothing says which belongs there; "
            "nothing was made: leave out those that do not"
        )
    return first, tiling


def _tiled(whole: FileRange, at: Mapping[int, Sequence[FileRange]]) -> list[FileRange] | None:
    """Return the pieces within a longer piece, if by each way through them they have exactly its bytes; else None."""
    if not whole.is_whole:
        return None
    checksums: dict[int, int] = {whole.start: 0}
    found: list[FileRange] = []
    for position in sorted(one for one in at if whole.start <= one < whole.end):
        if position not in checksums:
            continue  # no way leads here
        for piece in at[position]:
            if piece is whole:
                continue
            if not piece.is_whole or piece.end > whole.end:
                return None
            checksum = combined(checksums[position], piece.file.crc32c, piece.length)
            if checksums.setdefault(piece.end, checksum) != checksum:
                return None
            found.append(piece)
    goes_on = all(piece.end == whole.end or piece.end in at for piece in found)
    return found if goes_on and checksums.get(whole.end) == whole.file.crc32c else None
