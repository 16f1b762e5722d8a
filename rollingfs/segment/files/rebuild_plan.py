"""The plan of a rebuild: which chunk files make a segment whose header is lost. Pure, without guesses.

The plan is the only chain of files that begins at a given offset, in which each file begins at the end of the file
before. If the evidence allows two chains with other bytes, there is no plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from rollingfs.format import names
from rollingfs.format.crc import combined
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.rebuild_evidence import (
    DAMAGED,
    MISSING,
    NO_PLACE,
    AmbiguousRebuildError,
    By,
    Evidence,
    FileRange,
    Gap,
    Left,
)

DOUBLES_SHOWN_MAX = 20
SAME = "other files of the plan have the same bytes"
BEFORE = "it lies before the start that was asked for"
INSIDE = "it lies within bytes for which there is another file"
BEYOND = "it lies beyond a gap"
OTHER = "it is of another incarnation"
SOURCES = {By.NAME: "its name", By.LABEL: "its label"}


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


@value_class
class Plan:
    """The chain, and the files outside it."""

    start: int
    pieces: tuple[FileRange, ...]
    gaps: tuple[Gap, ...] = ()
    left: tuple[Left, ...] = ()
    rivals: Mapping[FileRange, tuple[str, ...]] = field(default_factory=dict)
    """Of pieces that only an expectation places: the left files that may be there as well. Of pieces that index pages
    put at several offsets: these pages."""

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Each piece, with what places it."""
        return tuple(
            Placed(one.start, one.end, one.file.path, one.by.name.lower(), self.rivals.get(one, ()))
            for one in self.pieces
        )

    def check(self) -> None:
        """Refuse a plan in which other files may be at an expected place.

        Raises
        ------
        AmbiguousRebuildError
            The message names the first of them.
        """
        for piece, rivals in self.rivals.items():
            shown = " and ".join(rivals[:DOUBLES_SHOWN_MAX])
            more = f" and {len(rivals) - DOUBLES_SHOWN_MAX} more" if len(rivals) > DOUBLES_SHOWN_MAX else ""
            if all(map(names.is_index, rivals)):
                raise AmbiguousRebuildError(
                    f"the index pages {shown}{more} put {piece.file.path} at different offsets, one of them at "
                    f"{piece.start}, and only one was committed; nothing was made: leave out the pages that are wrong "
                    "(a lost race moves a file on: the page with the greatest offset is right, unless its writer died)"
                )
            raise AmbiguousRebuildError(
                f"only {SOURCES[piece.by]} says that {piece.file.path} lies at offset {piece.start}, and bytes "
                f"there may be those of {shown}{more}; nothing was made: a dry run lists all such files, leave out "
                "those that are not part of the segment"
            )

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else self.start

    def bytes_by(self, by: By) -> int:
        """Bytes whose place rests on this evidence."""
        return sum(piece.length for piece in self.pieces if piece.by is by)


def plan(evidence: Evidence, start: int, incarnations: Collection[str] = ()) -> Plan:
    """The chain from `start` on.

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
    left = list(evidence.left)
    pieces = _of_incarnations(evidence.pieces, incarnations, left)
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
    left += [Left(path, SAME, _start_of(path, pieces)) for path in sorted(same - used)]
    rest = [piece for piece in pieces if piece.file.path not in used | same]
    for piece in sorted(rest, key=lambda piece: (piece.start, piece.file.path)):
        reason = BEFORE if piece.end <= start else BEYOND if piece.start > end else INSIDE
        left.append(Left(piece.file.path, reason, piece.start))
    found = Plan(start, tuple(chain), _gaps(end, rest), tuple(left))
    return replace(found, rivals=_rivals(found, rest) | _contradicted(found, evidence))


def _contradicted(found: Plan, evidence: Evidence) -> dict[FileRange, tuple[str, ...]]:
    """The index pages that put a piece at several offsets: a commit names a file at a single offset."""
    contradicted = {}
    for piece in found.pieces:
        places = evidence.places.get((piece.file.path, piece.offset), {})
        if len(places) > 1:
            contradicted[piece] = tuple(sorted({page for pages in places.values() for page in pages}))
    return contradicted


def _rivals(found: Plan, rest: Sequence[FileRange]) -> dict[FileRange, tuple[str, ...]]:
    """The left files that may be at the place of a piece which only an expectation places.

    A file is never before the offset that its writer expected, because a lost race moves it on.
    A chain of files that ends at the begin of the plan is at its expected place: the user leaves it out.
    """
    before = {found.start}
    known = {piece.file.path for piece in rest if piece.by.is_exact}
    for piece in sorted(rest, key=lambda piece: -piece.end):
        if piece.end in before and piece.end <= found.start:
            before.add(piece.start)
            known.add(piece.file.path)
    loose = [
        left
        for left in found.left
        if left.reason in (BEFORE, INSIDE, BEYOND, NO_PLACE, DAMAGED) and left.file not in known
    ]
    missing = [left for left in found.left if left.reason == MISSING and left.start is not None]
    rivals = {}
    for piece in found.pieces:
        if piece.by.is_exact:
            continue
        files = [left.file for left in loose if left.start is None or left.start < piece.end]
        files += [left.file for left in missing if piece.start <= (left.start or 0) < piece.end]
        files += [one.file.path for one in rest if one.by.is_exact and one.start < piece.end and one.end > piece.start]
        if files:
            rivals[piece] = tuple(sorted(set(files)))
    return rivals


def _start_of(path: str, pieces: Sequence[FileRange]) -> int | None:
    return next((piece.start for piece in pieces if piece.file.path == path), None)


def _gaps(end: int, rest: Iterable[FileRange]) -> tuple[Gap, ...]:
    found = []
    for piece in sorted((piece for piece in rest if piece.end > end), key=lambda piece: piece.start):
        if piece.start > end:
            found.append(Gap(end, piece.start))
        end = max(end, piece.end)
    return tuple(found)


def _of_incarnations(pieces: Iterable[FileRange], wanted: Collection[str], left: list[Left]) -> list[FileRange]:
    several = list(pieces)
    known = sorted({piece.incarnation for piece in several if piece.incarnation})
    if not wanted and len(known) > 1:
        raise AmbiguousRebuildError(
            f"the files are of {len(known)} incarnations of the segment, {', '.join(known)}: say which are meant; "
            "nothing was made"
        )
    if wanted:
        if unknown := sorted({*wanted} - {*known}):
            raise ValueError(f"no file is of the incarnation {', '.join(unknown)}; nothing was made")
        meant = {None, *wanted}
        left += [Left(piece.file.path, OTHER, piece.start) for piece in several if piece.incarnation not in meant]
        several = [piece for piece in several if piece.incarnation in meant]
    return several


def _only(here: Sequence[FileRange], at: Mapping[int, Sequence[FileRange]]) -> tuple[FileRange, list[FileRange]]:
    """The piece that goes on, and the pieces with the same bytes.

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
    """The pieces within a longer piece, if by each way through them they have exactly its bytes; else None."""
    if not whole.is_whole:
        return None
    checksums: dict[int, int] = {whole.start: 0}
    found: list[FileRange] = []
    for position in sorted(one for one in at if whole.start <= one < whole.end):
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


def _all_end(found: Iterable[FileRange], whole: FileRange, at: Mapping[int, Sequence[FileRange]]) -> bool:
    """Whether another piece begins at the end of each, up to the end of the whole piece."""
    return all(piece.end == whole.end or piece.end in at for piece in found)
