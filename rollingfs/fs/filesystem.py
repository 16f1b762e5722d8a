"""`RollingFileSystem`, the filesystem that users of fsspec see: `rolling`, over another filesystem."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import fsspec.asyn
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.chained import ChainedFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS
from rollingfs.folders.folders import above
from rollingfs.folders.listing import REPORT
from rollingfs.fs import (
    arguments,
    cat_and_get,
    folder_operations,
    methods,
    opening,
    patterns,
    queries,
    segment_verbs,
    transfers,
    upkeep_verbs,
)
from rollingfs.fs.binding import Binding
from rollingfs.fs.core import MEMORY_BYTES_DEFAULT, Core, Tuning, without_scheme
from rollingfs.fs.methods import both, in_order, name_for_users
from rollingfs.fs.target import Configured, open_target, take_store_options, with_tiers
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.system import Clock
from rollingfs.segment.at import COMMIT_TIMEOUT_S, HEADER_CACHE_S, At
from rollingfs.segment.write.budget import WRITE_MEMORY_BYTES_DEFAULT

if TYPE_CHECKING:
    from rollingfs.fs.stream_handle import Stream
    from rollingfs.show.metrics import Metrics


class RollingFileSystem(AsyncFileSystem, ChainedFileSystem, metaclass=Configured):
    """Segments over another filesystem: files that can be appended to, sealed, truncated and joined.

    Name the target, the filesystem below, by URL (``rolling::s3://bucket/events``), by `target_protocol` and
    `target_options`, or by `fs`. Every method takes full URLs. Instances are shared by threads, survive a fork, and
    may be pickled; each process is a writer of its own.

    Parameters
    ----------
    target_protocol
        The protocol of the target: ``"s3"``, ``"file"``, ``"memory"``, ...
    target_options
        Its options; or give them under its name, ``s3={"anon": True}``, or directly if it is over no other filesystem.
    fs
        The target itself; it is not altered.
    backend
        An adapter for a store that fsspec does not know (`rollingfs.backend.Backend`).
    policy
        When segments made by this instance roll; `max_bytes`, `max_age` and `inline_bytes` give the same separately.
    header_cache_s
        Seconds for which a read uses a header that was seen, without asking for a newer header. By default 0: a read
        sees all that was acknowledged before it began, whoever wrote it.
    commit_timeout_s
        After how many seconds of conflicts and failures a commit gives up, and of failures a read, listing or upload.
    tiers
        Stores for chunks that are seldom read, for `offload`, by alias: the URL of a folder of their own, or a mapping
        with `root`, `protocol` and `options`.
    offload_policy
        Chunks that move to a tier by ``stream.offload()`` and ``rollingfs run``, where neither a segment nor its
        folder has a policy; an `OffloadPolicy`, or a mapping of its fields.
    sync
        On a local disk: committed bytes survive a loss of power, not only the death of the process.
    single_writer
        Your word that no other client writes, for a filesystem without atomic writes.
    probe_cache
        Whether processes of this user note in the user's cache folder that a store passed its probe, which holds 30
        days; or another local file or folder, of this user only.
    append_via
        The URL of a `rollingfs serve` near this process, and of the folder that it serves:
        ``http://127.0.0.1:9870/bucket/logs``. Appends by path of up to 256 KiB, without conditions and attributes, go
        through it, and share commits with other processes.
    absolute
        Positions are segment offsets: in `open`, `cat_file`, `cat_ranges`, and as the ``size`` of infos. An offset that
        is kept outside stays right when the head of the segment is truncated; bytes that are gone raise
        `SegmentTruncatedError`. Otherwise positions count from the first retained byte.
    max_write_memory
        The bytes (or text like ``"256MiB"``) that all open writers and appends hold together; at least 8 MiB.
    clock
        The wall clock, seconds since 1970.
    max_concurrency
        Requests for data that a read, `cat_ranges` or open file makes at once; by default the store's choice.
    prefetch
        Whether a file that is read from front to back is fetched ahead of its reader.
    max_memory
        Bytes fetched ahead that an open file may hold, as a number or as text like ``"64MiB"``.
    block_size, cache_type, cache_options
        Ignored, as by fsspec's own filesystems: `fsspec.open` gives them to the filesystem and not to `open`.

    Raises
    ------
    ValueError
        There is no target, or there are several. An option is out of range, or `max_concurrency` beyond the target's
        pool.
    TypeError
        Neither rolling nor the target has an option, or both have it and it is not clear which is meant.
    ImportError
        The client of the target is not installed.
    """

    protocol: ClassVar[str | tuple[str, ...]] = "rolling"
    root_marker = ""
    target_default: ClassVar[str | None] = None
    """The target of an alias scheme like ``rolling+s3``."""

    # the path in a chained URL is not an option: with it, every URL would make an instance that is cached for ever
    # and so are the options that `fsspec.open` means for `open`, and gives here
    _strip_tokenize_options = ("fo", "block_size", "cache_type", "cache_options")

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
        *,
        backend: Backend | None = None,
        policy: RollingPolicy | None = None,
        max_bytes: int | str | None = None,
        max_age: float | str | None = None,
        inline_bytes: int | str | None = None,
        header_cache_s: float = HEADER_CACHE_S,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
        tiers: Mapping[str, Any] | None = None,
        offload_policy: OffloadPolicy | Mapping[str, Any] | None = None,
        sync: bool = True,
        single_writer: bool = False,
        probe_cache: str | os.PathLike[str] | bool = True,
        append_via: str | None = None,
        absolute: bool = False,
        max_write_memory: int | str = WRITE_MEMORY_BYTES_DEFAULT,
        clock: Clock = time.time,
        max_concurrency: int | None = None,
        prefetch: bool = True,
        max_memory: int | str = MEMORY_BYTES_DEFAULT,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        fo: str | None = None,
        block_size: int | str | None = None,
        cache_type: str | None = None,
        cache_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if target_protocol is None and fs is None and backend is None:
            target_protocol = self.target_default
        self._target = target_protocol or type(fs or backend).__name__
        shared = {"max_concurrency": max_concurrency}
        store_options = take_store_options(target_protocol, target_options, options, OPTIONS, shared)
        arguments.check_switches(sync=sync, single_writer=single_writer, absolute=absolute)
        arguments.check_seconds(**(seconds := {"header_cache_s": header_cache_s, "commit_timeout_s": commit_timeout_s}))
        cache = probe_cache if isinstance(probe_cache, bool) else arguments.local_path(probe_cache=probe_cache)
        tuning = Tuning(max_concurrency, prefetch, max_memory)
        rolling = arguments.make_policy(policy, max_bytes, max_age, inline_bytes)
        hot = open_target(
            target_protocol,
            store_options,
            fs,
            backend,
            sync=sync,
            single_writer=single_writer,
            asynchronous=asynchronous,
            loop=loop,
            max_concurrency=max_concurrency,
        )
        self._backend = with_tiers(hot, target_protocol, tiers, sync=sync, asynchronous=asynchronous)
        # "asynchronous" keeps fsspec from starting its event loop and thread, which a sync backend never needs
        super().__init__(asynchronous=True, batch_size=batch_size, **options)
        self.asynchronous = asynchronous
        # over a sync backend fsspec's own blocking methods call ours, and need no loop either
        self.mirror_sync_methods = self._backend.is_async and not asynchronous
        choices: dict[str, Any] = {**seconds, "probe_cache": cache, "clock": clock}
        choices["offload_policy"] = arguments.check_default(self._backend, offload_policy)
        choices["max_write_memory"] = max_write_memory
        self._client = At.of(self._backend, rolling, **choices)
        self._bridge = Bridge(self._backend, on_fork=self._client.after_fork)
        self._core = Core(self._client, self._bridge, self, tuning, batch_size, absolute=absolute)
        if append_via is not None:
            from rollingfs.fs.append_via import Via

            self._core.via = Via(append_via, self._client, commit_timeout_s)
        # the class has these two as well, for callers that know no target (fsspec's URLs, UPath)
        self._strip = self._strip_protocol = self._core.strip  # type: ignore[method-assign]
        self._parent = lambda path: above(self._client, self._strip(path))
        self._at = partial(Binding, self._core)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._target}>"

    info, _info = both(queries.info, of="_core")
    exists, _exists = both(queries.exists, of="_core")
    isfile, _isfile = both(queries.isfile, of="_core")
    isdir, _isdir = both(queries.isdir, of="_core")
    ls, _ls = both(queries.ls, of="_core")
    find, _find = both(queries.find, of="_core")
    du, _du = both(queries.du, of="_core")
    states, _states = both(queries.states, of="_core")
    get_policy, _get_policy = both(queries.get_policy, of="_core")
    streams, _streams = both(queries.streams, of="_core")
    created, _created = both(queries.created, of="_core")
    modified, _modified = both(queries.modified, of="_core")
    cat_file, _cat_file = both(cat_and_get.cat_file, of="_core")
    cat_ranges, _cat_ranges = both(cat_and_get.cat_ranges, of="_core")
    get_file, _get_file = both(cat_and_get.get_file, of="_core")
    expand_path, _expand_path = both(patterns.expand_path, of="_core", passes=(queries.find, cat_and_get.cat_file))
    glob, _glob = both(patterns.glob, of="_core", passes=(queries.find,))
    segment, _segment = both(opening.segment, of="_core")

    append, _append = both(segment_verbs.append, of="_at", path="path", takes=segment_verbs.take_append)
    stage, _stage = both(segment_verbs.stage, of="_at", path="path")
    seal, _seal = both(segment_verbs.seal, of="_at", path="path", commits=True)
    truncate, _truncate = both(segment_verbs.truncate, of="_at", path="path", commits=True)
    concat, _concat = both(segment_verbs.concat, of="_at", path="target", commits=True)
    roll, _roll = both(upkeep_verbs.roll, of="_at", path="path", commits=True)
    offload, _offload = both(upkeep_verbs.offload, of="_at", path="path", commits=True)
    onload, _onload = both(upkeep_verbs.onload, of="_at", path="path", commits=True)
    set_policy, _set_policy = both(upkeep_verbs.set_policy, of="_at", path="path", commits=True)
    create, _create = both(segment_verbs.create, of="_at", path="path", commits=True)
    overwrite, _overwrite = both(segment_verbs.overwrite, of="_at", path="path", takes=segment_verbs.take_overwrite)
    touch, _touch = both(segment_verbs.touch, of="_at", path="path", commits=True, held=methods.held_touch)
    pipe = methods.pipe
    pipe_file, _pipe_file = both(
        segment_verbs.pipe_file,
        of="_at",
        path="path",
        takes=segment_verbs.take_pipe_file,
        data="value",
        held=methods.held_pipe_file,
    )
    rebuild, _rebuild = both(folder_operations.rebuild, of="_core")
    export, _export = both(folder_operations.export, of="_core")

    collect, _collect = both(folder_operations.collect, of="_core")
    mkdir, _mkdir = both(folder_operations.mkdir, of="_core")
    makedirs, _makedirs = both(folder_operations.makedirs, of="_core")
    rmdir, _rmdir = both(folder_operations.rmdir, of="_core")
    rm_file, _rm_file = both(folder_operations.rm_file, of="_core", outside=True)
    rm, _rm = both(folder_operations.rm, of="_core", outside=True)
    mv_file, _mv_file = both(folder_operations.mv_file, of="_core", outside=True)
    mv, _mv = both(folder_operations.mv, of="_core", outside=True)

    cp_file, _cp_file = both(transfers.cp_file, of="_core", outside=True)
    put_file, _put_file = both(transfers.put_file, of="_core", held=methods.held_put_file)
    copy, _copy = both(transfers.copy, of="_core", passes=(transfers.cp_file,), outside=True)
    get, _get = both(transfers.get, of="_core", passes=(cat_and_get.get_file,))
    put, _put = both(transfers.put, of="_core", passes=(transfers.put_file,), held=methods.held_put)
    # fsspec orders the arguments of these differently
    _copy = in_order(_copy, "path1", "path2", "recursive", "on_error", "maxdepth", "batch_size")
    _put = in_order(_put, "lpath", "rpath", "recursive", "callback", "batch_size", "maxdepth")

    transaction_type, start_transaction = methods.Transaction, methods.start_transaction

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return the path in a URL, before the target is known; each instance knows better (`core.strip`)."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return cls._strip_default(without_scheme(path))

    @classmethod
    def _strip_default(cls, path: str) -> str:
        """Return the path of a URL without its scheme, as the target of this class of filesystems writes the path."""
        return path.rstrip("/") or path[:1]

    async def close(self) -> None:
        """Close the connections of this filesystem and of its tiers; a later verb opens new connections.

        For a filesystem with ``asynchronous=True``, before its event loop ends; ``async with`` closes it, too. A
        blocking filesystem needs no close.
        """
        await self._bridge.arun(self._backend.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def unstrip_protocol(self, name: str) -> str:
        """Return the full URL of a path: ``rolling://bucket/x``."""
        scheme = self.protocol if isinstance(self.protocol, str) else self.protocol[0]
        return f"{scheme}://{self._strip(name)}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which fsspec's own blocking methods run; None with ``asynchronous=True``."""
        if self.asynchronous:
            return None
        self._bridge.check_process()
        self._bridge.check_running()
        loop: asyncio.AbstractEventLoop = getattr(self._backend, "loop", None) or fsspec.asyn.get_loop()
        return loop

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file; modes, text and compression are as in fsspec.

        Parameters
        ----------
        mode
            ``"rb"``, ``"wb"``, ``"xb"`` (the name must be free), ``"ab"`` (creates what is missing), or these for text.
        compression
            The name of a codec, or ``"infer"`` to choose it by the path.

        Other Parameters
        ----------------
        absolute : bool
            For reading: positions are segment offsets, rather than counted from the first retained byte.
        follow : bool
            For reading: the file goes on as the segment grows, and ends when the segment is sealed.
        verify : bool
            For reading: the file reads each chunk whole, and verifies it before it returns any of its bytes. Otherwise
            it verifies a chunk when it has read the last of its bytes.
        max_concurrency : int
            For reading: as for the filesystem, for this file, and at most the filesystem's.
        prefetch : bool
            For reading: as for the filesystem, for this file.
        max_memory : int | str
            For reading: as for the filesystem, for this file.
        attrs : dict[str, str | None]
            For writing: attributes that the first commit sets.
        owner : str
            For ``"ab"``: hold the segment exclusively until the file is closed.
        commit_on : str | int | Iterable[str | int]
            For writing: the file commits by itself, at ``"flush"``, after bytes (``65536``, ``"64KiB"``), lines
            (``"line"``, ``"100 lines"``) or a time (``"5s"``); of several, whichever comes first.

        Raises
        ------
        FileNotFoundError
            For reading: there is no such file.
        FileExistsError
            With ``"xb"``: something is there.
        ValueError
            There is no such mode. A tuning is out of range. An option of reading is given for writing, or an option of
            writing for reading. Streams of the codec do not join, and the mode is ``"ab"``.
        TypeError
            `open` has no such option.
        """
        if mode == "rb" and compression is None:
            return self._open(path, mode, block_size, cache_options=cache_options, **kwargs)
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        options = {"block_size": block_size, "cache_options": cache_options, **kwargs}
        return methods.open_to_write(self, path, mode, compression, options)

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> opening.AsyncFile:
        """Open a binary file whose `read`, `write` and `close` are awaited, on any event loop.

        Parameters
        ----------
        mode
            ``"rb"``, ``"wb"``, ``"xb"`` or ``"ab"``, as for `open`.

        Raises
        ------
        FileNotFoundError, FileExistsError
            The same as in `open`.
        ValueError
            There is no such mode.
        """
        if kwargs.get("compression"):
            raise ValueError(f"{path}: open_async knows no compression: use open")
        opening.check_known(path, kwargs, "open_async")
        if mode != "rb":
            methods.check_outside(self, "open_async", path)
        return await opening.open_async(self._core, path, mode)

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Refuse, by `NotImplementedError`: a signed URL is of a single file, and a segment is several."""
        raise NotImplementedError(
            f"{path}: a signed URL is of one file, and a segment is several: export() it, and sign the URL of the copy "
            "by the filesystem of its store"
        )

    def _open(self, path: str, mode: str = "rb", block_size: int | str | None = None, **options: Any) -> Any:
        return opening.open_file(self._core, path, mode, block_size=block_size, **options)

    def stream(self, path: str, on_error: str = REPORT) -> Stream:
        """Return a handle on the segments of a folder, to cut, trim and bound them together; it sends no request.

        Parameters
        ----------
        on_error
            Treatment of a segment that cannot be read: ``"report"`` it and go on with the others, or
            ``"raise"`` the error.
        """
        return opening.stream(self._core, path, on_error)

    def metrics(self) -> Metrics:
        """Return the work of this filesystem in this process so far: counts, bytes and times; it sends no request."""
        from rollingfs.show.metrics import Metrics

        return Metrics.of(self._client.meters)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the header of a segment; without a path, or if no header of that path is known, forget all."""
        segment = None if path is None else self._strip(path)
        self._client.headers.forget(segment if segment and self._client.headers.seen(segment) else None)
        super().invalidate_cache(path)


name_for_users(RollingFileSystem, "RollingFileSystem")

_signature = inspect.signature(RollingFileSystem.__init__)
_OF_FSSPEC = {"self", *RollingFileSystem._strip_tokenize_options}
OPTIONS = frozenset(_signature.parameters) - _OF_FSSPEC - {"options"} - FSSPEC_OPTIONS
"""The options that are rolling's own."""
# fsspec's metaclass would show (*args, **kwargs) for the class
RollingFileSystem.__signature__ = _signature.replace(
    parameters=[one for name, one in _signature.parameters.items() if name not in _OF_FSSPEC]
)
