"""The errors of rollingfs: one shallow tree under `RollingError`.

A missing segment is the builtin `FileNotFoundError`, one that is there already the builtin
`FileExistsError`. Everything else derives from `RollingError`, which is an `OSError`, because users of
fsspec expect builtins only.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator


class RollingError(OSError):
    """Base of all errors that are rollingfs' own."""


class SegmentSealedError(RollingError):
    """The segment is sealed: it takes no more bytes."""


class SegmentNotSealedError(RollingError):
    """The operation needs a sealed segment; seal it first."""


class SegmentTruncatedError(RollingError):
    """The bytes asked for lie before the segment's start offset: they were truncated away."""


class StagedExpiredError(RollingError):
    """A staged chunk is gone (collected), so its receipt cannot be committed. Nothing was written."""


class AttributeMismatchError(RollingError):
    """An attribute of the segment is not what `expected_attrs` says. Nothing was written."""


class FencedError(RollingError):
    """Another owner holds the segment exclusively, or this handle's epoch has passed."""


class FolderOccupiedError(RollingError, IsADirectoryError):
    """A folder has this name, and a segment would hide what lies in it. Nothing was written."""


class BadOffsetError(RollingError, ValueError):
    """An offset is not what was expected, or lies outside the segment. Nothing was written."""


class CorruptHeaderError(RollingError):
    """A header or an index page is malformed; the message names the file, the line and why."""


class CorruptChunkError(RollingError):
    """A chunk that the header names is missing, too short, or fails its checksum."""


class AppendOutcomeUnknown(RollingError):
    """The store never said whether a commit took place: it may or may not be there.

    Read the segment, or repeat with `expected_offset` or `expected_attrs`, which make a repetition safe.
    """


class UnsafeBackendError(RollingError):
    """The backend cannot replace a header atomically, so writing through it could lose data."""


class ConflictError(RollingError):
    """A backend's conditional verb was refused: the file is not what the token says.

    Raised by backends only; the commit loop looks at the header and tries again.
    """


class LockedError(RollingError, TimeoutError):
    """A conditional verb waited too long for a lock that another process holds. It did nothing.

    A commit that is kept waiting is tried again until `commit_timeout_s` has passed.
    """


class AppendInterrupted(KeyboardInterrupt):
    """Ctrl-C during a commit. `outcome` says what is known of it.

    Attributes
    ----------
    outcome : str
        ``"committed"``, ``"not committed"`` or ``"unknown"``.
    """

    def __init__(self, message: str, outcome: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def interrupted(path: str, outcome: str) -> AppendInterrupted:
    """The error for an operation on `path` of whose commit this is known."""
    return AppendInterrupted(f"{path}: interrupted; the commit is {outcome}", outcome)


@contextlib.contextmanager
def if_interrupted(path: str, outcome: str) -> Iterator[None]:
    """Say this of an operation if Ctrl-C comes within: commits that serve it (a claim, a mark) do not decide it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise interrupted(path, outcome) from interrupt


class CommitTimeoutError(RollingError, TimeoutError):
    """Others replaced the header, or held its lock, until `commit_timeout_s` had passed, or it could not be read.

    Nothing was written.
    """


TELLING = (RollingError, FileNotFoundError, FileExistsError)
"""Errors that say by themselves that nothing was written."""
NOT_COMMITTED = "nothing was committed"


def not_committed(error: OSError, path: str) -> OSError:
    """What to raise for a failure of the store before, or instead of, the commit to a segment: with path and outcome.

    Parameters
    ----------
    path
        The segment.
    """
    why = error.strerror or str(error)
    if why.startswith(NOT_COMMITTED):
        return error
    # the segment's own files are no names for users; another file, as one that is read from, is
    if isinstance(error.filename, str) and not error.filename.startswith(path):
        why = f"{why}: {error.filename!r}"
    return OSError(error.errno or errno.EIO, f"{NOT_COMMITTED}: {why}", path)
