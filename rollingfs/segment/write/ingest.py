"""Takes the data that a caller hands over: few bytes stay in memory, many become chunk files at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rollingfs.backend.contract import frozen
from rollingfs.errors import TELLING, not_committed, worded
from rollingfs.segment.commit.chunk_files import Staged, Stored, Uploads
from rollingfs.segment.commit.store import Store
from rollingfs.segment.write.budget import PART_BYTES, Share
from rollingfs.segment.write.chunk_writer import ChunkWriter

SMALL_BYTES_MAX = 1024 * 1024
"""Maximum bytes of an operation that stay in memory; more go into chunk files as they come."""
PIECE_BYTES = 4 * 1024 * 1024
"""Bytes that are read from a file, or gathered from an iterable, at a time."""

_NATIVE_FORMATS = frozenset("bBc?hHiIlLqQnNefdP")
"""Formats that `memoryview.cast` accepts: no foreign byte order, no records."""


T = TypeVar("T")
Items = Sequence[bytes | Stored]


if TYPE_CHECKING:
    from _typeshed import SupportsRead
    from typing_extensions import Buffer

    Data = Buffer | SupportsRead[bytes] | Staged | Iterable[Buffer | Staged]
else:
    Data = Any
"""Bytes-like, a binary file object, a receipt, or an iterable of bytes-like and receipts."""


class Intake:
    """Takes the data of an operation on a segment, in order and in bounded memory.

    Parameters
    ----------
    path
        The segment.
    new_writer
        Called once, before the first chunk file is written; it may refuse by raising.
    staged
        Write everything into chunk files, under the names of staged chunks.

    Attributes
    ----------
    uploads : Uploads
        The chunk files that are complete and not committed.
    share : Share
        The bytes that it holds in memory.
    """

    def __init__(
        self, store: Store, path: str, new_writer: Callable[[], Awaitable[ChunkWriter]], share: Share, *, staged: bool
    ) -> None:
        self.path = path
        self.share = share
        self.size = 0
        self.is_streaming = False
        """Whether bytes are on their way to the store."""
        self.uploads = Uploads(store, path)
        self._store = store
        self._new_writer = new_writer
        self._writer: ChunkWriter | None = None
        self._begin = 0
        """Return the offset that the first byte is expected to have."""
        self._small_max = 0 if staged else SMALL_BYTES_MAX
        self._staged = staged
        self._items: list[bytes | Stored] = []
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._receipts: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Return whether all data that was taken has been handed on."""
        return not (self._items or self._pending or self.is_streaming)

    async def take(self, data: Data) -> None:
        """Take all of the data; if that fails, remove the uploaded files.

        Raises
        ------
        TypeError
            It is text, or of a type that cannot be written.
        ValueError
            A receipt is for another segment, or comes twice.
        """
        await self._or_nothing(self._take(data))

    async def _take(self, data: Data) -> None:
        if (view := as_bytes(data)) is not None:
            await self._put(view)
            return
        batches = _batches([data] if isinstance(data, Staged) else data)
        # the caller's own code may block, or call a filesystem that lives on this very loop
        is_elsewhere = self._store.backend.is_async and not isinstance(data, list | tuple | Staged)
        while batch := await asyncio.to_thread(next, batches, None) if is_elsewhere else next(batches, None):
            if isinstance(batch, list):
                for view in batch:
                    await self._put(view)
                continue
            if isinstance(batch, Staged):
                self._check_receipt(batch)
                self.size += batch.size
            await self._end_run()
            self._items += batch.chunks if isinstance(batch, Staged) else [batch]

    async def _put(self, view: memoryview) -> None:
        """Take some bytes; they may be reused by the caller after the call."""
        for start in range(0, len(view), PART_BYTES):
            part = view[start : start + PART_BYTES]
            await self.share.take(len(part), self.spill)
            if self.is_streaming or self._pending_bytes + len(view) - start > self._small_max:
                writer = await self._stream(part)
                self.share.set(writer.held_bytes)
            else:
                self._pending.append(frozen(part))
                self._pending_bytes += len(part)
            self.size += len(part)

    async def _stream(self, data: bytes | memoryview) -> ChunkWriter:
        """Write the pending bytes into chunk files, and more data after them."""
        if self._writer is None:
            self._writer = await self._new_writer()
            self._begin = self._writer.position
        if not self.is_streaming:
            self._writer.position = self._begin + self.size - self._pending_bytes
        self.is_streaming = True
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for piece in (*pending, data):
            await self._writer.write(piece)
        return self._writer

    def _check_receipt(self, receipt: Staged) -> None:
        if self._staged:
            raise TypeError("a receipt is staged already; append it")
        if receipt.path != self.path:
            raise ValueError(f"a receipt staged for {receipt.path} cannot be committed to {self.path}")
        if receipt.id in self._receipts:
            raise ValueError(f"{self.path}: one staged receipt comes twice in this call; its records would be doubled")
        self._receipts.add(receipt.id)

    async def _end_run(self) -> None:
        if self._pending:
            self._items.append(b"".join(self._pending))
            self._pending, self._pending_bytes = [], 0
        if self._writer is not None and self.is_streaming:
            stored = await self._writer.finish()
            self.uploads.add(stored)
            self._items += stored
            self.is_streaming = False

    async def spill(self, data: bytes = b"") -> None:
        """Write the bytes in memory as chunk files, and more data after them; later data begins other chunks.

        This asks for no room: it is how others get some.
        """
        await self._or_nothing(self._spill(data))

    async def _spill(self, data: bytes) -> None:
        if self._pending or data or self.is_streaming:
            await self._stream(data)
            self.size += len(data)
        await self._end_run()
        self.share.close()

    async def flush(self) -> None:
        """Make the taken data durable."""
        await self._or_nothing(self._end_run())

    async def commit(
        self, verb: str, data: Data | Intake, commit: Callable[[Items, Uploads], Coroutine[Any, Any, T]]
    ) -> T:
        """Commit data, once this intake has taken the data; or what another intake has taken."""
        intake = data if isinstance(data, Intake) else self
        if not isinstance(data, Intake):
            await self.take(data)
        call = commit(await intake.finish(), intake.uploads)
        # not to be cancelled: an upload may be deleted only after the last attempt that could name it
        settled = self._store.runtime.shield(intake.uploads.settle(call))
        try:
            return await self._store.meters.measure(verb, settled, intake.size)
        finally:
            intake.share.close()

    async def finish(self) -> Items:
        """Make everything durable and hand it on; the intake is empty then, and may take more."""
        await self.flush()
        items, self._items = self._items, []
        self._receipts.clear()
        return items

    async def abort(self) -> None:
        """Remove the uploaded files, and forget the taken data."""
        self._items, self._pending, self._pending_bytes, self.is_streaming = [], [], 0, False
        self.share.close()
        if self._writer is not None:
            await self._writer.abort()
        await self.uploads.delete()

    async def abort_open(self) -> None:
        """Give up the chunk being written; this takes no lock, so that garbage collection may do it."""
        if self._writer is not None:
            await self._writer.abort_open()

    async def _or_nothing(self, call: Awaitable[None]) -> None:
        """Await a call; if it fails, remove the uploaded files, and replace an error that leaves the outcome open."""
        try:
            await call
        except BaseException as error:
            try:
                await self.abort()
            except OSError as second:
                error.add_note(
                    f"{self.path}: removing the uploaded files failed as well, {worded('collect')} will: {second}"
                )
            if isinstance(error, TypeError):
                raise TypeError(f"{self.path}: {error}; nothing was written") from error
            if isinstance(error, OSError) and not isinstance(error, TELLING):
                raise not_committed(error, self.path) from error
            raise


