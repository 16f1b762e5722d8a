"""Append, seal, truncate and zero-copy concat for files on object stores and disks."""

import importlib
import logging as _logging
from typing import TYPE_CHECKING, Any

from fsspec import register_implementation

from rollingfs.errors import (
    AppendInterrupted as AppendInterrupted,
    AppendOutcomeUnknown as AppendOutcomeUnknown,
    AttributeMismatchError as AttributeMismatchError,
    BadOffsetError as BadOffsetError,
    CommitTimeoutError as CommitTimeoutError,
    ConflictError as ConflictError,
    CorruptChunkError as CorruptChunkError,
    CorruptHeaderError as CorruptHeaderError,
    CorruptLedgerError as CorruptLedgerError,
    FencedError as FencedError,
    FolderOccupiedError as FolderOccupiedError,
    LockedError as LockedError,
    LostCommitError as LostCommitError,
    MissingTierError as MissingTierError,
    RollingError as RollingError,
    SegmentNotSealedError as SegmentNotSealedError,
    SegmentReplacedError as SegmentReplacedError,
    SegmentSealedError as SegmentSealedError,
    SegmentTruncatedError as SegmentTruncatedError,
    StagedExpiredError as StagedExpiredError,
    TierFailedError as TierFailedError,
    UnknownTierError as UnknownTierError,
    UnsafeBackendError as UnsafeBackendError,
    WholeFileError as WholeFileError,
)
from rollingfs.runtime import system as _system  # noqa: F401 - from now on, forks wait for imports

if TYPE_CHECKING:
    from rollingfs.fs.core import Core as Core, core as core, observe as observe
    from rollingfs.fs.filesystem import RollingFileSystem as RollingFileSystem
    from rollingfs.fs.follower import Follower as Follower
    from rollingfs.fs.segment_handle import SegmentHandle as Segment
    from rollingfs.fs.stream_handle import Stream as Stream
    from rollingfs.policy import OffloadPolicy as OffloadPolicy, RollingPolicy as RollingPolicy
    from rollingfs.segment.commit.chunk_files import Staged as Staged
    from rollingfs.segment.files.survey import Collected as Collected
    from rollingfs.segment.verbs.erase import Erased as Erased
    from rollingfs.segment.verbs.export import Exported as Exported
    from rollingfs.segment.verbs.offload import Offloaded as Offloaded
    from rollingfs.segment.verbs.rebuild import Rebuilt as Rebuilt
    from rollingfs.show.metrics import Metrics as Metrics
    from rollingfs.stream.blocks import OffloadStatus as OffloadStatus
    from rollingfs.stream.cut import StreamCut as StreamCut
    from rollingfs.stream.retention import RetentionPolicy as RetentionPolicy
    from rollingfs.stream.states import SegmentState as SegmentState

_MODULES = {
    name: module
    for module, names in {
        "segment.commit.chunk_files": "Staged",
        "fs.core": "Core core observe",
        "fs.filesystem": "RollingFileSystem",
        "fs.follower": "Follower",
        "fs.segment_handle": "Segment",
        "fs.stream_handle": "Stream",
        "segment.files.survey": "Collected",
        "segment.verbs.erase": "Erased",
        "segment.verbs.export": "Exported",
        "segment.verbs.offload": "Offloaded",
        "segment.verbs.rebuild": "Rebuilt",
        "stream.states": "SegmentState",
        "policy": "OffloadPolicy RollingPolicy",
        "show.metrics": "Metrics",
        "stream.blocks": "OffloadStatus",
        "stream.cut": "StreamCut",
        "stream.retention": "RetentionPolicy",
    }.items()
    for name in names.split()
}
"""The module of each public name. A name is imported at its first use, because `fsspec` may import this package and use
no name of it."""
__all__ = ["Segment"]
__all__ += [name for name in _MODULES if name != "Segment"]
__all__ += [
    name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, BaseException)
]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    value = getattr(module, "SegmentHandle" if name == "Segment" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# `logging` is the name of a module of this package, which `logging.config` finds by its name
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

STORES = {
    "S3": ("s3", "s3a"),
    "Azure": ("az", "abfs", "abfss"),
    "Google": ("gs", "gcs"),
    "Local": ("file", "local"),
    "Memory": ("memory",),
}
"""The schemes of each kind of store. ``rolling+s3`` and ``rollings3`` are schemes of this package over it."""

# an installed package has entry points for fsspec; these lines serve a package that is only on the path
for _kind, _stores in STORES.items():
    for _scheme in _stores:
        for _alias in (f"rolling+{_scheme}", f"rolling{_scheme}"):
            register_implementation(_alias, f"rollingfs.fs.schemes.Rolling{_kind}FileSystem", clobber=True)
register_implementation("rolling", "rollingfs.fs.filesystem.RollingFileSystem", clobber=True)
