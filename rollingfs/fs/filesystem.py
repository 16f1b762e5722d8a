"""The filesystem that fsspec's users see: `rolling`, over any other."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, ClassVar

import fsspec.asyn
from fsspec import AbstractFileSystem
from fsspec.core import get_compression
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.utils import stringify_path

from rollingfs.backend.contract import Backend
from rollingfs.client import COMMIT_TIMEOUT_S, HEADER_CACHE_S, Client
from rollingfs.folders.listing import REPORT, check_on_error
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments
from rollingfs.fs.methods import Methods
from rollingfs.fs.operations import Verbs
from rollingfs.fs.options import Target, make_policy, take_store_options
from rollingfs.fs.read_file import ReadFile
from rollingfs.fs.segment_handle import Segment
from rollingfs.fs.stream_handle import Stream
from rollingfs.fs.tail import open_follow
from rollingfs.fs.text_file import CompressedFile, TextFile
from rollingfs.fs.write_file import WriteFile
from rollingfs.policy import RollingPolicy
from rollingfs.read.tuning import MEMORY_BYTES_DEFAULT, Tuning
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.clock import Clock

PROTOCOL = "rolling"
WRITE_MODES = frozenset({"wb", "xb", "ab"})
OPTIONS = frozenset(
    {
        "backend",
        "clock",
        "commit_timeout_s",
        "fs",
        "header_cache_s",
        "inline_bytes",
        "max_age",
        "max_bytes",
        "max_concurrency",
        "max_memory",
        "policy",
        "prefetch",
        "single_writer",
        "sync",
        "target_options",
        "target_protocol",
    }
)


class RollingFileSystem(Methods, ChainedFileSystem):
    """Segments over any other filesystem: files that can be appended to, sealed, truncated and joined.

    Name the filesystem below by URL (``rolling::s3://bucket/events``), by `target_protocol` and
    `target_options`, or by `fs`. Every method takes full URLs. Instances are shared by threads, survive a fork, and
    may be pickled; each process is a writer of its own.

    Parameters
    ----------
    target_protocol
        Of the filesystem below: ``"s3"``, ``"file"``, ``"memory"``, ...
    target_options
        Its options. They may also stand under its name, as in ``s3={"anon": True}``, or by themselves, as in
        ``anon=True``, where the filesystem below lies over no other.
    fs
        The filesystem below itself; it is not altered.
    backend
        An adapter for a store that fsspec does not know (`rollingfs.backend.Backend`).
    policy
        When segments made by this instance roll; `max_bytes`, `max_age` and `inline_bytes` say the same one by one.
    header_cache_s
        For how many seconds a header that was seen is believed without asking; 0 to ask always.
    commit_timeout_s
        How many seconds a commit tries, against conflicts and failures, before it gives up.
    sync
        On a local disk: survive a loss of power as well, not only the death of the process.
    single_writer
        Your word that nobody else writes, for a filesystem without atomic writes.
    clock
        The wall clock, seconds since 1970.
    max_concurrency
        How many requests for data may be under way for one read, `cat_ranges` or open file; None for what suits the
        store: 32 on S3, whose pool gets at least twice as many connections.
    prefetch
        Whether files that are read from front to back are fetched ahead of their reader.
    max_memory
        How many bytes (or text like ``"64MiB"``) an open file may hold of what it fetched ahead.

    Raises
    ------
    ValueError
        No target, or more than one; a policy or a tuning out of range; more `max_concurrency` than the connections
        (``config_kwargs={"max_pool_connections": ...}``) that the target is given.
    TypeError
        An option that neither rolling nor the target has, or that both have and either may be meant.
    ImportError
        The target is S3 and s3fs is not installed.
    """

    protocol: ClassVar[str | tuple[str, ...]] = PROTOCOL
    root_marker = ""
    target_default: ClassVar[str | None] = None
    """The target of an alias scheme like ``rolling+s3``."""

    # the path in a chained URL is no option: with it, every URL would make an instance that is cached for ever
    _strip_tokenize_options = ("fo",)

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
        sync: bool = True,
        single_writer: bool = False,
        clock: Clock = time.time,
        max_concurrency: int | None = None,
        prefetch: bool = True,
        max_memory: int | str = MEMORY_BYTES_DEFAULT,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        fo: str | None = None,
        **options: Any,
    ) -> None:
        if target_protocol is None and fs is None and backend is None:
            target_protocol = self.target_default
        shared = {"max_concurrency": max_concurrency}
        store_options = take_store_options(target_protocol, target_options, options, OPTIONS, shared)
        arguments.check_switches(sync=sync, single_writer=single_writer)
        arguments.check_seconds(header_cache_s=header_cache_s, commit_timeout_s=commit_timeout_s)
        self._tuning = Tuning(max_concurrency, prefetch, max_memory)
        target = Target(
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
        rolling = make_policy(policy, max_bytes, max_age, inline_bytes)
        self._backend = target.open()
        # "asynchronous", lest fsspec starts its event loop and thread, which a sync backend never needs
        super().__init__(asynchronous=True, batch_size=batch_size, **options)
        self.asynchronous = asynchronous
        # over a sync backend fsspec's own blocking methods are made of ours, and need no loop either
        self.mirror_sync_methods = self._backend.is_async and not asynchronous
        # classes have these two as well, for callers that know no target (fsspec's URLs, UPath)
        self._strip_protocol = self._strip  # type: ignore[method-assign]
        self._parent = self._parent_of
        self._client = Client(
            self._backend, rolling, header_cache_s=header_cache_s, commit_timeout_s=commit_timeout_s, clock=clock
        )
        self._bridge = Bridge(self._backend, on_fork=self._client.after_fork)
        self._verbs = Verbs(self._client, self._strip)

    # -- names ---------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """The path in a URL, before the target is known; each instance knows better (`_strip`)."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = _without_scheme(stringify_path(path))
        return path.rstrip("/") or path[:1]

    def _strip(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._strip(one) for one in path]
        return self._backend.strip(_without_scheme(stringify_path(path)))

    def unstrip_protocol(self, name: str) -> str:
        """The full URL of a path: ``rolling://bucket/x``."""
        scheme = self.protocol if isinstance(self.protocol, str) else self.protocol[0]
        return f"{scheme}://{self._strip(name)}"

    def _parent_of(self, path: str) -> str:
        return self._verbs.folders.above(self._strip(path))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that fsspec's own blocking methods run on; None with ``asynchronous=True``."""
        if self.asynchronous:
            return None
        self._bridge.check_process()
        loop: asyncio.AbstractEventLoop = getattr(self._backend, "loop", None) or fsspec.asyn.get_loop()
        return loop

    # -- open files and segments ---------------------------------------------------------------------------

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file; modes, text and compression are fsspec's.

        Parameters
        ----------
        mode
            ``"rb"``, ``"wb"``, ``"xb"`` (nothing may be there), ``"ab"`` (creates what is missing), or these for text.
        absolute : bool
            For reading: positions are segment offsets, rather than counted from the first retained byte.
        owner : str
            For ``"ab"``: hold the segment exclusively until the file is closed.
        max_concurrency, prefetch, max_memory
            For reading: as for the filesystem, for this file; `max_concurrency` not above the filesystem's.
        verify : bool
            For reading: chunks are read whole, and verified before any of their bytes is given. (Without it, a chunk
            is verified when the last of its bytes is read.)

        Raises
        ------
        FileNotFoundError
            For reading: there is no such file.
        FileExistsError
            ``"xb"``, and something is there.
        ValueError
            No such mode; a tuning out of range; an option of reading for writing, or of writing for reading.
        TypeError
            An option that there is not.
        """
        text = {key: kwargs.pop(key) for key in ("encoding", "errors", "newline") if "b" not in mode and key in kwargs}
        if "r" in mode or ("b" in mode and compression is None):
            return super().open(path, mode, block_size, cache_options, compression, **text, **kwargs)
        binary = mode if "b" in mode else mode.replace("t", "") + "b"
        codec = get_compression(path, compression)
        file = super().open(path, binary, block_size, cache_options, None, **kwargs)
        file = file if codec is None else CompressedFile(file, codec)
        return file if "b" in mode else TextFile(file, **text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        absolute: bool = False,
        owner: str | None = None,
        attrs: Mapping[str, str | None] | None = None,
        cache_type: str | None = None,
        follow: bool = False,
        max_concurrency: int | None = None,
        prefetch: bool | None = None,
        max_memory: int | str | None = None,
        verify: bool = False,
        **kwargs: Any,
    ) -> ReadFile | WriteFile | BufferedReader:
        path = self._strip(path)
        arguments.check_open_options(path, kwargs)
        tuning = self._tuning.with_given(max_concurrency=max_concurrency, prefetch=prefetch, max_memory=max_memory)
        if mode == "rb":
            if names.is_reserved(path):
                raise missing(path)
            if attrs is not None or owner is not None:
                raise ValueError(f"{path}: attrs and owner are for writing, not for mode {mode!r}")
            if follow and verify:
                raise ValueError(
                    f"{path}: what is followed is verified chunk by chunk as it comes; leave out verify=True"
                )
            if follow:
                return open_follow(self._client, self._bridge, path)
            return ReadFile(
                self,
                self._client,
                self._bridge,
                path,
                absolute=absolute,
                block_size=block_size,
                cache_type=cache_type,
                cache_options=cache_options,
                tuning=tuning,
                verify=verify,
            )
        if mode not in WRITE_MODES:
            raise ValueError(f"{path}: mode {mode!r} cannot be: a segment is opened by 'rb', 'wb', 'xb' or 'ab'")
        if tuning != self._tuning or verify or absolute or follow:
            raise ValueError(
                f"{path}: absolute, follow, max_concurrency, prefetch, max_memory and verify are for reading, not for "
                f"mode {mode!r}"
            )
        path = self._verbs.to_write(path)
        arguments.check_attrs(path, attrs)
        return WriteFile(self, self._client, self._bridge, path, mode, owner=owner, autocommit=autocommit, attrs=attrs)

    def segment(self, path: str) -> Segment:
        """A handle on one segment, which speaks segment offsets.

        Raises
        ------
        FileNotFoundError
            There is no such segment or file.
        """
        return self._bridge.run(self._open_segment(path))

    async def _segment(self, path: str) -> Segment:
        return await self._bridge.arun(self._open_segment(path))

    async def _open_segment(self, path: str) -> Segment:
        path = self._strip(path)
        if names.is_reserved(path):
            raise missing(path)
        return await Segment.open(self._client, self._bridge, path, self._strip)

    def stream(self, path: str, on_error: str = REPORT) -> Stream:
        """The segments directly in a folder, to be cut, trimmed and kept within bounds as one; asks nothing yet.

        Parameters
        ----------
        on_error
            What its methods do about segments that cannot be read: ``"report"`` them and go on with the others, or
            ``"raise"``.
        """
        found = check_on_error(on_error)
        return Stream(self._client, self._verbs.listings, self._bridge, self._strip(path), found)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the headers that were seen: of one segment, or of all where the path is no segment seen."""
        segment = None if path is None else self._strip(path)
        self._client.headers.forget(segment if segment and self._client.headers.seen(segment) else None)
        super().invalidate_cache(path)


class RollingS3FileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+s3://bucket/x``, for tools that know no chained URLs."""

    protocol = ("rolling+s3", "rolling+s3a")
    target_default = "s3"


class RollingLocalFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+file:///data/x``, for tools that know no chained URLs."""

    protocol = ("rolling+file", "rolling+local")
    target_default = "file"


class RollingMemoryFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+memory://x``, for tools that know no chained URLs."""

    protocol = "rolling+memory"
    target_default = "memory"


_SCHEME = re.compile(r"rolling(\+[a-z0-9]+)?(://|::)")


def _without_scheme(path: str) -> str:
    """A path without ``rolling://`` or ``rolling::`` (or an alias) before it."""
    match = _SCHEME.match(path)
    return path[match.end() :] if match else path
