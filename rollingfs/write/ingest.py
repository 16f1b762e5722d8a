"""Takes the data that a caller hands over: few bytes stay in memory, many become chunk files at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rollingfs.backend.contract import frozen
from rollingfs.commit.chunk_files import Staged, Stored
from rollingfs.commit.store import Store
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import TELLING, not_committed
from rollingfs.format.header import Header
from rollingfs.format.labels import Last
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.values import value_class
from rollingfs.write.budget import PART_BYTES, Share
from rollingfs.write.chunk_writer import ChunkWriter

SMALL_BYTES_MAX = 1024 * 1024
"""Maximum bytes of one operation that stay in memory; more go into chunk files as they come."""
PIECE_BYTES = 4 * 1024 * 1024
"""Bytes that are read from a file, or gathered from an iterable, at a time."""

_NATIVE_FORMATS = frozenset("bBc?hHiIlLqQnNefdP")
"""Formats that `memoryview.cast` accepts: no foreign byte order, no records."""


class BinaryFile(Protocol):
    """A file object that gives bytes."""

    def read(self, size: int, /) -> bytes: ...


if TYPE_CHECKING:
    from typing_extensions import Buffer

    Data = Buffer | BinaryFile | Staged | Iterable[Buffer | Staged]
else:
    Data = Any
"""Bytes-like, a binary file object, a receipt, or an iterable of bytes-like and receipts."""


@value_class
class Destination:
    """How to write chunk files: rolled as this policy says, named after this offset, for this incarnation if known."""

    policy: RollingPolicy
    start: int = 0
    incarnation: str | None = None
    last: Last | None = None

    @staticmethod
    def of(header: Header | None, policy: RollingPolicy, appends: bool) -> Destination:
        """For data behind what a segment holds, or for a new content; without a header, by this policy."""
        if header is None or not appends:
            return Destination(policy if header is None else header.policy)
        return Destination(header.policy, header.length, header.segment, Last.of(header))


class Intake:
    """Takes the data of one operation on one segment, in order and in bounded memory.

    Parameters
    ----------
    path
        The segment.
    destination
        Called once, before the first chunk file is written; it may refuse by raising.
    staged
        Write everything into chunk files, under the names of staged chunks.

    Attributes
    ----------
    uploads : Uploads
        The chunk files that are complete and not committed.
    share : Share
        What it holds in memory.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        destination: Callable[[], Awaitable[Destination]],
        share: Share,
        *,
        staged: bool = False,
    ) -> None:
        self.path = path
        self.share = share
        self.size = 0
        self._backend = store.backend
        self._chunks = store.chunks
        self._destination = destination
        self._known: Destination | None = None
        self._small_max = 0 if staged else SMALL_BYTES_MAX
        self._staged = staged
        self._items: list[bytes | Stored] = []
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writer: ChunkWriter | None = None
        self.uploads = Uploads(store.chunks, path)
        self._receipts: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taken, or all of it has been handed on."""
        return not (self._items or self._pending or self._writer)

    @property
    def is_streaming(self) -> bool:
        """Whether bytes are on their way to the store."""
        return self._writer is not None

    async def taking(self, data: Data | Intake) -> Intake:
        """Return this intake once it has taken the data; or the data, if an intake has taken it already."""
        if isinstance(data, Intake):
            return data
        await self.take(data)
        return self

    async def take(self, data: Data) -> None:
        """Take all of the data; if that fails, remove the uploaded files.

        Raises
        ------
        TypeError
            It is text, or of a type that cannot be written.
        ValueError
            A receipt is for another segment, or comes twice.
        """
        try:
            if (view := as_bytes(data)) is not None:
                await self.put(view)
            elif isinstance(data, Staged):
                await self._receive(data)
            else:
                await self._take_pieces(pieces(data), isinstance(data, list | tuple))
        except BaseException as error:
            await self._give_up(error)
            raise

    async def _take_pieces(self, source: Iterator[memoryview | Staged | Stored], is_at_hand: bool) -> None:
        batches = _batches(source)
        # the caller's own code may block, or call a filesystem that lives on this very loop
        is_elsewhere = self._backend.is_async and not is_at_hand
        while True:
            batch = await asyncio.to_thread(next, batches, None) if is_elsewhere else next(batches, None)
            if batch is None:
                return
            if isinstance(batch, Staged):
                await self._receive(batch)
            elif isinstance(batch, Stored):
                await self._end_run()
                self._items.append(batch)
            else:
                for view in batch:
                    await self.put(view)

    async def put(self, view: memoryview) -> None:
        """Take some bytes; they may be reused by the caller after the call."""
        for start in range(0, len(view), PART_BYTES) or [0]:
            part = view[start : start + PART_BYTES]
            if part:
                await self.share.take(len(part), self.spill)
            is_small = self._pending_bytes + len(view) - start <= self._small_max
            if self._writer is None and is_small:
                self._keep(part)
            else:
                writer = self._writer or await self._begin()
                await writer.write(part)
                self.share.set(writer.held_bytes)
            self.size += len(part)

    def _keep(self, view: memoryview) -> None:
        if len(view):
            self._pending.append(frozen(view))
            self._pending_bytes += len(view)

    async def _begin(self) -> ChunkWriter:
        if self._known is None:
            self._known = await self._destination()
        start = self._known.start + self.size - self._pending_bytes
        self._writer = ChunkWriter(
            self._backend,
            self.path,
            self._known.policy.max_bytes,
            start=start,
            incarnation=self._known.incarnation,
            last=self._known.last,
            staged=self._staged,
            clock=self._chunks.clock,
        )
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for data in pending:
            await self._writer.write(data)
        return self._writer

    async def _receive(self, receipt: Staged) -> None:
        if self._staged:
            raise TypeError(f"{self.path}: a receipt is staged already; append it")
        check_receipt(self.path, receipt)
        if receipt.id in self._receipts:
            raise ValueError(f"{self.path}: one staged receipt comes twice in this call; its records would be doubled")
        self._receipts.add(receipt.id)
        await self._end_run()
        self._items += receipt.chunks
        self.size += receipt.size

    async def _end_run(self) -> None:
        if self._pending:
            self._items.append(b"".join(self._pending))
            self._pending, self._pending_bytes = [], 0
        if self._writer is not None:
            stored = await self._writer.finish()
            self.uploads.add(stored)
            self._items += stored
            self._writer = None

    async def spill(self, data: bytes = b"") -> None:
        """Write what is held in memory as chunk files, and more data behind it; what comes next begins others.

        This asks for no room: it is how others get some.
        """
        try:
            if (self._pending or data) and self._writer is None:
                await self._begin()
            if self._writer is not None:
                await self._writer.write(data)
                self.size += len(data)
            await self._end_run()
        except BaseException as error:
            await self._give_up(error)
            raise
        self.share.close()

    async def flush(self) -> None:
        """Make the taken data durable."""
        try:
            await self._end_run()
        except BaseException as error:
            await self._give_up(error)
            raise

    async def finish(self) -> Sequence[bytes | Stored]:
        """Make everything durable and hand it on; the intake is empty then, and may take more."""
        await self.flush()
        items, self._items = self._items, []
        self._receipts.clear()
        return items

    async def abort(self) -> None:
        """Remove the uploaded files, and forget the taken data."""
        writer, self._writer = self._writer, None
        self._items, self._pending, self._pending_bytes = [], [], 0
        self.share.close()
        if writer is not None:
            await writer.abort()
        await self.uploads.delete()

    async def abort_open(self) -> None:
        """Give up the chunk being written; this takes no lock, so that garbage collection may do it."""
        if self._writer is not None:
            await self._writer.abort_open()

    async def _give_up(self, error: BaseException) -> None:
        """Remove the uploaded files; replace an error that does not say what is true now."""
        try:
            await self.abort()
        except OSError as second:
            error.add_note(f"{self.path}: removing the uploaded files failed as well, collect() will: {second}")
        if isinstance(error, TypeError):
            raise TypeError(f"{self.path}: {error}; nothing was written") from error
        if isinstance(error, OSError) and not isinstance(error, TELLING):
            raise not_committed(error, self.path) from error


def as_bytes(data: Any) -> memoryview | None:
    """A flat view of anything bytes-like (arrays of numbers too); None for anything else.

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
    """Whether data stays in memory, so that taking it waits for nothing."""
    if type(data) is bytes:
        return len(data) <= SMALL_BYTES_MAX
    if isinstance(data, str):
        return True  # it will be refused at once
    view = as_bytes(data)
    return view is not None and len(view) <= SMALL_BYTES_MAX


