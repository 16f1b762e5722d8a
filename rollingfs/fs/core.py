"""`core`: the way in for programs on top of a filesystem, like the command line and Spark's data source."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fsspec import AbstractFileSystem
from fsspec.utils import stringify_path

from rollingfs.backend.contract import Backend
from rollingfs.format import names
from rollingfs.policy import parse_bytes
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.values import cached, value_class
from rollingfs.segment.at import At

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from rollingfs.fs.append_via import Via
    from rollingfs.show.metrics import Attributes
    from rollingfs.stream.ledger import Ledgers


CONCURRENCY_MAX = 1024
MEMORY_BYTES_MIN = 1024 * 1024
MEMORY_BYTES_DEFAULT = 96 * 1024 * 1024
"""24 ranges of 4 MiB. A process grows by 143 to 170 MiB, with what obstore and the reader hold."""


@value_class
class Tuning:
    """Limits of reads of files.

    Parameters
    ----------
    max_concurrency
        Maximum number of requests for data at once, for one read, `cat_ranges` or open file (1 to 1024); None: the
        store's default, 64 on S3.
    prefetch
        Whether a file that is read from front to back is fetched ahead of its reader.
    max_memory
        Maximum number of bytes (or text like ``"64MiB"``; at least 1 MiB) that an open file has fetched ahead, on
        their way or waiting to be read; 96 MiB by default.

    Raises
    ------
    ValueError
        A value is out of its range.
    """

    max_concurrency: int | None = None
    prefetch: bool = True
    max_memory: int | str = MEMORY_BYTES_DEFAULT

    def __post_init__(self) -> None:
        limit = self.max_concurrency
        if limit is not None and (type(limit) is not int or not 1 <= limit <= CONCURRENCY_MAX):
            raise ValueError(f"max_concurrency is {limit!r}: it must be a number of requests, 1 to {CONCURRENCY_MAX}")
        if not isinstance(self.prefetch, bool):
            raise ValueError(
                f"prefetch is {self.prefetch!r}: it must be true or false; max_memory sets how much is fetched"
            )
        memory = parse_bytes(self.max_memory)
        if memory < MEMORY_BYTES_MIN:
            raise ValueError(f"max_memory is {memory}: it must be at least {MEMORY_BYTES_MIN} bytes")
        object.__setattr__(self, "max_memory", memory)

    @property
    def memory_bytes(self) -> int:
        """`max_memory` as a number."""
        assert isinstance(self.max_memory, int)
        return self.max_memory

    def with_given(self, **given: Any) -> Tuning:
        """Return the values with the given values that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


T = TypeVar("T")
SCHEME = "rolling"
_SCHEME = rf"{SCHEME}(\+?[a-z0-9]+)?(://|::)"


def without_scheme(path: str | os.PathLike[str]) -> str:
    """Return a path without ``rolling://`` or ``rolling::`` (or an alias) before it."""
    text: str = stringify_path(path)
    match = re.match(_SCHEME, text)
    return text[match.end() :] if match else text


def strip(backend: Backend, path: Any) -> Any:
    """Return the backend's own path of a URL or path, or of each in a list."""
    if isinstance(path, str) and not path.startswith(SCHEME):
        return backend.strip(path)
    if isinstance(path, list):
        return [strip(backend, one) for one in path]
    return backend.strip(without_scheme(path))


class Core:
    """The base of a program on top of a filesystem, where the filesystem has no verb for it.

    The coroutines of `client` work on paths of the backend (see `strip`), and run by `run` or `arun`. They are not as
    stable as the verbs of the filesystem: a release may change them.

    Parameters
    ----------
    client
        The operations on segments, and what the filesystem knows of their headers.
    bridge
        Runs coroutines for callers of every kind.
    fs
        The filesystem; None for a client without a filesystem.
    tuning
        Options of reads, unless the call that opens them has others.
    batch_size
        Maximum files that a copy of several has under way; -1 for all.
    absolute
        Positions are segment offsets, and do not change when the head of a segment is truncated.
    """

    def __init__(
        self,
        client: At,
        bridge: Bridge,
        fs: AbstractFileSystem | None = None,
        tuning: Tuning | None = None,
        batch_size: int | None = None,
        *,
        absolute: bool = False,
    ) -> None:
        self.client = client
        """The operations on segments, as coroutines."""
        self.bridge = bridge
        """Runs coroutines of the client for callers of every kind."""
        self.fs = fs
        """The filesystem; None for a client without a filesystem."""
        self.backend: Backend = client.backend
        """The store, as `rollingfs.backend.Backend`; its calls are counted."""
        self.strip = partial(strip, cast(Backend, bridge.backend))
        """Finds the backend's own path of a URL or path, or of each in a list."""
        self.tuning = tuning or Tuning()
        """Options of reads."""
        self.absolute = absolute
        """Whether positions are segment offsets."""
        self.via: Via | None = None
        """The way of small appends through a server, if the user chose a server."""
        self.batch_size = batch_size
        """Maximum files that a copy of several has under way."""

    @cached
    def ledgers(self) -> Ledgers:
        """The policies of folders for looks at states; each look knows the answers of the look before."""
        from rollingfs.stream.ledger import Ledgers

        return Ledgers(self.client)

    @property
    def target(self) -> str:
        """The protocol of the store, or the name of its class."""
        target: str = getattr(self.fs, "_target", type(self.client.backend).__name__)
        return target

    @property
    def is_async(self) -> bool:
        """Whether the store's calls are awaited, so that several of them can be under way."""
        return self.bridge.is_async

    def run(self, coroutine: Coroutine[Any, Any, T], *, commits: str | None = None) -> T:
        """Run a coroutine of the client to its end.

        Parameters
        ----------
        commits
            The path of the segment that the coroutine commits to, if any: then the error of Ctrl-C has the outcome of
            the commit.
        """
        return self.bridge.run(coroutine, commits=commits)

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client for an async caller on any loop, without blocking that loop."""
        return await self.bridge.arun(coroutine)

    def to_write(self, path: str) -> str:
        """Return the backend's path of a segment, before a change.

        Raises
        ------
        ValueError
            A segment cannot have this name.
        IsADirectoryError
            It is a bucket.
        """
        path = names.check_new_name(self.strip(path))
        if "/" not in path and self.client.contents.is_top(path):
            why = f"It is a bucket, not a segment: name a key in it, as in {path}/events; nothing was written"
            raise IsADirectoryError(errno.EISDIR, why, path)
        return path


def core(fs: AbstractFileSystem) -> Core:
    """Return the base of a program on top of a filesystem.

    Raises
    ------
    TypeError
        It is not a `RollingFileSystem`.
    """
    found = getattr(fs, "_core", None)
    if not isinstance(found, Core):
        raise TypeError(f"{type(fs).__name__} is not a RollingFileSystem, so it has no core")
    return found


def observe(fs: AbstractFileSystem, meter: Meter | None = None, attributes: Attributes | None = None) -> None:
    """Let OpenTelemetry export what a filesystem counts. A second call for the same filesystem and meter has no effect.

    The filesystem counts as before; the exporter's thread adds up when it exports.

    Parameters
    ----------
    fs
        The filesystem.
    meter
        Maker of the instruments; by default a meter of OpenTelemetry's global provider.
    attributes
        Attributes of all its values; by default `target`, the protocol of the store. Filesystems with the same
        attributes are added up.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed: ``pip install 'rollingfs[otel]'``.
    """
    from rollingfs.show.metrics import export

    below = core(fs)
    export(below.client.meters, meter, {"target": below.target} if attributes is None else attributes)
