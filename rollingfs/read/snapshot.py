"""What a path is: a segment with a header, a plain file read where it lies, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from rollingfs.backend.contract import Backend, FileInfo
from rollingfs.commit.header_cache import Headers, Loaded
from rollingfs.commit.shadowing import is_shadowed, shadow
from rollingfs.format import transitions
from rollingfs.format.header import Header


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of something that can be read: a segment, or a plain file (a segment of one chunk)."""

    path: str
    header: Header | None
    """None for a plain file."""
    token: str | None
    plain: FileInfo | None = None

    @property
    def start(self) -> int:
        """First retained byte, as a segment offset."""
        return self.header.start if self.header else 0

    @property
    def length(self) -> int:
        """End offset."""
        if self.header:
            return self.header.length
        assert self.plain is not None
        return self.plain.size

    @property
    def size(self) -> int:
        """Bytes retained."""
        return self.length - self.start

    @property
    def incarnations(self) -> tuple[str, ...]:
        """What tells it from whatever has its name later, its present name first; none where the store tells no token.

        A plain file has one, too, by which the segment that it becomes is known as well.
        """
        if self.header is not None:
            return self.header.incarnations
        adopted = shadow(self.plain)
        return (adopted.incarnation,) if adopted is not None and adopted.token else ()


class Lookup:
    """Finds what paths are."""

    def __init__(self, backend: Backend, headers: Headers) -> None:
        self.backend = backend
        self.headers = headers

    async def view(self, path: str, *, fresh: bool = False) -> View:
        """What is to be read at a path: the header, else the plain file, else the header once more.

        Parameters
        ----------
        fresh
            Ask the store, however recently the header was seen.

        Raises
        ------
        FileNotFoundError
            Neither a segment nor a plain file.
        """
        loaded = None if fresh else self.headers.recent(path)
        if loaded is None:
            loaded = await self.headers.load(path)
        if not loaded.live:
            plain = await self.plain(path, loaded)
            if plain is not None:
                return View(path, None, plain.token, plain)
            # adopted between the two looks
            loaded = await self.headers.load(path)
        return View(path, transitions.live(loaded.header, path), loaded.token)

    async def plain(self, path: str, loaded: Loaded) -> FileInfo | None:
        """The plain file at a path, unless the tombstone that was loaded says that it is dead."""
        try:
            info = await self.backend.stat(path)
        except FileNotFoundError:
            return None
        return None if is_shadowed(loaded.header, info) else info
