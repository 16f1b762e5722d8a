"""Append, seal, truncate and zero-copy concat for logs on any object store."""

import logging

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
from rollingfs.policy import RollingPolicy

__all__ = [
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
    "RollingPolicy",
    "SegmentNotSealedError",
    "SegmentSealedError",
    "SegmentTruncatedError",
    "StagedExpiredError",
    "UnsafeBackendError",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
