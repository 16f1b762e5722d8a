"""Meanings of failed requests to an object store: passing failures, conflicts, and the errors to raise."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from rollingfs.backend import shared_errors
from rollingfs.backend.patience import patiently
from rollingfs.errors import worded
from rollingfs.format import names

T = TypeVar("T")

TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
TRANSIENT_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException"}
)
BUSY_STATUSES = frozenset({429, 503})
REFUSED_STATUSES = frozenset({401, 403})
REFUSED_CODES = frozenset(
    {"AccessDenied", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed"}
)
UNSUPPORTED_STATUSES = frozenset({405, 501})
NO_JOIN_STATUSES = UNSUPPORTED_STATUSES | {411}
"""Answers to an UploadPartCopy: gofakes3 misses the body of a plain part."""
CONFLICT_CODES = frozenset(
    {"BlobAlreadyExists", "ConditionalRequestConflict", "OperationAborted", "PreconditionFailed"}
)
"""Azure's and S3's words of a 409 for a condition that does not hold; other 409 mean a busy account."""
NO_BUCKET_CODES = frozenset({"NoSuchBucket", "noSuchBucket", "ContainerNotFound"})
LEASE_CODE = "Lease"
"""Begin of Azure's words for a leased file; with the status of a failed condition."""
NO_UPLOAD_CODE = "NoSuchUpload"
LONG_KEY_CODE = "KeyTooLongError"
"""S3's word for a key of more than 1,024 bytes, as of the header of a plain file whose key has no room for it."""
LOOKING = frozenset({"reading", "looking up"})
"""Verbs for which there is no file of such a key."""
_NUMBERS: dict[str | int, int] = {
    "BucketNotEmpty": errno.ENOTEMPTY,
    "NotImplemented": errno.ENOTSUP,  # some stores send it with status 400
    "SlowDown": errno.EBUSY,
    LONG_KEY_CODE: errno.ENAMETOOLONG,
    **dict.fromkeys(CONFLICT_CODES, errno.EBUSY),
    **dict.fromkeys(REFUSED_CODES, errno.EACCES),
    **dict.fromkeys(REFUSED_STATUSES, errno.EACCES),
    **dict.fromkeys({409, 412, *BUSY_STATUSES}, errno.EBUSY),
    **dict.fromkeys(UNSUPPORTED_STATUSES - {405}, errno.ENOTSUP),
    400: errno.EINVAL,
    507: errno.ENOSPC,
    "XMinioStorageFull": errno.ENOSPC,
}
"""By the code of a refusal, or else by its status; any other is `EIO`."""


class Refusal(Exception):
    """A store's answer that a request was not done.

    Parameters
    ----------
    status
        The HTTP status.
    code
        The store's word for it, such as ``"NoSuchKey"``, else the status.
    headers
        Headers of the answer, with names in lower case, if they are known.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def __str__(self) -> str:
        return f"the store answered {self.status} {self.code}: {self.message}"


class LastingError(Exception):
    """A request failed, and the same request would fail again: a part of this machine is missing or wrong.

    Its number is not `EIO`, the number of an outage, which callers ride out.

    Parameters
    ----------
    is_untrusted
        The store's certificate could not be trusted, so no request was sent.
    """

    def __init__(self, text: str, number: int = errno.EPROTO, *, is_untrusted: bool = False) -> None:
        super().__init__(text)
        self.number = number
        self.is_untrusted = is_untrusted


class NotByObstoreError(LastingError):
    """obstore cannot send this request, or did not read its answer to a read; another client may."""


ERRORS = (Refusal, LastingError, ConnectionError, TimeoutError)
"""The errors that a request may raise. Any other error is a bug, and passes unchanged."""


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed in a moment."""
    if isinstance(error, Refusal):
        return error.status in TRANSIENT_STATUSES or error.code in TRANSIENT_CODES
    return isinstance(error, ConnectionError | TimeoutError)


def is_busy(error: BaseException) -> bool:
    """Return whether the store was too busy for a request; then the request certainly took no effect."""
    return isinstance(error, Refusal) and error.status in BUSY_STATUSES


