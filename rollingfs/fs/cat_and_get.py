"""Reading files: ranges of several at once, whole files to the local disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback, NoOpCallback

from rollingfs.errors import ConflictError, SegmentTruncatedError
from rollingfs.fs.core import Core
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.read.revalidate import Current, Trust, read_current
from rollingfs.segment.segment import Segment

Slice = tuple[str, int | None, int | None]
"""A path, and a slice of its bytes."""


def clip(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Return a slice of `size` bytes as begin and end, as Python slices."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def spread(paths: Any, starts: Any, ends: Any) -> list[Slice]:
    """Return the ranges that the arguments of `cat_ranges` name.

    Raises
    ------
    TypeError
        The paths are not a list.
    ValueError
        The lists have different lengths.
    """
    if not isinstance(paths, list):
        raise TypeError(f"cat_ranges takes a list of paths, not {type(paths).__name__}")
    starts, ends = (list(each) if isinstance(each, Iterable) else [each] * len(paths) for each in (starts, ends))
    if not len(paths) == len(starts) == len(ends):
        raise ValueError(f"cat_ranges got {len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
    return list(zip(paths, starts, ends, strict=True))


PIECE_BYTES = 32 * 1024 * 1024
"""Bytes in memory while a file is copied or downloaded; they are read in several ranges at once."""
PROGRESS_BYTES = 2 * 1024 * 1024
"""The same for a caller who listens to the progress of a download: the bytes of a step."""


async def cat_file(
    core: Core, path: str, start: int | None = None, end: int | None = None, verify: bool = False, **kwargs: Any
) -> bytes:
    """Return the bytes of a file, all of a single snapshot.

    Positions count from the first retained byte; on a filesystem that is `absolute`, they are segment offsets.

    Parameters
    ----------
    start, end
        A slice as in Python: a negative number counts from the end, a too large number is clipped.
    verify
        Read and verify whole chunks, also where only a part is wanted. Whole chunks are always verified.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum.
    """
    [answer] = await _read(core, [(core.strip(path), start, end)], verify)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def cat_ranges(
    core: Core,
    paths: list[str],
    starts: int | Sequence[int | None] | None,
    ends: int | Sequence[int | None] | None,
    max_gap: int | None = None,
    on_error: str = "return",
    verify: bool = False,
    **kwargs: Any,
) -> list[bytes | Exception]:
    """Return ranges of a file or several, all read at once; each is sliced and verified as by `cat_file`.

    Parameters
    ----------
    on_error
        ``"return"`` returns an error instead of its range; ``"raise"`` raises the first error.
    """
    ranges = [(core.strip(path), start, end) for path, start, end in spread(paths, starts, ends)]
    answers = await _read(core, ranges, verify)
    if on_error != "return" and (errors := [answer for answer in answers if isinstance(answer, Exception)]):
        raise errors[0]
    return answers


async def _read(core: Core, ranges: Sequence[Slice], verify: bool) -> list[bytes | Exception]:
    current = {path: Current(core.client.headers, path) for path in {path for path, _, _ in ranges}}
    for each in current.values():
        each.believe()
    span = _absolute_span if core.absolute else _span
    wanted = [(current[path], partial(span, start, end)) for path, start, end in ranges]
    return await read_current(core.client.fetcher, wanted, verify=verify)


async def get_file(
    core: Core,
    rpath: str,
    lpath: str | os.PathLike[str] | IO[bytes],
    callback: Callback = DEFAULT_CALLBACK,
    outfile: IO[bytes] | None = None,
    verify: bool = False,
    **kwargs: Any,
) -> None:
    """Copy a file to the local disk, or into a file that is open; make a folder for a folder.

    If the file cannot be read to its end, no part of it stays on the disk. A new file gets its name when it is whole.

    Parameters
    ----------
    verify
        Also verify a first chunk whose head was truncated away. All other chunks are always verified.

    Raises
    ------
    FileNotFoundError
        Nothing is there, or the file was replaced or truncated while it was read.
    SegmentTruncatedError
        The filesystem is `absolute`, and the head was truncated away: the copy, which caches of fsspec read by
        positions, would count from another byte.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum.
    """
    source = core.strip(rpath)
    try:
        step = PIECE_BYTES if isinstance(callback, NoOpCallback) else PROGRESS_BYTES
        view, parts = await pieces(core, source, verify=verify, piece_bytes=step)
    except FileNotFoundError:
        if isinstance(lpath, str | os.PathLike) and await core.client.contents.is_folder(source):
            os.makedirs(lpath, exist_ok=True)
            return
        raise
    if core.absolute and view.start:
        raise SegmentTruncatedError(
            f"{source}: bytes 0 to {view.start} were truncated away, and a copy would count from byte {view.start}. "
            f"Nothing was copied; a filesystem without absolute=True copies what is left"
        )
    callback.set_size(view.size)
    in_thread = core.client.runtime.in_thread  # a slow disk must not block the store's event loop
    with contextlib.ExitStack() as stack:
        target = outfile or lpath
        if isinstance(target, str | os.PathLike):
            target = await in_thread(partial(stack.enter_context, _new_file(target)))
        async for data in parts:
            await in_thread(partial(target.write, data))
            callback.relative_update(len(data))
        await in_thread(stack.close)


@contextlib.contextmanager
def _new_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a local file, make its folder, and remove it after an error.

    A new file gets its name when it is whole, because fsspec's `simplecache` takes a file that is there for whole.
    """
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    name = path if os.path.lexists(path) else f"{folder}/.{os.urandom(8).hex()}.part"
    target = open(name, "wb")  # noqa: SIM115 - a file that cannot be opened is not ours to remove
    try:
        with target:
            yield target
        if name != path:
            os.replace(name, path)
    except BaseException:
        if os.path.isfile(name):  # no device, no pipe
            os.unlink(name)
        raise


