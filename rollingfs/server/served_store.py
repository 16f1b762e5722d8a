"""The filesystem as a server uses it: paths below a root, snapshots, and bodies of any size in a single commit."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from typing import Any, cast

from rollingfs import RollingFileSystem, core
from rollingfs.backend.local.looks import leads_out
from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.append_keys import ATTRIBUTE, WRITERS, AlreadyAppended, AppendKey, check_fresh, remembering
from rollingfs.format.crc import crc32c
from rollingfs.format.transitions import Guard
from rollingfs.segment.files.intakes import addition
from rollingfs.segment.read.revalidate import Current, Span, Trust, read_current
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.append import Written, append
from rollingfs.show.readable import plain

PATH_CHARS_MAX = 4096
READ_BYTES_MAX = 8 * 1024 * 1024
READ_MEMORY_BYTES = 128 * 1024 * 1024
"""All bytes that readers hold, while there are no more readers than this has smallest pieces."""
READS_AHEAD = 2
SEND_BYTES = 256 * 1024
"""Bytes that are sent before the client must have taken some; what is read at a time is a multiple."""


class ServedStore:
    """Segments below a root.

    Parameters
    ----------
    root
        The URL or path that clients see as ``/``.
    body_bytes_max
        The limit for bodies, which holds for what is unpacked, too.
    """

    def __init__(self, fs: RollingFileSystem, root: str, body_bytes_max: float = math.inf) -> None:
        self.fs, self.body_bytes_max = fs, body_bytes_max
        self.core = core(fs)
        self.client, self.run = self.core.client, self.core.arun
        self.root: str = self.core.strip(root).rstrip("/")
        self._is_disk = self.core.target in ("file", "local", "LocalBackend")
        self.core.backend.confine(self.root or "/")
        self.readers = 0

    # -- paths ---------------------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        """Return the filesystem's path for a client's path; ``""`` is the root.

        Raises
        ------
        ValueError
            It is not a path: it has ``..`` or empty parts, control characters, or a reserved name.
        FileNotFoundError
            It leads out of the root, through a link on a disk.
        """
        if path == "":
            return self.root or "/"
        if (
            len(path) > PATH_CHARS_MAX
            or not path.encode(errors="surrogateescape").decode(errors="replace").isprintable()
        ):
            raise ValueError("the path is too long, or has characters that cannot be printed")
        parts = path.split("/")
        if self._is_disk and os.sep in "".join(parts):
            raise ValueError(f"{path}: the parts of a path stand between slashes, not {os.sep!r}")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path}: a path has no empty parts, no '.' and no '..'")
        if any(names.is_hidden(part) or names.is_hidden_segment(part) for part in parts):
            raise ValueError(f"{path}: rollingfs keeps this name to itself")
        placed = f"{self.root}/{path}"
        if self._is_disk and leads_out(placed, self.root or "/"):
            raise FileNotFoundError(2, "a link on the disk leads out of the root", placed)
        return placed

    def name(self, place: str) -> str:
        """Return a client's path for a path of the filesystem."""
        return "" if place == self.root else place.removeprefix(f"{self.root}/")

    def shown(self, value: Any) -> Any:
        """Return a value for JSON, with all paths as clients know them."""
        return plain(value, self.name if self.root else str)

    # -- reading -------------------------------------------------------------------------------------------

    async def look(self, place: str) -> Segment:
        """Return a segment or plain file as it is now.

        Raises
        ------
        FileNotFoundError
            The path does not exist.
        """
        return await self.run(self.client.headers.view(place, fresh=True))

    async def ranged(self, place: str, span: Span) -> tuple[Segment, bytes]:
        """Return a file as it is now, and a range of it; the store is asked for both at once where it was seen before.

        Parameters
        ----------
        span
            The segment offsets that are wanted; no byte is read of a range that is too long to be held whole.

        Raises
        ------
        FileNotFoundError
            The path does not exist.
        SegmentTruncatedError
            The first bytes have been truncated away.
        """
        size_max = min(READ_BYTES_MAX, READ_MEMORY_BYTES // ((READS_AHEAD + 1) * (self.readers + 1)))

        def short(view: Segment) -> tuple[int, int]:
            start, end = span(view)
            return start, end if end - start <= size_max else start

        current = Current(self.client.headers, place)
        current.believe()
        current.trust = Trust.OLD  # whatever the cache believes
        self.readers += 1
        try:
            [found] = await self.run(read_current(self.client.fetcher, [(current, short)]))
        finally:
            self.readers -= 1
        if isinstance(found, Exception):
            raise found
        return current.known, found

    async def pieces(
        self, view: Segment, start: int, end: int, *, is_wanted: bool = False
    ) -> AsyncIterator[memoryview]:
        """Yield the bytes ``[start, end)`` of a snapshot, in pieces of `SEND_BYTES`.

        The next pieces are read while a piece is sent.

        Parameters
        ----------
        is_wanted
            The client takes all of them, so few large reads get them.
        """
        ahead: deque[asyncio.Task[bytes]] = deque()
        asked = end - start + SEND_BYTES if is_wanted else SEND_BYTES
        self.readers += 1
        try:
            while start < end or ahead:
                share = min(asked, READ_BYTES_MAX, READ_MEMORY_BYTES // ((READS_AHEAD + 1) * self.readers))
                size = max(1, share // SEND_BYTES) * SEND_BYTES
                while start < end and len(ahead) < READS_AHEAD:
                    ahead.append(asyncio.create_task(self._read(view, start, min(end, start + size))))
                    start += size
                piece = memoryview(await ahead.popleft())
                asked += len(piece)  # Hadoop's client asks for all, takes a bit and goes
                for at in range(0, len(piece), SEND_BYTES):
                    yield piece[at : at + SEND_BYTES]
                    await asyncio.sleep(0)  # so that it is seen that a client goes
        finally:
            self.readers -= 1
            for task in ahead:
                task.cancel()

    async def _read(self, view: Segment, start: int, end: int) -> bytes:
        return await self.run(self.client.fetcher.read(view, start, end))  # made here, lest it is dropped unawaited

    async def listed(self, place: str, on_error: str = "report") -> list[dict[str, Any]]:
        """Return the content of a folder; the root always exists.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        try:
            return list(cast(Any, await self.fs._ls(place, detail=True, on_error=on_error)))
        except FileNotFoundError:
            if place != (self.root or "/"):
                raise
            return []

    async def retention(self, place: str) -> dict[str, Any]:
        """Return a folder's retention, and the folder of each field.

        The folder is None if it is above the root.
        """
        found = await self.fs._get_policy(place)
        kept = {} if found.retention is None else found.retention.as_fields()
        said, root = found.sources["retention"], f"{self.root}/" if self.root else ""
        sources = {name: said[name] if f"{said[name]}/".startswith(root) else None for name in kept}
        return {"retention": kept or None, "sources": sources}

    def info(self, view: Segment) -> dict[str, Any]:
        """Return the info of a segment or plain file for clients."""
        told = {name: getattr(view, name) for name in ("state", "start", "length", "size", "version", "owner")}
        dates = {"created": view.created.timestamp(), "modified": view.modified.timestamp(), "etag": etag(view)}
        attrs = {key: value for key, value in view.attrs.items() if key not in (ATTRIBUTE, WRITERS)}
        kind = "segment" if view.header else "file"
        return {"path": self.name(view.path), "type": kind, **told, **dates, "attributes": attrs}

    # -- writing -------------------------------------------------------------------------------------------

    async def append(
        self,
        place: str,
        body: AsyncIterable[bytes],
        offset: int | None = None,
        key: str | Callable[[], str | None] | None = None,
        writer: AppendKey | None = None,
        **create: bool,
    ) -> tuple[Written, int]:
        """Append a body in a single commit; return the append and its size.

        Parameters
        ----------
        key
            The key of the append, or what returns it after the last part of the body.

        Raises
        ------
        AlreadyAppended
            An append with this key took place before.
        OSError
            As `append` of the filesystem.
        """
        place = names.check_new_name(place)
        guard = Guard(None if writer is None else writer.segment, expected_offset=offset)
        intake, must_look = addition(self.client, place, guard, **create), isinstance(key, str)
        try:
            async for part in body:
                if must_look and intake.size > SEND_BYTES:  # a small body is refused by its own commit
                    must_look = False
                    with contextlib.suppress(FileNotFoundError):
                        await self._check(place, partial(check_fresh, key=str(key)))
                await self.run(intake.take(part))
        except BaseException:
            await asyncio.shield(self.run(intake.abort()))
            raise
        size, key = intake.size, key() if callable(key) else key
        attrs = writer.attributes(size) if writer is not None else None if key is None else remembering(key, size)
        call = append(self.client, place, intake, attrs=attrs, guard=guard, **create)
        try:
            return await asyncio.shield(self.run(call)), size
        except RollingError:  # the same append may have taken place before, and be the reason of the refusal
            if key is not None:
                await self._check(place, partial(check_fresh, key=key))
            elif writer is not None:
                await self._check(place, writer.check)
            raise

    async def _check(self, place: str, check: Callable[[dict[str, str]], object]) -> None:
        """Refuse a repeated append, once no loss of power takes the first back."""
        try:
            check((await self.look(place)).attrs)
        except AlreadyAppended:
            await self.run(self.client.headers.secure(place))
            raise


def etag(view: Segment) -> str:
    """Return a strong ETag: it changes with each commit, and with each incarnation."""
    if view.header is not None:
        return f'"{view.header.segment}-{view.header.version}"'
    # a store may date two files of one name and size in the same second
    return f'"{view.size}-{view.modified.timestamp()}-{crc32c((view.token or "").encode()):08x}"'