def is_conflict(error: BaseException) -> bool:
    """Return whether a condition does not hold, according to the store."""
    if not isinstance(error, Refusal) or error.code.startswith(LEASE_CODE):
        return False
    return error.status == 412 or (error.status == 409 and error.code in CONFLICT_CODES)


def is_gone(error: BaseException) -> bool:
    """Return whether a file is missing, according to the store."""
    return isinstance(error, Refusal) and error.status == 404 and error.code not in NO_BUCKET_CODES


async def retrying(request: Callable[[], Awaitable[T]], *, unanswered: bool = True) -> T:
    """Send a request; repeat it after a failure that may pass, as long as the caller has patience.

    Without `unanswered`, repeat it only if the store was too busy for it: then it certainly took no effect.
    """
    return await patiently(request, is_transient if unanswered else is_busy)


async def answer_of(verb: str, path: str, request: Callable[..., Awaitable[T]], *args: Any, **more: Any) -> T:
    """Await an answer as `retrying` does, with `errors_of`."""
    with errors_of(verb, path):
        return await retrying(partial(request, *args, **more))


class errors_of:  # noqa: N801 - a context manager like `suppress`; as a generator it would take twice the calls
    """Raise an `OSError` that names the verb and the file; a `ConflictError` if the file has not the token.

    Parameters
    ----------
    verb
        As in "reading".
    token
        The condition of the request, if it has one.
    """

    def __init__(self, verb: str, path: str, token: str | None = None) -> None:
        self._about = verb, path, token

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ERRORS):
            verb, path, token = self._about
            if token is not None and is_conflict(error):
                raise shared_errors.changed(path, token, "another") from error
            raise as_os_error(error, verb, path) from error


def as_os_error(error: BaseException, verb: str, path: str) -> OSError:
    """Return the error to raise for a failed request."""
    shown = names.shown(path)
    status, code = (error.status, error.code) if isinstance(error, Refusal) else (0, "")
    if code in NO_BUCKET_CODES:
        return shared_errors.no_bucket(
            path, "container" if code == "ContainerNotFound" else "bucket", f"make it first, with {worded('fs.mkdir')}"
        )
    if status == 404 or (code == LONG_KEY_CODE and verb in LOOKING):
        return FileNotFoundError(errno.ENOENT, "no such file or folder", shown)
    outage = errno.ETIMEDOUT if isinstance(error, TimeoutError) else errno.EIO
    number = _NUMBERS.get(code) or _NUMBERS.get(status, outage)
    if isinstance(error, LastingError):
        number = error.number
    why = str(error).replace(quote(path), quote(shown))  # botocore names the URL that it could not reach
    why += "; check the endpoint, the network and whether the store is up" * isinstance(error, ConnectionRefusedError)
    return OSError(number, f"{verb} {shown!r}: {why}")  # Python picks the subclass


def token_of(token: str | None, what: str = "ETag") -> str:
    """Return the token in an answer to a read.

    Raises
    ------
    LastingError
        The answer has no token, and the next answer would have no token either.
    """
    if not token:
        raise LastingError(f"the store's answer has no {what}, by which versions differ: does a proxy remove it?")
    return token


def written(token: str | None, over: object) -> str:
    """Return the token that a write gave an object.

    Where a store answers a PUT with 303, a client may follow with a GET, as HTTP has it, and take the token of its
    answer for the token of a written object.

    Parameters
    ----------
    over
        The condition of the write.

    Raises
    ------
    ConnectionError
        There is no token, or the token that the write had to replace, so that no fact proves that the bytes were
        written.
    """
    if not token or (isinstance(over, str) and token.strip('"') == over.strip('"')):
        raise ConnectionError("the store's answer has no new ETag, so it may have written nothing")
    return token


def date_of(headers: Mapping[str, str], name: str = "date") -> float:
    """Return a date in the headers of an answer, by default the store's clock when it answered, in seconds since 1970.

    Raises
    ------
    ConnectionError
        The answer has no such header, or a malformed header.
    """
    with suppress(ValueError):
        return parsedate_to_datetime(headers.get(name, "")).timestamp()
    raise ConnectionError(
        f"the store's answer has no date that can be read: its header {name} is {headers.get(name)!r}"
    )
