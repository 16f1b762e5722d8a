"""Append, seal, truncate and zero-copy concat for logs on any object store."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from fsspec import register_implementation

if TYPE_CHECKING:
    from rollingfs.chunks import Staged
    from rollingfs.cuts import StreamCut
    from rollingfs.errors import (
        AppendInterrupted,
        AppendOutcomeUnknown,
        AttributeMismatchError,
        BadOffsetError,
        CommitTimeoutError,
        ConflictError,
        CorruptChunkError,
        CorruptHeaderError,
        FencedError,
        FolderOccupiedError,
        LockedError,
        RollingError,
        SegmentNotSealedError,
        SegmentSealedError,
        SegmentTruncatedError,
        StagedExpiredError,
        UnsafeBackendError,
    )
    from rollingfs.filesystem import RollingFileSystem
    from rollingfs.handle import Segment
    from rollingfs.maintenance import Collected
    from rollingfs.policy import RollingPolicy
    from rollingfs.retention import RetentionPolicy
    from rollingfs.stream import Stream

__all__ = [
    "RollingFileSystem",
    "RollingPolicy",
    "RetentionPolicy",
    "Segment",
    "Stream",
    "StreamCut",
    "Staged",
    "Collected",
    "AppendInterrupted",
    "AppendOutcomeUnknown",
    "AttributeMismatchError",
    "BadOffsetError",
    "CommitTimeoutError",
    "ConflictError",
    "CorruptChunkError",
    "CorruptHeaderError",
    "FencedError",
    "FolderOccupiedError",
    "LockedError",
    "RollingError",
    "SegmentNotSealedError",
    "SegmentSealedError",
    "SegmentTruncatedError",
    "StagedExpiredError",
    "UnsafeBackendError",
]

_MODULES = {
    "Staged": "chunks",
    "StreamCut": "cuts",
    "AppendInterrupted": "errors",
    "AppendOutcomeUnknown": "errors",
    "AttributeMismatchError": "errors",
    "BadOffsetError": "errors",
    "CommitTimeoutError": "errors",
    "ConflictError": "errors",
    "CorruptChunkError": "errors",
    "CorruptHeaderError": "errors",
    "FencedError": "errors",
    "FolderOccupiedError": "errors",
    "LockedError": "errors",
    "RollingError": "errors",
    "SegmentNotSealedError": "errors",
    "SegmentSealedError": "errors",
    "SegmentTruncatedError": "errors",
    "StagedExpiredError": "errors",
    "UnsafeBackendError": "errors",
    "RollingFileSystem": "filesystem",
    "Segment": "handle",
    "Collected": "maintenance",
    "RollingPolicy": "policy",
    "RetentionPolicy": "retention",
    "Stream": "stream",
}
"""Where the names come from. They are imported when they are used: `fsspec` may import this package for nothing."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger(__name__).addHandler(logging.NullHandler())

# fsspec finds them by our entry points; these lines are for a package that is on the path, but not installed
for _scheme, _class in (
    ("rolling", "RollingFileSystem"),
    ("rolling+s3", "RollingS3FileSystem"),
    ("rolling+s3a", "RollingS3FileSystem"),
    ("rolling+file", "RollingLocalFileSystem"),
    ("rolling+local", "RollingLocalFileSystem"),
    ("rolling+memory", "RollingMemoryFileSystem"),
):
    register_implementation(_scheme, f"rollingfs.filesystem.{_class}")