def pieces(data: Data) -> Iterator[memoryview | Staged | Stored]:
    """What a file object or an iterable yields, checked.

    Raises
    ------
    TypeError
        It is neither, or yields text or something else.
    """
    if hasattr(data, "read"):
        return _read(data)
    if not isinstance(data, Iterable):
        raise TypeError(
            f"cannot write {type(data).__name__}: give bytes, a binary file, a receipt or an iterable of them"
        )
    return _checked(data)


def _read(file: Any) -> Iterator[memoryview]:
    while True:
        data = file.read(PIECE_BYTES)
        view = as_bytes(data)
        if view is None:
            raise TypeError(f"a file to be written gave {type(data).__name__}; open it in binary mode")
        if not view:
            return
        yield view


def _checked(data: Iterable[Any]) -> Iterator[memoryview | Staged | Stored]:
    for item in data:
        if isinstance(item, Staged | Stored):
            yield item
            continue
        view = as_bytes(item)
        if view is None:
            raise TypeError(f"cannot write {type(item).__name__} from an iterable: give bytes or receipts of stage()")
        yield view


def _batches(source: Iterator[memoryview | Staged | Stored]) -> Iterator[list[memoryview] | Staged | Stored]:
    """Pieces gathered up to `PIECE_BYTES`, so that not every small one costs a hop to a thread."""
    batch: list[memoryview] = []
    size = 0
    for piece in source:
        if not isinstance(piece, memoryview):
            if batch:
                yield batch
            batch, size = [], 0
            yield piece
            continue
        # the caller may reuse a buffer before the batch is full, so it is copied
        batch.append(piece if isinstance(piece.obj, bytes) else memoryview(bytes(piece)))
        size += len(piece)
        if size >= PIECE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def check_receipt(path: str, receipt: Staged) -> None:
    """Refuse a receipt for another segment.

    Raises
    ------
    ValueError
        It is one.
    """
    if receipt.path != path:
        raise ValueError(f"a receipt staged for {receipt.path} cannot be committed to {path}")


def new_receipt(path: str, chunks: Sequence[bytes | Stored]) -> Staged:
    """The receipt for chunks that were staged."""
    stored = tuple(chunk for chunk in chunks if isinstance(chunk, Stored))
    assert len(stored) == len(chunks), "an intake that stages keeps nothing in memory"
    return Staged(path, stored, uuid.uuid4().hex)
