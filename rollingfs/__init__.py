"""Append, seal, truncate and zero-copy concat for files on object stores and disks."""

import importlib
import logging as _logging
from typing import TYPE_CHECKING, Any

from fsspec import register_implementation

if TYPE_CHECKING:
    from rollingfs.commit.chunk_files import Staged
    from rollingfs.errors import (
        AppendInterrupted,
        AppendOutcomeUnknown,
        AttributeMismatchError,
        BadOffsetError,
        CommitTimeoutError,
        ConflictError,
        CorruptChunkError,
        CorruptHeaderError,
        CorruptLedgerError,
        FencedError,
        FolderOccupiedError,
        LockedError,
        LostCommitError,
        MissingTierError,
        RollingError,
        SegmentNotSealedError,
        SegmentReplacedError,
        SegmentSealedError,
        SegmentTruncatedError,
        StagedExpiredError,
        TierFailedError,
        UnknownTierError,
        UnsafeBackendError,
        WholeFileError,
    )
    from rollingfs.fs.core import Core, core, observe
    from rollingfs.fs.filesystem import RollingFileSystem
    from rollingfs.fs.follower import Follower
    from rollingfs.fs.segment_handle import Segment
    from rollingfs.fs.stream_handle import Stream
    from rollingfs.maintenance.collected import Collected
    from rollingfs.maintenance.erased import Erased
    from rollingfs.maintenance.export import Exported
    from rollingfs.maintenance.offload import Offloaded
    from rollingfs.maintenance.rebuild import Rebuilt
    from rollingfs.maintenance.state import SegmentState
    from rollingfs.policy import OffloadPolicy, RollingPolicy
    from rollingfs.show.metrics import Metrics
    from rollingfs.stream.blocks import OffloadStatus
    from rollingfs.stream.cut import StreamCut
    from rollingfs.stream.retention import RetentionPolicy

__all__ = [
    "RollingFileSystem",
    "RollingPolicy",
    "OffloadPolicy",
    "RetentionPolicy",
    "Segment",
    "Stream",
    "StreamCut",
    "Staged",
    "core",
    "Core",
    "Collected",
    "Erased",
    "Exported",
    "Offloaded",
    "SegmentState",
    "Metrics",
    "observe",
    "Follower",
    "OffloadStatus",
    "Rebuilt",
    "AppendInterrupted",
    "AppendOutcomeUnknown",
    "AttributeMismatchError",
    "BadOffsetError",
    "CommitTimeoutError",
    "ConflictError",
    "CorruptChunkError",
    "CorruptHeaderError",
    "CorruptLedgerError",
    "FencedError",
    "FolderOccupiedError",
    "LockedError",
    "LostCommitError",
    "MissingTierError",
    "RollingError",
    "SegmentNotSealedError",
    "SegmentReplacedError",
    "SegmentSealedError",
    "SegmentTruncatedError",
    "StagedExpiredError",
    "TierFailedError",
    "UnknownTierError",
    "UnsafeBackendError",
    "WholeFileError",
]

_MODULES = {
    "Staged": "commit.chunk_files",
    "StreamCut": "stream.cut",
    "AppendInterrupted": "errors",
    "AppendOutcomeUnknown": "errors",
    "AttributeMismatchError": "errors",
    "BadOffsetError": "errors",
    "CommitTimeoutError": "errors",
    "ConflictError": "errors",
    "CorruptChunkError": "errors",
    "CorruptHeaderError": "errors",
    "CorruptLedgerError": "errors",
    "FencedError": "errors",
    "FolderOccupiedError": "errors",
    "LockedError": "errors",
    "LostCommitError": "errors",
    "MissingTierError": "errors",
    "RollingError": "errors",
    "SegmentNotSealedError": "errors",
    "SegmentReplacedError": "errors",
    "SegmentSealedError": "errors",
    "SegmentTruncatedError": "errors",
    "StagedExpiredError": "errors",
    "TierFailedError": "errors",
    "UnknownTierError": "errors",
    "UnsafeBackendError": "errors",
    "WholeFileError": "errors",
    "RollingFileSystem": "fs.filesystem",
    "Segment": "fs.segment_handle",
    "Core": "fs.core",
    "core": "fs.core",
    "Collected": "maintenance.collected",
    "Erased": "maintenance.erased",
    "Exported": "maintenance.export",
    "Offloaded": "maintenance.offload",
    "SegmentState": "maintenance.state",
    "Metrics": "show.metrics",
    "observe": "fs.core",
    "Follower": "fs.follower",
    "OffloadStatus": "stream.blocks",
    "OffloadPolicy": "policy",
    "Rebuilt": "maintenance.rebuild",
    "RollingPolicy": "policy",
    "RetentionPolicy": "stream.retention",
    "Stream": "fs.stream_handle",
}
"""The module of each public name. A name is imported at its first use, because `fsspec` may import this package and use
no name of it."""


__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# `logging` is the name of a module of this package, which `logging.config` finds by its name
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

# an installed package has entry points for fsspec; these lines serve a package that is only on the path
for _scheme, _class in (
    ("rolling", "filesystem.RollingFileSystem"),
    ("rolling+s3", "schemes.RollingS3FileSystem"),
    ("rolling+s3a", "schemes.RollingS3FileSystem"),
    ("rolling+az", "cloud_schemes.RollingAzureFileSystem"),
    ("rolling+abfs", "cloud_schemes.RollingAzureFileSystem"),
    ("rolling+abfss", "cloud_schemes.RollingAzureFileSystem"),
    ("rolling+gs", "cloud_schemes.RollingGoogleFileSystem"),
    ("rolling+gcs", "cloud_schemes.RollingGoogleFileSystem"),
    ("rolling+file", "schemes.RollingLocalFileSystem"),
    ("rolling+local", "schemes.RollingLocalFileSystem"),
    ("rolling+memory", "schemes.RollingMemoryFileSystem"),
):
    register_implementation(_scheme, f"rollingfs.fs.{_class}", clobber=True)
