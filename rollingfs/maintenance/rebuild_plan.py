"""The plan of a rebuild: which chunk files make a segment whose header is lost. Pure; it guesses nothing.

Evidence puts files at offsets: an index page that lists them, else their metadata or their names. The plan is the one
chain of files that begins at a given offset, each where the one before ends. Where the evidence allows two chains with
other bytes, there is no plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.crc import combined
from rollingfs.format.header import Chunk
from rollingfs.format.labels import Label

DOUBLES_SHOWN_MAX = 20


class By(IntEnum):
    """What says where a file lies; the greater value is the better evidence."""

    NAME = 1
    """Its name: the offset that its writer expected. It may never have been committed, or elsewhere."""
    LABEL = 2
    """Its metadata, which also say of which incarnation it is."""
    PAGE = 3
    """An index page that lists it: it was committed there."""


class AmbiguousRebuildError(RollingError, ValueError):
    """The files of a lost segment allow more than one content, so none was made. The message names them."""


@dataclass(frozen=True, slots=True)
class File:
    """A chunk file as it was read."""

    path: str
    size: int
    crc32c: int
    modified_ms: int
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a file, at an offset of the segment."""

    start: int
    length: int
    file: File
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


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets for which there is no file, and behind which there are files."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Left:
    """A file that is not part of the plan."""

    file: str
    reason: str
    start: int | None = None
    """Where it would have lain; None if nothing says it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chain, and what is no part of it."""

    start: int
    pieces: tuple[Piece, ...]
    gaps: tuple[Gap, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else self.start

    def bytes_by(self, by: By) -> int:
        """Bytes whose place rests on this evidence."""
        return sum(piece.length for piece in self.pieces if piece.by is by)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """An index page of the lost segment: what it lists, with offsets within the page."""

    path: str
    chunks: Sequence[Chunk]
    label: Label | None = None


DAMAGED = "it does not have the size or the checksum that is noted of it"
MISSING = "an index page lists it, and it is not there"
NO_PLACE = "nothing says at which offset it lies"
DISAGREES = "the names of the chunks that it lists do not agree on where it begins"
SAME = "other files of the plan have the same bytes"
BEFORE = "it lies before the start that was asked for"
INSIDE = "it lies within bytes for which there is another file"
BEYOND = "it lies beyond a gap"
OTHER = "it is of another incarnation"
LEFT_OUT = "it was to be left out"


@dataclass
class Evidence:
    """Collects what says where files lie."""

    pieces: list[Piece] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def gather(
    segment: str, files: Mapping[str, File], pages: Iterable[ListedPage], leave_out: Collection[str] = ()
) -> Evidence:
    """The pieces that index pages, metadata and names put at offsets.

    Parameters
    ----------
    segment
        Path of the lost segment.
    files
        Its chunk files, and those that its pages list, by path.
    leave_out
        Paths, or last parts of paths, of files that are no part of the segment, by the user's word.
    """
    found = Evidence()
    out = {path for path in files if path in leave_out or path.rpartition("/")[2] in leave_out}
    found.left += [Left(path, LEFT_OUT) for path in sorted(out)]
    damaged = {path for path, file in files.items() if _contradicts(file.label, file)}
    listed: set[str] = set()
    for page in pages:
        base = _base(page)
        if base is None:
            found.left.append(Left(page.path, DISAGREES))
            continue
        for chunk in page.chunks:
            path = names.locate(segment, chunk.file, chunk.tier)
            file, start = files.get(path), base + chunk.start
            if path in out:
                continue
            if file is None:
                found.left.append(Left(path, MISSING, start))
            elif file.size != chunk.size or chunk.crc32c not in (None, file.crc32c):
                damaged.add(path)
            else:
                listed.add(path)
                incarnation = page.label.incarnation if page.label else None
                found.pieces.append(Piece(start, chunk.length, file, By.PAGE, chunk.offset, incarnation))
    found.left += [Left(path, DAMAGED, _written_at(path)) for path in sorted(damaged - out)]
    found.pieces = [piece for piece in found.pieces if piece.file.path not in damaged]
    for path in sorted(files.keys() - listed - out - damaged):
        found.pieces += _by_itself(files[path], found.left)
    found.pieces = list(dict.fromkeys(found.pieces))
    return found


def _by_itself(file: File, left: list[Left]) -> list[Piece]:
    label = file.label
    start = label.offset if label is not None and label.offset is not None else _written_at(file.path)
    if start is None or not file.size:
        left.append(Left(file.path, NO_PLACE))
        return []
    incarnation = label.incarnation if label is not None else None
    return [Piece(start, file.size, file, By.LABEL if incarnation else By.NAME, 0, incarnation)]


def _contradicts(label: Label | None, file: File) -> bool:
    return label is not None and label.crc32c not in (None, file.crc32c)


def _written_at(path: str) -> int | None:
    """The offset in the name of a chunk."""
    return names.offset_of(path.rpartition("/")[2])


def _base(page: ListedPage) -> int | None:
    """Where a page begins: its metadata say it, or the names of the own chunks that it lists whole, if all agree."""
    if page.label is not None and page.label.offset is not None:
        return page.label.offset
    written = [
        (_written_at(chunk.file), chunk)
        for chunk in page.chunks
        if "/" not in chunk.file and not chunk.offset and chunk.length == chunk.size
    ]
    bases = {start - chunk.start for start, chunk in written if start is not None}
    return bases.pop() if len(bases) == 1 and min(bases) >= 0 else None


def plan(evidence: Evidence, start: int, incarnations: Collection[str] = ()) -> Plan:
    """The chain from `start` on.

    Parameters
    ----------
    incarnations
        Only files of these, if any are given, and those of which nothing says of which they are.

    Raises
    ------
    AmbiguousRebuildError
        There are two chains with other bytes, or files of several incarnations.
    """
    left = list(evidence.left)
    pieces = _of_incarnations(evidence.pieces, incarnations, left)
    at: dict[int, list[Piece]] = {}
    for piece in pieces:
        at.setdefault(piece.start, []).append(piece)
    chain: list[Piece] = []
    same: set[str] = set()
    end = start
    while here := at.get(end):
        piece, doubles = _only(here, at)
        chain.append(piece)
        same |= {double.file.path for double in doubles} - {piece.file.path}
        end = piece.end
    used = {piece.file.path for piece in chain}
    left += [Left(path, SAME, _start_of(path, pieces)) for path in sorted(same - used)]
    rest = [piece for piece in pieces if piece.file.path not in used | same]
    for piece in sorted(rest, key=lambda piece: (piece.start, piece.file.path)):
        reason = BEFORE if piece.end <= start else BEYOND if piece.start > end else INSIDE
        left.append(Left(piece.file.path, reason, piece.start))
    return Plan(start, tuple(chain), _gaps(end, rest), tuple(left))


def _start_of(path: str, pieces: Sequence[Piece]) -> int | None:
    return next((piece.start for piece in pieces if piece.file.path == path), None)


def _gaps(end: int, rest: Iterable[Piece]) -> tuple[Gap, ...]:
    found = []
    for piece in sorted((piece for piece in rest if piece.end > end), key=lambda piece: piece.start):
        if piece.start > end:
            found.append(Gap(end, piece.start))
        end = max(end, piece.end)
    return tuple(found)


def _of_incarnations(pieces: Iterable[Piece], wanted: Collection[str], left: list[Left]) -> list[Piece]:
    several = list(pieces)
    known = sorted({piece.incarnation for piece in several if piece.incarnation})
    if not wanted and len(known) > 1:
        raise AmbiguousRebuildError(
            f"the files are of {len(known)} incarnations of the segment, {', '.join(known)}: say which are meant; "
            "nothing was made"
        )
    if wanted:
        meant = {None, *wanted}
        left += [Left(piece.file.path, OTHER, piece.start) for piece in several if piece.incarnation not in meant]
        several = [piece for piece in several if piece.incarnation in meant]
    return several


def _only(here: Sequence[Piece], at: Mapping[int, Sequence[Piece]]) -> tuple[Piece, list[Piece]]:
    """The piece that goes on, and those that have the same bytes.

    Raises
    ------
    AmbiguousRebuildError
        Two pieces may go on with other bytes.
    """
    ranked = sorted(here, key=lambda piece: (-piece.length, -piece.by, piece.file.path))
    first = ranked[0]
    if all(piece.content == first.content for piece in ranked):
        return first, ranked[1:]
    tiling = _tiled(first, at)
    if tiling is None:
        files = [f"{p.file.path} ({p.length} bytes)" for p in ranked[:DOUBLES_SHOWN_MAX]]
        more = f" and {len(ranked) - len(files)} more" if len(ranked) > len(files) else ""
        raise AmbiguousRebuildError(
            f"at offset {first.start} there are {' and '.join(files)}{more}, and nothing says which belongs there; "
            "nothing was made: leave out those that do not"
        )
    return first, tiling


def _tiled(whole: Piece, at: Mapping[int, Sequence[Piece]]) -> list[Piece] | None:
    """The pieces that lie within a longer one, if by each way through them they have exactly its bytes; else None."""
    if not whole.is_whole:
        return None
    checksums: dict[int, int] = {whole.start: 0}
    found: list[Piece] = []
    for position in range_of(whole, at):
        if position not in checksums:
            continue  # no way leads here
        if position not in at:
            return None  # a way ends here
        for piece in at[position]:
            if piece is whole:
                continue
            if not piece.is_whole or piece.end > whole.end:
                return None
            checksum = combined(checksums[position], piece.file.crc32c, piece.length)
            if checksums.setdefault(piece.end, checksum) != checksum:
                return None
            found.append(piece)
    return found if checksums.get(whole.end) == whole.file.crc32c and _all_end(found, whole, at) else None


def range_of(whole: Piece, at: Mapping[int, Sequence[Piece]]) -> list[int]:
    """The offsets within a piece at which others begin, in order."""
    return sorted(position for position in at if whole.start <= position < whole.end)


def _all_end(found: Iterable[Piece], whole: Piece, at: Mapping[int, Sequence[Piece]]) -> bool:
    """Whether behind each piece another begins, up to the end of the whole one."""
    return all(piece.end == whole.end or piece.end in at for piece in found)
