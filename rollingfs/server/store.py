"""The filesystem as a server uses it: paths below one root, snapshots, and bodies of any size in one commit."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from rollingfs import RollingFileSystem, core
from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.transitions import Guard
from rollingfs.read.snapshot import Snapshot
from rollingfs.server.keys import ATTRIBUTE, check_fresh, remembering
from rollingfs.stream.cut import StreamCut
from rollingfs.write.gather import Written
from rollingfs.write.ingest import Intake

PATH_CHARS_MAX = 4096
PIECE_BYTES = 256 * 1024
"""Bytes of a body that are gathered before they are handed to the filesystem."""
READ_BYTES_MAX = 8 * 1024 * 1024
READ_BYTES_MIN = 256 * 1024
READ_MEMORY_BYTES = 128 * 1024 * 1024
"""All bytes that readers hold, two pieces each, while there are no more readers than this has smallest pieces."""


class Store:
    """Segments below a root.

    Parameters
    ----------
    root
        The URL or path that clients see as ``/``.
    """

    def __init__(self, fs: RollingFileSystem, root: str) -> None:
        self.fs = fs
        self.core = core(fs)
        self.client, self.run = self.core.client, self.core.arun
        self.root: str = self.core.strip(root).rstrip("/")
        is_disk = self.core.target in ("file", "local", "LocalBackend")
        self._real = os.path.realpath(self.root or "/") if is_disk else None
        self.readers = 0

    # -- paths ---------------------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        """The filesystem's path for one of a client; ``""`` is the root.

        Raises
        ------
        ValueError
            It is not a path: it has ``..`` or empty parts, control characters, or a reserved name.
        FileNotFoundError
            It leads out of the root, through a link on a disk.
        """
        if path == "":
            return self.root or "/"
        if len(path) > PATH_CHARS_MAX or not path.isprintable():
            raise ValueError("the path is too long, or has characters that cannot be printed")
        parts = path.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path}: a path has no empty parts, no '.' and no '..'")
        if any(names.is_hidden(part) or names.is_hidden_segment(part) for part in parts):
            raise ValueError(f"{path}: rollingfs keeps this name to itself")
        placed = f"{self.root}/{path}"
        if self._real is not None:
            real = os.path.realpath(placed)
            if real != self._real and not real.startswith(self._real.rstrip("/") + "/"):
                raise FileNotFoundError(2, "a link on the disk leads out of the root", placed)
        return placed

    def name(self, place: str) -> str:
        """A client's path for one of the filesystem."""
        return "" if place == self.root else place.removeprefix(f"{self.root}/")

    def shown(self, value: Any) -> Any:
        """A value for JSON, with all paths as clients know them."""
        if isinstance(value, str):
            return self.name(value) if self.root else value
        if isinstance(value, StreamCut):
            return json.loads(str(value.renamed(self.name)))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {one.name: self.shown(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {self.shown(key): self.shown(one) for key, one in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.shown(one) for one in value]
        return value if isinstance(value, int | float | None) else str(value)

    # -- reading -------------------------------------------------------------------------------------------

    async def look(self, path: str) -> Snapshot:
        """A segment or plain file as it is now.

        Raises
        ------
        FileNotFoundError
            There is none.
        """
        return await self.run(self.client.lookup.view(self.place(path), fresh=True))

    async def pieces(self, view: Snapshot, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes ``[start, end)`` of a snapshot, the next piece read while one is sent."""
        self.readers += 1
        ahead = None
        try:
            while start < end or ahead is not None:
                piece = await ahead if ahead is not None else b""
                size = max(READ_BYTES_MIN, min(READ_BYTES_MAX, READ_MEMORY_BYTES // (2 * self.readers)))
                upto = min(end, start + size)
                ahead = self._begin(view, start, upto) if start < end else None
                start = upto
                if piece:
                    yield piece
        finally:
            self.readers -= 1
            if ahead is not None:
                ahead.cancel()

    def _begin(self, view: Snapshot, start: int, end: int) -> asyncio.Task[bytes]:
        return asyncio.create_task(self.run(self.client.fetcher.read(view, start, end)))

    async def listed(self, place: str, on_error: str = "report") -> list[dict[str, Any]]:
        """What lies in a folder. The root exists, whether something lies in it or not.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        """
        try:
            found: Any = await self.fs._ls(place, detail=True, on_error=on_error)
        except FileNotFoundError:
            if place != (self.root or "/"):
                raise
            found = []
        return list(found)

    def info(self, view: Snapshot) -> dict[str, Any]:
        """What clients are told of a segment or plain file."""
        told = {name: getattr(view, name) for name in ("state", "start", "length", "size", "version", "owner")}
        dates = {"created": view.created.timestamp(), "modified": view.modified.timestamp(), "etag": etag(view)}
        attrs = {key: value for key, value in view.attrs.items() if key != ATTRIBUTE}
        kind = "segment" if view.header else "file"
        return {"path": self.name(view.path), "type": kind, **told, **dates, "attributes": attrs}

    # -- writing -------------------------------------------------------------------------------------------

    async def append(
        self, path: str, body: AsyncIterable[bytes], offset: int | None = None, key: str | None = None, **create: bool
    ) -> tuple[Written, int]:
        """Append a body in one commit, and say what was written and how many bytes.

        Raises
        ------
        AlreadyAppended
            An append with this key took place before.
        OSError
            As `append` of the filesystem.
        """
        place = names.check_new_name(self.place(path))
        if key is not None:
            with contextlib.suppress(FileNotFoundError):
                check_fresh((await self.look(path)).attrs, key)
        segments, guard = self.client.segments, Guard(expected_offset=offset)
        intake = segments.addition(place, guard, **create)
        await self._take(intake, body)
        size = intake.size
        attrs = None if key is None else remembering(key, size)
        call = segments.extend(place, intake, attrs=attrs, guard=guard, **create)
        try:
            return await asyncio.shield(self.run(call)), size
        except RollingError:
            if key is not None:  # the same append may have taken place meanwhile, and be the reason of the refusal
                check_fresh((await self.look(path)).attrs, key)
            raise

    async def replace(self, path: str, body: AsyncIterable[bytes], *, create_only: bool) -> int:
        """Write a file whole in one commit; returns its size.

        Raises
        ------
        FileExistsError
            With `create_only`: a file is there.
        """
        place = names.check_new_name(self.place(path))
        intake = self.client.segments.replacement(place, create_only=create_only)
        await self._take(intake, body)
        size = intake.size
        await asyncio.shield(self.run(self.client.segments.overwrite(place, intake, create_only=create_only)))
        return size

    async def _take(self, intake: Intake, body: AsyncIterable[bytes]) -> None:
        """Hand a body over as it comes; if it breaks off, nothing of it stays."""
        try:
            async for piece in gathered(body):
                await self.run(intake.take(piece))
        except BaseException:
            await asyncio.shield(self.run(intake.abort()))
            raise


def etag(view: Snapshot) -> str:
    """A strong ETag: it changes with each commit, and with each incarnation."""
    if view.header is not None:
        return f'"{view.header.segment}-{view.header.version}"'
    return f'"{view.size}-{view.modified.timestamp()}"'


async def gathered(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A body in pieces that are worth a call each."""
    parts: list[bytes] = []
    size = 0
    async for part in body:
        parts.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)
