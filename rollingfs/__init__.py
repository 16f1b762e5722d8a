"""Append, seal, truncate and zero-copy concat for logs on any object store."""

import logging

from fsspec import register_implementation

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
    "RollingError",
    "SegmentNotSealedError",
    "SegmentSealedError",
    "SegmentTruncatedError",
    "StagedExpiredError",
    "UnsafeBackendError",
]

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
