"""The errors of rollingfs: a shallow tree under `RollingError`.

A missing segment raises the builtin `FileNotFoundError`, an existing segment `FileExistsError`. Every other error is
a `RollingError`, which is an `OSError`, because users of fsspec handle builtin errors.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

FULL = {errno.ENOSPC, errno.EDQUOT}
"""A store has no block, no inode or no quota left; an object store answers 507."""
UNSUPPORTED = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP))
"""Numbers of "not supported": two on macOS, the same one elsewhere."""


def visible(text: str) -> str:
    """Return the text with control characters escaped, for terminals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _escape(record: logging.LogRecord) -> bool:
    """Show names of stores and users without control characters, so on a single line, in every log."""
    text = record.getMessage()
    if not text.isprintable():
        record.msg, record.args = visible(text), ()
    return True


logging.getLogger("rollingfs").addFilter(_escape)

Face = Callable[[str, Mapping[str, Any]], str]
"""Words of a face for a verb (or "") and its parameters; `...` stands for any value."""


def in_python(verb: str, given: Mapping[str, Any]) -> str:
    """Return a call, or its parameters, as Python has them."""
    shown = ", ".join(name if value is ... else f"{name}={value!r}" for name, value in given.items())
    return f"{verb}({shown})" if verb else shown


_faces: list[Face] = [in_python]


@contextlib.contextmanager
def worded_by(face: Face) -> Iterator[None]:
    """Let a face word the messages of this process, until the end of the block."""
    _faces.append(face)
    try:
        yield
    finally:
        _faces.pop()


def worded(verb: str = "", /, **given: Any) -> str:
    """Return a verb, or parameters, in the words of the face in use."""
    return _faces[-1](verb, given)


class RollingError(OSError):
    """The base of all errors of rollingfs."""


class SegmentSealedError(RollingError):
    """The segment is sealed and takes no more bytes."""


class SegmentNotSealedError(RollingError):
    """The operation needs a sealed segment; seal it first."""


class SegmentTruncatedError(RollingError):
    """The requested bytes are before the segment's start offset: a truncation dropped them."""


class SegmentReplacedError(RollingError, FileNotFoundError):
    """Another segment or file has the name of the segment that was read; no byte of the other was read.

    Attributes
    ----------
    start : str
        Begin of the other, as a follower takes it.
    """

    start = ""


class WholeFileError(RollingError, ValueError):
    """A source of `concat` is a file of a format that does not join, like Parquet or zip. No byte was joined."""


class StagedExpiredError(RollingError):
    """A chunk that was staged, or uploaded a day ago, was collected and cannot be committed. No byte was written."""


class AttributeMismatchError(RollingError):
    """An attribute of the segment differs from `expected_attrs`. No byte was written."""


class FencedError(RollingError):
    """Another owner holds the segment exclusively, or this handle's epoch has passed."""


class FolderOccupiedError(RollingError, IsADirectoryError):
    """A folder with content has this name, and a segment would hide that content. No byte was written."""


class BadOffsetError(RollingError, ValueError):
    """An offset differs from the expected offset, or is outside the segment. No byte was written."""


class CorruptHeaderError(RollingError):
    """A header or an index page is malformed. The message names the file, the line and the reason."""


class CorruptLedgerError(CorruptHeaderError):
    """The memory of a stream (`$stream`) is malformed, or a newer release wrote it. No byte was trimmed."""


class CorruptChunkError(RollingError):
    """A chunk that the header names is missing, too short, or fails its checksum."""


class AppendOutcomeUnknown(RollingError):
    """The store never confirmed or refused a commit, so the data may or may not be in the segment.

    Read the segment, or repeat the call with `expected_offset` or `expected_attrs`, which make a repetition safe.
    """


class UnsafeBackendError(RollingError):
    """The backend cannot replace a header atomically, so writing through it could lose data."""

    why = ""
    """The reason without the path, where it holds for the whole store."""


class LostCommitError(UnsafeBackendError):
    """The store has acknowledged a commit of this client, and then let another writer take its place.

    Attributes
    ----------
    start, end : int
        The offsets of the bytes that are gone; equal if the commit had no bytes.
    data : bytes or None
        These bytes, where the client still has them: append them to a safe store.
    """

    def __init__(self, message: str, start: int, end: int, data: bytes | None) -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.data = data

    def __reduce__(self) -> tuple[type[LostCommitError], tuple[str, int, int, bytes | None], dict[str, object]]:
        return type(self), (str(self), self.start, self.end, self.data), vars(self)


class UnknownTierError(RollingError):
    """A header names a tier that is not configured; the message names it. No file was looked for."""


class MissingTierError(RollingError):
    """A tier is not there: its root lacks the mark `$tier`, has another mark, or keeps files by another path."""


