"""The evidence of a rebuild: the places of the files of a segment whose header is lost. Pure.

An index page that lists a file, or the metadata of a later file, shows where the file was committed. Its own metadata
or its name shows the place that its writer expected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase

from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.header import Chunk
from rollingfs.format.side_files import Label
from rollingfs.runtime.values import value_class


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


DAMAGED = "it does not have the size or the checksum that is noted of it"
MISSING = "an index page lists it, and it is not there"
NO_PLACE = "nothing says at which offset it lies"
DISAGREES = "its name has no offset, or a lower one than the names of the chunks that it lists"
LEFT_OUT = "it was to be left out"


@dataclass
class Evidence:
    """Collects the evidence of the places of files."""

    pieces: list[FileRange] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    places: dict[tuple[str, int], dict[int, list[str]]] = field(default_factory=dict)
    """For each file, and offset within it, that index pages list: its places, each with the pages that show it.

    An attempt that lost its race leaves its page to collection, and its chunks have other places in the next page.
    """


def is_named(path: str, by: Collection[str]) -> bool:
    """Return whether any of these texts is the path of a file, or its last part, or a pattern of its last part."""
    return path in by or any(fnmatchcase(path.rpartition("/")[2], one) for one in by)


def gather(
    segment: str, files: Mapping[str, ChunkFile], pages: Mapping[str, Sequence[Chunk]], leave_out: Collection[str] = ()
) -> Evidence:
    """The pieces that index pages, metadata and names put at offsets.

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
    found = Evidence()
    out = {path for path in (*files, *pages) if is_named(path, leave_out)}
    found.left += [Left(path, LEFT_OUT) for path in sorted(out)]
    damaged = {path for path, file in files.items() if _contradicts(file.label, file)}
    listed: set[str] = set()
    for page, chunks in pages.items():
        if page in out:
            continue
        base = _base(page, chunks)
        if base is None:
            found.left.append(Left(page, DISAGREES))
            continue
        for chunk in chunks:
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
                found.places.setdefault((path, chunk.offset), {}).setdefault(start, []).append(page)
                found.pieces.append(FileRange(start, chunk.length, file, By.PAGE, chunk.offset))
    found.left += [Left(path, DAMAGED, _written_at(path)) for path in sorted(damaged - out)]
    found.pieces = [piece for piece in found.pieces if piece.file.path not in damaged]
    later = _later(segment, files)
    for path in sorted(files.keys() - listed - out - damaged):
        found.pieces += later.get(path) or _by_itself(files[path], found.left)
    found.pieces = list(dict.fromkeys(found.pieces))
    return found


def _later(segment: str, files: Mapping[str, ChunkFile]) -> dict[str, list[FileRange]]:
    """The pieces that metadata of later files place: each names the last piece of its incarnation when it was begun."""
    found: dict[str, list[FileRange]] = {}
    for later in files.values():
        label = later.label
        if label is None or label.last is None or label.incarnation is None:
            continue
        file = files.get(names.locate(segment, label.last.file, label.last.tier))
        if file is not None and file.size == label.last.length:
            piece = FileRange(label.last.start, file.size, file, By.LATER, 0, label.incarnation)
            if piece not in found.setdefault(file.path, []):
                found[file.path].append(piece)
    return found


def _by_itself(file: ChunkFile, left: list[Left]) -> list[FileRange]:
    label = file.label
    start = label.offset if label is not None and label.offset is not None else _written_at(file.path)
    if start is None or not file.size:
        left.append(Left(file.path, NO_PLACE))
        return []
    incarnation = label.incarnation if label is not None else None
    return [FileRange(start, file.size, file, By.LABEL if incarnation else By.NAME, 0, incarnation)]


def _contradicts(label: Label | None, file: ChunkFile) -> bool:
    return label is not None and label.crc32c not in (None, file.crc32c)


def _written_at(path: str) -> int | None:
    """The offset in the name of a chunk."""
    return names.offset_of(path.rpartition("/")[2])


def _base(page: str, chunks: Sequence[Chunk]) -> int | None:
    """The offset of a page, by its name; None if a chunk has a later one, because none is committed before its own."""
    base = names.index_start(page)
    expected = [
        (_written_at(chunk.file) or 0) - chunk.start
        for chunk in chunks
        if "/" not in chunk.file and not chunk.offset and chunk.length == chunk.size
    ]
    return base if base is not None and max(expected, default=0) <= base else None
