"""What failed requests to a cloud mean: which pass by themselves, which are conflicts, and what to raise."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rollingfs.backend import refusals
from rollingfs.backend.obstores.answers import Refusal, UntrustedStoreError
from rollingfs.backend.obstores.forks import ObstoreLostError
from rollingfs.backend.patience import patiently
from rollingfs.format import names

T = TypeVar("T")

TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
NOT_IMPLEMENTED_STATUS = 501
BUSY_STATUSES = frozenset({429, 503})
REFUSED_STATUSES = frozenset({401, 403})
CONFLICT_CODES = frozenset(
    {"BlobAlreadyExists", "ConditionalRequestConflict", "OperationAborted", "PreconditionFailed"}
)
"""Azure's and S3's words of a 409 for a condition that does not hold; other 409 say that the account is busy."""
NO_CONTAINER_CODES = frozenset({"ContainerNotFound", "NoSuchBucket", "noSuchBucket"})
LEASE_CODE = "Lease"
"""Azure's words for a file that somebody has leased begin so; their status is that of a failed condition."""
CLOUD_ERRORS = (Refusal, ConnectionError, TimeoutError)
"""The errors that a request may raise. Any other error is a bug, and passes unchanged."""
_LASTING = (UntrustedStoreError, ObstoreLostError)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed in a moment."""
    if isinstance(error, Refusal):
        return error.status in TRANSIENT_STATUSES
    return isinstance(error, ConnectionError | TimeoutError) and not isinstance(error, _LASTING)


def is_busy(error: BaseException) -> bool:
    """Whether the store was too busy for a request; then the request certainly took no effect."""
    return isinstance(error, Refusal) and error.status in BUSY_STATUSES


def is_conflict(error: BaseException) -> bool:
    """Whether the store says that a condition does not hold."""
    if not isinstance(error, Refusal) or error.code.startswith(LEASE_CODE):
        return False
    return error.status == 412 or (error.status == 409 and error.code in CONFLICT_CODES)


def is_gone(error: BaseException) -> bool:
    """Whether the store says that there is no such file, in a container that may exist."""
    return isinstance(error, Refusal) and error.status == 404 and error.code not in NO_CONTAINER_CODES


async def retrying(request: Callable[[], Awaitable[T]], *, unanswered: bool = True) -> T:
    """Send a request; repeat it after a failure that may pass, as long as the caller has patience.

    Without `unanswered`, repeat it only if the store was too busy for it: then it certainly took no effect.
    """
    return await patiently(request, is_transient if unanswered else is_busy)


@contextmanager
def errors_of(verb: str, path: str) -> Iterator[None]:
    """Raise an `OSError` that says what was done to which file.

    Parameters
    ----------
    verb
        As in "reading".
    """
    try:
        yield
    except CLOUD_ERRORS as error:
        raise as_os_error(error, verb, path) from error


def as_os_error(error: BaseException, verb: str, path: str) -> OSError:
    """The error to raise for a failed request."""
    shown = names.shown(path)
    if isinstance(error, Refusal) and error.code in NO_CONTAINER_CODES:
        return refusals.no_bucket(path, "bucket or container", "make it first")
    if is_gone(error):
        return FileNotFoundError(errno.ENOENT, "no such file or folder", shown)
    return OSError(_errno_of(error), f"{verb} {shown!r}: {error}")  # Python picks the subclass


def _errno_of(error: BaseException) -> int:
    if isinstance(error, TimeoutError):
        return errno.ETIMEDOUT
    if isinstance(error, ObstoreLostError):
        return errno.ENOTSUP
    status = error.status if isinstance(error, Refusal) else 0
    if status in REFUSED_STATUSES:
        return errno.EACCES
    if status in BUSY_STATUSES or status in (409, 412):
        return errno.EBUSY
    if status == NOT_IMPLEMENTED_STATUS:
        return errno.ENOTSUP
    return errno.EINVAL if status == 400 else errno.EIO
