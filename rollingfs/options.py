"""From the options of a filesystem to the backend below it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.policy import INLINE_BYTES_DEFAULT, MAX_BYTES_DEFAULT, RollingPolicy

FSSPEC_OPTIONS = frozenset(
    {
        "asynchronous",
        "batch_size",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""What fsspec itself gives to any filesystem."""

S3_PROTOCOLS = frozenset({"s3", "s3a"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where the segments lie, as the caller says it: by protocol and options, by filesystem, or by backend."""

    protocol: str | None = None
    options: Mapping[str, Any] | None = None
    fs: AbstractFileSystem | None = None
    backend: Backend | None = None
    sync: bool = True
    single_writer: bool = False
    asynchronous: bool = False
    loop: Any = None
    max_concurrency: int | None = None

    def open(self) -> Backend:
        """The backend.

        Raises
        ------
        ValueError
            No target, or more than one; a `max_concurrency` that the backend cannot have.
        ImportError
            The target is S3 and s3fs is not installed.
        """
        given = [
            name
            for name, value in (("target_protocol", self.protocol), ("fs", self.fs), ("backend", self.backend))
            if value is not None
        ]
        if not given:
            raise ValueError(
                "rolling needs a target: open 'rolling::s3://bucket/x' or 'rolling::file:///data/x', "
                "or give target_protocol='s3' (or 'file', 'memory', ...) with target_options, or fs=..."
            )
        if len(given) > 1:
            raise ValueError(f"rolling needs one target, but {' and '.join(given)} are given: leave out all but one")
        if self.backend is not None:
            if self.max_concurrency is not None:
                raise ValueError("max_concurrency cannot be set for a backend that is given: set its own requests_max")
            return self.backend
        fs = self.fs if self.fs is not None else self._filesystem()
        return adapt(fs, sync=self.sync, single_writer=self.single_writer, max_concurrency=self.max_concurrency)

    def _filesystem(self) -> AbstractFileSystem:
        protocol = self.protocol or ""
        if protocol in S3_PROTOCOLS:
            require_s3fs()
        options = dict(self.options or {})
        if getattr(fsspec.get_filesystem_class(protocol), "async_impl", False):
            # zarr and others tell the outermost filesystem only on whose loop it will be used
            if self.asynchronous:
                options.setdefault("asynchronous", True)
            if self.loop is not None:
                options.setdefault("loop", self.loop)
        return fsspec.filesystem(protocol, **options)


def require_s3fs() -> None:
    """Refuse S3 where its client is missing, and say what to install.

    Raises
    ------
    ImportError
        s3fs is not installed.
    """
    try:
        import s3fs  # noqa: F401 - only to see whether it is there
    except ImportError as error:
        raise ImportError("segments on S3 need s3fs: pip install 'rollingfs[s3]'") from error


def adapt(
    fs: AbstractFileSystem, *, sync: bool = True, single_writer: bool = False, max_concurrency: int | None = None
) -> Backend:
    """The adapter for a filesystem, which itself is not altered.

    Raises
    ------
    ValueError
        The filesystem is a rolling one, or has fewer connections than `max_concurrency`.
    """
    if "rolling" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        raise ValueError("the target of rolling is itself a rolling filesystem: name the filesystem below it")
    if isinstance(fs, LocalFileSystem):
        return LocalBackend(sync=sync)
    if isinstance(fs, MemoryFileSystem):
        return MemoryBackend(fs)
    s3fs = sys.modules.get("s3fs")  # its filesystems exist only where it is imported
    if s3fs is not None and isinstance(fs, s3fs.S3FileSystem):
        from rollingfs.backend.s3 import S3Backend

        return S3Backend(fs, max_concurrency)
    backend = GenericBackend(fs, single_writer=single_writer)
    if max_concurrency is not None:
        backend.requests_max = max_concurrency
    return backend


def make_policy(
    policy: RollingPolicy | None,
    max_bytes: int | str | None,
    max_age: float | str | None,
    inline_bytes: int | str | None,
) -> RollingPolicy:
    """The policy of new segments, from a policy or from its three numbers.

    Raises
    ------
    ValueError
        Both are given, or a number is out of its range.
    """
    numbers = (max_bytes, max_age, inline_bytes)
    if policy is None:
        return RollingPolicy(
            MAX_BYTES_DEFAULT if max_bytes is None else max_bytes,
            max_age,
            INLINE_BYTES_DEFAULT if inline_bytes is None else inline_bytes,
        )
    if any(number is not None for number in numbers):
        raise ValueError("give either policy= or max_bytes=, max_age=, inline_bytes=, not both")
    return policy


def take_target_options(protocol: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Remove from `options` what stands under the backend's name, as in ``s3={"key": …}``."""
    protocols = ((protocol,) if protocol else ()) + (tuple(S3_PROTOCOLS) if protocol in S3_PROTOCOLS else ())
    found: dict[str, Any] = {}
    for name in dict.fromkeys(protocols):
        nested = options.pop(name, None)
        if nested is not None:
            found |= nested
    return found


def refuse_unknown(options: Mapping[str, Any], known: frozenset[str], protocol: str | None) -> None:
    """Refuse options that nobody would look at.

    Raises
    ------
    TypeError
        With the names of the unknown options (not their values, which may be secret) and of those there are.
    """
    unknown = sorted(options.keys() - FSSPEC_OPTIONS)
    if not unknown:
        return
    backend = protocol or "s3"
    raise TypeError(
        f"rolling has no option {', '.join(map(repr, unknown))}; it has {', '.join(sorted(known))}. "
        f"Options of the backend go under its name: {backend}={{...}}, or target_options={{...}}"
    )