class TierFailedError(RollingError):
    """The store of a tier failed. The message names the segment and the tier, and has the state of the bytes."""


TIER_ERRORS = (UnknownTierError, MissingTierError, TierFailedError)
"""Errors about a tier: its other segments, and those without files in it, may be changed."""


def unknown_tier(alias: str, path: str) -> UnknownTierError:
    """Return the error for a file or folder at `path` of a tier that is not configured."""
    return UnknownTierError(
        f"{path}: the tier {alias!r} is not configured, so nothing in it was read or deleted: give its root, as "
        f"tiers={{{alias!r}: 's3://bucket/folder'}}"
    )


class ConflictError(RollingError):
    """A backend refused a conditional verb: the file has another token, or is gone.

    Only backends raise it. The commit loop then looks at the header and tries again.
    """


class UnflushedError(RollingError, OSError):
    """A record was put after a header, and the flush after it failed: a loss of power may take the record back.

    Only backends raise it. The outcome of the commit is then unknown.
    """


class LockedError(RollingError, TimeoutError):
    """A conditional verb waited too long for a lock that another process holds. No byte was written.

    A commit tries the verb again until `commit_timeout_s` has passed.
    """


class AppendInterrupted(KeyboardInterrupt):
    """Ctrl-C came during a commit. `outcome` is the known outcome of that commit.

    Attributes
    ----------
    outcome : str
        ``"committed"``, ``"not committed"`` or ``"unknown"``.
    """

    def __init__(self, message: str, outcome: str) -> None:
        super().__init__(message)
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[AppendInterrupted], tuple[str, str]]:
        return type(self), (str(self), self.outcome)


def interrupted(path: str, outcome: str) -> AppendInterrupted:
    """Return the error for an operation on `path` whose commit has this outcome."""
    return AppendInterrupted(f"{path}: interrupted; the commit is {outcome}", outcome)


class if_interrupted:  # noqa: N801 - used as a function
    """Report `outcome` if Ctrl-C comes within: an auxiliary commit (a claim, a mark) does not decide the operation."""

    def __init__(self, path: str, outcome: str) -> None:
        self._told = path, outcome

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise interrupted(*self._told) from error


class CommitTimeoutError(RollingError, TimeoutError):
    """The commit did not take place within `commit_timeout_s`. No byte was written.

    Other writers replaced the header or held its lock all the time, or the header could not be read.
    """


class NoBucketError(FileNotFoundError):
    """The bucket or container of a file does not exist, according to the store. No byte was written."""


class NoSegmentError(FileNotFoundError):
    """No segment and no plain file has this name. No byte was written."""


def text_of(error: BaseException) -> str:
    """Return the text of an error with its file, and without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


TELLING = (RollingError, FileNotFoundError, FileExistsError)
"""Errors whose kind proves that no byte was written."""
COMMITTED, NOT_COMMITTED, PARTLY, UNKNOWN = "committed", "not committed", "partly", "unknown"
"""Outcomes of an operation, as the attribute `outcome` of its errors."""


def partly(error: OSError | ValueError, done: str) -> None:
    """Prefix the text of an error with the part of its operation that is done, and give it that outcome."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    error.args = tuple(f"{done}: {one}" if one == text else one for one in error.args)
    if isinstance(error, OSError) and error.strerror:
        error.strerror = f"{done}: {text}"
    vars(error)["outcome"] = PARTLY


def not_committed(error: OSError, path: str) -> OSError:
    """Return the error for a failure of the store without a commit to `path`."""
    if getattr(error, "outcome", "") == NOT_COMMITTED:
        return error
    why = error.strerror or str(error)
    # users know the segment, not its own files; name any other file, such as one that data is read from
    if isinstance(error.filename, str) and not error.filename.startswith(path):
        why = f"{why}: {error.filename!r}"
    found = OSError(error.errno or errno.EIO, f"nothing was committed: {why}", path)
    vars(found)["outcome"] = NOT_COMMITTED
    return found


def lost_commit(path: str, start: int, end: int, data: bytes | None, store: str = "") -> LostCommitError:
    """Return the error for a lost commit to `path` on `store`; `data` begins with its bytes."""
    kept = data[: end - start] if data is not None else None
    rest = "the error has these bytes as `data`" if kept is not None else "their bytes are with their caller only"
    why = (
        f"the store acknowledged a commit of the bytes from {start} to {end}, and then let another writer take "
        f"its place: they are gone, {rest}. This process writes nothing more to {store or 'that store'}: use a store "
        "whose conditional writes are atomic (docs/stores.md)"
    )
    error = LostCommitError(f"{path}: {why}", start, end, kept)
    error.why = why
    return error
