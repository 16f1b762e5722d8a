"""What a path is: a segment with a header, a plain file read where it lies, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from rollingfs import transitions
from rollingfs.backend.contract import Backend, FileInfo
from rollingfs.commit import Committer
from rollingfs.header import Adopted, Header
from rollingfs.headers import Headers, Loaded

CLOCKS_APART_MS_MAX = 24 * 3600 * 1000
"""Of files older than this, by the client's clock, the store's clock is not asked."""


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


def modified_ms(info: FileInfo) -> int:
    """A file's date as headers write it: milliseconds since 1970."""
    return round(info.modified * 1000)


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


def shadow(plain: FileInfo | None) -> Adopted | None:
    """The line by which a header hides this plain file, and no other."""
    return Adopted(plain.token or "", modified_ms(plain)) if plain is not None else None


def is_shadowed(header: Header | None, info: FileInfo) -> bool:
    """Whether a plain file is hidden by a header: by any live one, by a tombstone only if it names this file."""
    if header is None:
        return False
    return not header.deleted or names_file(header, info)


def names_file(header: Header, info: FileInfo) -> bool:
    """Whether the header says that this plain file is the segment's: it was adopted, or it is the plain copy.

    Token *and* date: on S3 the token is a hash of the bytes, so another tool's file of the same bytes has the same.
    """
    return header.adopted is not None and header.adopted == shadow(info)


async def let_pass(committer: Committer, path: str, adopted: Adopted | None) -> None:
    """Wait until the store gives new files another date than that of a plain file which a tombstone is to name.

    Else one of the same bytes and the same second that comes after the tombstone would be hidden, and collected.
    """
    step_s = committer.backend.date_step_s
    if adopted is None or not step_s or committer.now_ms() - adopted.modified_ms > CLOCKS_APART_MS_MAX:
        return
    while (left_s := adopted.modified_ms / 1000 + step_s - await committer.backend.now(path)) > 0:
        await committer.runtime.sleep(min(left_s, step_s))


async def delete_shadowed(committer: Committer, path: str, adopted: Adopted | None) -> bool:
    """Delete the plain file that a header names, where the store can, and only if it still is that file.

    The date is looked at right before, because a store compares nothing but the token. What remains is the time of
    one request, within which another tool would have to write the very same bytes.
    """
    if adopted is None or not (await committer.abilities(path)).delete_if:
        return False
    try:
        info = await committer.backend.stat(path)
    except FileNotFoundError:
        return False
    return adopted == shadow(info) and await committer.backend.delete_if(path, adopted.token)
