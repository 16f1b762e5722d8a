"""Open files for reading and writing, also awaited ones, handles on segments, and streams."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from io import BufferedReader
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rollingfs.folders.listing import check_on_error
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments
from rollingfs.fs.arguments import WRITE_MODES, meant
from rollingfs.fs.binding import Binding, check_absent
from rollingfs.fs.core import Core
from rollingfs.fs.segment_verbs import touch
from rollingfs.segment.files.intakes import addition, replacement
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.create import overwrite
from rollingfs.segment.write.ingest import Data, Intake

if TYPE_CHECKING:
    from rollingfs.fs.read_file import ReadFile
    from rollingfs.fs.segment_handle import SegmentHandle
    from rollingfs.fs.stream_handle import Stream
    from rollingfs.fs.write_buffer import CommitOnGiven
    from rollingfs.fs.write_file import WriteFile

APPEND_OPTIONS = frozenset({"expected_attrs", "expected_offset"})
PASSED_OVER = frozenset({"buffering", "default_cache", "encoding", "errors", "fill_cache", "newline", "size"})
"""Options that users of fsspec give to any filesystem, and that have no meaning here."""


def open_file(
    core: Core,
    path: str,
    mode: str,
    *,
    block_size: int | str | None = None,
    autocommit: bool = True,
    cache_options: dict[str, Any] | None = None,
    absolute: bool | None = None,
    owner: str | None = None,
    attrs: arguments.Attrs = None,
    cache_type: str | None = None,
    follow: bool = False,
    max_concurrency: int | None = None,
    prefetch: bool | None = None,
    max_memory: int | str | None = None,
    verify: bool = False,
    commit_on: CommitOnGiven | None = None,
    **unknown: Any,
) -> ReadFile | WriteFile | BufferedReader:
    """Open a binary file; see `RollingFileSystem.open`."""
    path, tuning = core.strip(path), core.tuning
    is_absolute = core.absolute if absolute is None else absolute
    if unknown:
        check_known(path, unknown)
    if max_concurrency is not None or prefetch is not None or max_memory is not None:
        tuning = tuning.with_given(max_concurrency=max_concurrency, prefetch=prefetch, max_memory=max_memory)
    if mode in WRITE_MODES:
        if tuning != core.tuning or verify or follow:
            raise ValueError(
                f"{path}: follow, max_concurrency, prefetch, max_memory and verify are for reading, not "
                f"for mode {mode!r}"
            )
        path = core.to_write(path)
        arguments.check_attrs(path, attrs)
        from rollingfs.fs.write_file import WriteFile

        choices: dict[str, Any] = {"absolute": is_absolute, "autocommit": autocommit, "commit_on": commit_on}
        return WriteFile(core, path, mode, owner=owner, attrs=attrs, **choices)
    if mode != "rb":
        raise ValueError(f"{path}: there is no mode {mode!r}: open a segment by 'rb', 'wb', 'xb' or 'ab'")
    if names.is_reserved(path):
        raise missing(path)
    if attrs is not None or owner is not None or commit_on is not None:
        raise ValueError(f"{path}: attrs, commit_on and owner are for writing, not for mode {mode!r}")
    if follow and verify:
        raise ValueError(f"{path}: a followed file is verified chunk by chunk as it grows; leave out verify=True")
    if follow:
        from rollingfs.fs.tail import open_follow

        return open_follow(core, path)
    from rollingfs.fs.read_file import ReadFile

    return ReadFile(
        core,
        path,
        absolute=is_absolute,
        block_size=block_size,
        cache_type=cache_type,
        cache_options=cache_options,
        tuning=tuning,
        verify=verify,
    )


async def segment(core: Core, path: str) -> SegmentHandle:
    """Return a handle on a segment, which speaks segment offsets.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    """
    path = core.strip(path)
    if names.is_reserved(path) or names.is_listing(path):  # a handle could append to it
        raise missing(path)
    from rollingfs.fs.segment_handle import SegmentHandle

    return SegmentHandle(core, await core.client.headers.view(path, fresh=True))


def stream(core: Core, path: str, on_error: str) -> Stream:
    """Return the segments directly in a folder; see `RollingFileSystem.stream`."""
    from rollingfs.fs.stream_handle import Stream  # a tenth of the modules: most users open no stream

    return Stream(core, core.strip(path), check_on_error(on_error))


OPTIONS = frozenset(inspect.signature(open_file).parameters) - {"core", "path", "mode", "unknown"} | {"compression"}
"""The options of `RollingFileSystem.open`."""


def check_known(path: str, unknown: Iterable[str], verb: str = "open") -> None:
    """Refuse options that `open`, or another verb, does not have: a mistyped condition would be no condition.

    Raises
    ------
    TypeError
        With the option's name.
    """
    for name in unknown:
        if name not in PASSED_OVER:
            hint = "" if name in OPTIONS else meant(name, OPTIONS)
            why = "; append() takes it" if name in APPEND_OPTIONS else hint
            raise TypeError(f"{path}: {verb} has no option {name!r}{why}; nothing was written")


# -- files for `async with`: each reads a single snapshot, or writes a single commit ------------------------------


class AsyncFile:
    """A segment or plain file, open on any event loop; made by ``await fs.open_async(path, mode)``.

    All written bytes are committed by `close`, in a single commit; an exception in ``async with`` commits no byte.
    """

    def __init__(self, core: Core, path: str, mode: str) -> None:
        from rollingfs.fs.closing import tell_lost  # not before a file is open, and not in garbage collection

        self._tell_lost = tell_lost
        self.path, self.mode, self.closed = path, mode, False
        self.loc = 0
        self._core, self._client, self._bridge = core, core.client, core.bridge
        self._snapshot: Segment | None = None
        self._intake: Intake | None = None
        self._is_broken = False

    async def begin(self) -> AsyncFile:
        """Look at what is there, and make what `ab` needs, on the loop of the store."""
        if self.mode == "rb":
            self._snapshot = await self._client.headers.view(self.path, fresh=True)
        elif self.mode == "ab":
            await touch(Binding(self._core, self.path), truncate=False)
            self._intake = addition(self._client, self.path)
        else:
            if self.mode == "xb":
                await check_absent(self._client, self.path)
            self._intake = replacement(self._client, self.path, create_only=self.mode == "xb")
        return self

    @property
    def size(self) -> int | None:
        """The number of bytes retained in the snapshot; None for a file that is written."""
        return None if self._snapshot is None else self._snapshot.size

    def tell(self) -> int:
        """Return the position: what was read or written so far."""
        return self.loc

    async def read(self, length: int | None = -1) -> bytes:
        """Read `length` bytes, by default all that is left; fewer only at the end.

        Raises
        ------
        ValueError
            The file is closed, or open for writing.
        SegmentTruncatedError, FileNotFoundError, CorruptChunkError
            The same as in `read` of a file for reading.
        """
        self._check_open()
        if self._snapshot is None:
            raise ValueError(f"{self.path}: it is open for writing, by mode {self.mode!r}")
        left = max(0, self._snapshot.size - self.loc)
        count = left if length is None or length < 0 else min(length, left)
        start = self._snapshot.start + self.loc
        data = await self._bridge.arun(self._client.fetcher.read(self._snapshot, start, start + count))
        self.loc += len(data)
        return data

    async def write(self, data: Data) -> int:
        """Take bytes, in bounded memory; no byte is committed before `close`.

        Raises
        ------
        ValueError
            The file is closed, or open for reading.
        OSError
            The store failed, or an earlier write failed or was cancelled. No byte will be committed.
        """
        self._check_open()
        if self._intake is None:
            raise ValueError(f"{self.path}: it is open for reading")
        before = self._intake.size
        try:
            await self._bridge.arun(self._intake.take(data))
        except BaseException:  # cancelled, too: what was written before is gone, and later bytes must not follow a gap
            self._is_broken = True
            raise
        self.loc += self._intake.size - before
        return self._intake.size - before

    async def flush(self, force: bool = False) -> None:
        """Have no effect: only `close` commits."""

    async def close(self) -> None:
        """Commit the written bytes, or raise if a write failed or was cancelled; closing again has no effect."""
        if self.closed:
            return
        if self._is_broken:
            await self.discard()
            raise self._broken()
        self.closed = True
        if self._intake is not None:
            await self._bridge.arun(self._commit(self._intake))

    async def _commit(self, intake: Intake) -> None:
        if self.mode != "ab":
            await overwrite(self._client, self.path, intake, create_only=self.mode == "xb")
        elif intake.size:
            await append(self._client, self.path, intake)

    async def discard(self) -> None:
        """Close without committing."""
        if not self.closed:
            self.closed = True
            if self._intake is not None:
                await self._bridge.arun(self._intake.abort())

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.discard())

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and self._intake is not None and self.loc:
            self._tell_lost(self.path, self.loc, at_exit=False)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        if self._is_broken:
            raise self._broken()

    def _broken(self) -> OSError:
        return OSError(f"{self.path}: an earlier write of this file failed or was cancelled; nothing of it is written")


async def open_async(core: Core, path: str, mode: str) -> AsyncFile:
    """See `RollingFileSystem.open_async`."""
    if mode not in ("rb", *WRITE_MODES):
        raise ValueError(f"{path}: there is no mode {mode!r} for open_async: give 'rb', 'wb', 'xb' or 'ab'")
    path = core.strip(path) if mode == "rb" else core.to_write(path)
    return await core.arun(AsyncFile(core, path, mode).begin())