def as_bytes(data: Any) -> memoryview | None:
    """Return a flat view of anything bytes-like (arrays of numbers too); None for anything else.

    Raises
    ------
    TypeError
        It is text.
    """
    if isinstance(data, str):
        raise TypeError("text cannot be written as it is: encode it, as in text.encode()")
    try:
        view = memoryview(data)
    except TypeError:
        return None
    if view.c_contiguous and view.nbytes and view.format.lstrip("@") in _NATIVE_FORMATS:
        return view.cast("B")
    return memoryview(view.tobytes())


def is_small(data: Any) -> bool:
    """Return whether data stays in memory, so that it is taken without a wait."""
    if type(data) is bytes:
        return len(data) <= SMALL_BYTES_MAX
    if isinstance(data, str):
        return True  # it will be refused at once
    view = as_bytes(data)
    return view is not None and len(view) <= SMALL_BYTES_MAX


def _batches(data: Any) -> Iterator[list[memoryview] | Staged | Stored]:
    """Yield the checked pieces of a file object or an iterable.

    Bytes are gathered up to `PIECE_BYTES`, so that not every small piece costs a hop to a thread.

    Raises
    ------
    TypeError
        It is neither, or yields text or something else.
    """
    kind = f"cannot write {type(data).__name__}: give bytes, a binary file, a receipt or an iterable of them"
    if not (is_file := hasattr(data, "read")) and not isinstance(data, Iterable):
        raise TypeError(kind)
    batch: list[memoryview] = []
    size = 0
    for item in iter(partial(data.read, PIECE_BYTES), b"") if is_file else data:
        view = None if isinstance(item, Staged | Stored) else as_bytes(item)
        if view is not None:
            # the caller may reuse a buffer before the batch is full, so it is copied
            batch.append(view if isinstance(view.obj, bytes) else memoryview(bytes(view)))
            size += len(view)
        elif is_file:
            raise TypeError(f"a file to be written gave {type(item).__name__}; open it in binary mode")
        elif not isinstance(item, Staged | Stored):
            raise TypeError(f"cannot write {type(item).__name__} from an iterable: give bytes or receipts of stage()")
        if batch and (view is None or size >= PIECE_BYTES):
            yield batch
            batch, size = [], 0
        if view is None:
            yield item
    if batch:
        yield batch
