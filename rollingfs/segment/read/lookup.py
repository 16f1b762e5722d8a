"""Find the content of a path: a segment, or a plain file."""

from __future__ import annotations

from rollingfs.backend.contract import Backend, FileInfo
from rollingfs.format import names, transitions
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.segment import Segment, is_shadowed


class Lookup:
    """Finds what paths are."""

    def __init__(self, backend: Backend, headers: Headers) -> None:
        self.backend = backend
        self.headers = headers

    async def view(self, path: str, *, fresh: bool = False) -> Segment:
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
            return loaded
        plain = await self.plain(loaded)
        if plain is not None:
            return Segment.of_plain(plain)
        # another may have adopted the plain file between the two looks
        loaded = await self.headers.load(path)
        transitions.live(loaded.header, path)
        return loaded

    async def loaded(self, path: str, *, fresh: bool = False) -> Segment:
        """Return the header of a segment; unless `fresh`, as it was seen within the cache time."""
        recent = None if fresh else self.headers.recent(path)
        return recent or await self.headers.load(path)

    async def plain(self, seen: Segment) -> FileInfo | None:
        """Return the plain file at a path, unless the tombstone that was seen hides it."""
        try:
            info = await self.backend.stat(seen.path)
        except FileNotFoundError:
            return None
        return None if is_shadowed(seen.header, info) else info