async def pieces(
    core: Core, path: str, *, verify: bool, piece_bytes: int = PIECE_BYTES, fresh: bool = False
) -> tuple[Segment, AsyncIterator[bytes]]:
    """Return a new snapshot of a file, taken with its first bytes, and all its bytes in pieces.

    Parameters
    ----------
    fresh
        Ask the store, however recently the header was seen: for a caller that commits what it reads.
    verify
        Also verify, before the last piece, the chunks that the snapshot holds only in part.
    """

    def first_piece(snapshot: Segment) -> tuple[int, int]:
        return snapshot.start, min(snapshot.start + piece_bytes, snapshot.length)

    current, checks = Current(core.client.headers, path), PieceChecks()
    current.believe()
    if fresh:
        current.trust = Trust.OLD
    [first] = await read_current(core.client.fetcher, [(current, first_piece)], checks=checks)
    if isinstance(first, Exception):
        raise first
    return current.known, _pieces(core, current.known, first, checks, verify, piece_bytes)


async def _pieces(
    core: Core, view: Segment, data: bytes, checks: PieceChecks, verify: bool, piece_bytes: int
) -> AsyncIterator[bytes]:
    """Yield `data`, the first bytes of a snapshot, and all others; a plain file is held, if it can be."""
    fetcher, held, end = core.client.fetcher, None, view.start + len(data)
    with contextlib.suppress(FileNotFoundError, ConflictError):  # the next read will say why
        held = fetcher.hold(view)
    while data:
        if verify and end == view.length:
            await fetcher.complete(view, checks)
        yield data
        start, end = end, min(end + piece_bytes, view.length)
        data = await fetcher.read(view, start, end, checks=checks) if start < end else b""
    del held


def _absolute_span(start: int | None, end: int | None, snapshot: Segment) -> tuple[int, int]:
    """Return a slice of segment offsets.

    Raises
    ------
    SegmentTruncatedError
        Its first bytes were truncated away.
    """
    if start is None and (end is None or end > snapshot.start):
        start = snapshot.start
    first, last = clip(start, end, snapshot.length)
    if first < min(snapshot.start, last):
        raise SegmentTruncatedError(f"{snapshot.path}: bytes {first} to {last} were truncated away; {snapshot.extent}")
    return first, last


def _span(start: int | None, end: int | None, snapshot: Segment) -> tuple[int, int]:
    first, last = clip(start, end, snapshot.size)
    return snapshot.start + first, snapshot.start + last
