"""The public names: `lazy_loader` imports each from its module at the first use."""

import typing

if typing.TYPE_CHECKING:  # so that mypy follows these imports last: the modules import this one
    from .errors import (
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
    from .fs.core import Core as Core, core as core, observe as observe
    from .fs.filesystem import RollingFileSystem as RollingFileSystem
    from .fs.follower import Follower as Follower
    from .fs.segment_handle import Segment as Segment
    from .fs.stream_handle import Stream as Stream
    from .policy import OffloadPolicy as OffloadPolicy, RollingPolicy as RollingPolicy
    from .segment.commit.chunk_files import Staged as Staged
    from .segment.files.survey import Collected as Collected
    from .segment.verbs.erase import Erased as Erased
    from .segment.verbs.export import Exported as Exported
    from .segment.verbs.offload import Offloaded as Offloaded
    from .segment.verbs.rebuild import Rebuilt as Rebuilt
    from .show.metrics import Metrics as Metrics
    from .stream.blocks import OffloadStatus as OffloadStatus
    from .stream.cut import StreamCut as StreamCut
    from .stream.retention import RetentionPolicy as RetentionPolicy
    from .stream.states import SegmentState as SegmentState

STORES: dict[str, tuple[str, ...]]
__version__: str
