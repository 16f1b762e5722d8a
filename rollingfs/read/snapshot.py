"""Content of a path: a segment with a header, a plain file that is read in place, or none."""

from __future__ import annotations

from datetime import UTC, datetime

from rollingfs.backend.contract import Backend, FileInfo
from rollingfs.commit.header_cache import Headers, Loaded
from rollingfs.commit.hidden_plain_file import is_shadowed, modified_ms, shadow
from rollingfs.format import names, transitions
from rollingfs.format.header import Header
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import value_class


@value_class
class Snapshot:
    """A segment, or a plain file (a segment of a single chunk), as it was at a moment."""

    path: str
    header: Header | None
    """None for a plain file."""
    token: str | None
    plain: FileInfo | None = None

    @staticmethod
    def of_plain(path: str, plain: FileInfo) -> Snapshot:
        """Return a plain file, as the store describes it."""
        return Snapshot(path, None, plain.token, plain)

    @property
    def start(self) -> int:
        """Segment offset of the first retained byte."""
        return self.header.start if self.header else 0

    @property
    def length(self) -> int:
        """Segment offset of the end."""
        return self.header.length if self.header else self._file.size

    @property
    def size(self) -> int:
        """Return bytes retained: length - start."""
        return self.length - self.start

    def inline(self, start: int, end: int) -> bytes | None:
        """Return the bytes ``[start, end)``, in segment offsets, if all of them are inline in the header, else None."""
        header = self.header
        if header is None:
            return None
        first = header.tail_start
        if not first <= start <= end <= first + len(header.tail):
            return None
        return header.tail[start - first : end - first]

    @property
    def extent(self) -> str:
        """Return the retained range, in the words of errors."""
        return f"it holds bytes {self.start} to {self.length}"

    @property
    def sealed(self) -> bool:
        """Return whether the segment takes no more bytes."""
        return self.header is not None and self.header.sealed

    @property
    def state(self) -> str:
        """``"open"``, ``"sealed"``, or ``"merging"`` while the segment becomes part of another segment."""
        return str(self.header.phase) if self.header else "open"

    @property
    def version(self) -> int:
        """Return the number of the last commit, which grows with every commit; 0 for a plain file."""
        return self.header.version if self.header else 0

    @property
    def epoch(self) -> int:
        """Return the number of the last exclusive owner; 0 for a plain file."""
        return self.header.epoch if self.header else 0

    @property
    def owner(self) -> str | None:
        """Return the writer that holds the segment exclusively; or None."""
        return self.header.owner if self.header else None

    @property
    def attrs(self) -> dict[str, str]:
        """Return the segment's attributes."""
        return dict(self.header.attrs) if self.header else {}

    @property
    def policy(self) -> RollingPolicy | None:
        """When the segment rolls to a new chunk; None for a plain file."""
        return self.header.policy if self.header else None

    @property
    def created(self) -> datetime:
        """When this incarnation was created (UTC); for a plain file, when it was last changed."""
        return _date(self.header.created_ms if self.header else modified_ms(self._file))

    @property
    def modified(self) -> datetime:
        """When it was last changed (UTC)."""
        return _date(self.header.modified_ms if self.header else modified_ms(self._file))

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Return the ids that distinguish this file from later files of its name.

        The present id comes first.

        A plain file has a single id, which the segment that adopts it keeps; without a token of the store it has no id.
        """
        if self.header is not None:
            return self.header.incarnations
        adopted = shadow(self.plain)
        return (adopted.incarnation,) if adopted is not None and adopted.token else ()

    @property
    def _file(self) -> FileInfo:
        assert self.plain is not None
        return self.plain


def _date(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


class Lookup:
    """Finds what paths are."""

    def __init__(self, backend: Backend, headers: Headers) -> None:
        self.backend = backend
        self.headers = headers

    async def view(self, path: str, *, fresh: bool = False) -> Snapshot:
        """Return the content of a path, by header, plain file, and header again.

        Parameters
        ----------
        fresh
            Ask the store, however recently the header was seen.

        Raises
        ------
        FileNotFoundError
            Neither a segment nor a plain file is there, or the name is illegal.
        """
        if names.is_reserved(path):
            raise transitions.missing(path)
        loaded = None if fresh else self.headers.recent(path)
        loaded = loaded or await self.headers.load(path)
        if loaded.live:
            return Snapshot(path, loaded.header, loaded.token)
        plain = await self.plain(path, loaded)
        if plain is not None:
            return Snapshot.of_plain(path, plain)
        # another may have adopted the plain file between the two looks
        loaded = await self.headers.load(path)
        return Snapshot(path, transitions.live(loaded.header, path), loaded.token)

    async def loaded(self, path: str, *, fresh: bool = False) -> Loaded:
        """Return the header of a segment; unless `fresh`, as it was seen within the cache time."""
        recent = None if fresh else self.headers.recent(path)
        return recent or await self.headers.load(path)

    async def plain(self, path: str, loaded: Loaded) -> FileInfo | None:
        """Return the plain file at a path, unless the loaded tombstone hides it."""
        try:
            info = await self.backend.stat(path)
        except FileNotFoundError:
            return None
        return None if is_shadowed(loaded.header, info) else info
