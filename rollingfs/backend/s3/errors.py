"""Errors of an object store: which are transient, and which `OSError` each becomes."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from rollingfs.backend import refusals
from rollingfs.backend.obstores import answers
from rollingfs.backend.obstores.answers import UntrustedStoreError
from rollingfs.format import names

TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})
NOT_IMPLEMENTED_STATUS = 501
BUSY_STATUSES = frozenset({429, 503})
TRANSIENT_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException"}
)
REFUSED_STATUSES = frozenset({401, 403})
REFUSED_CODES = frozenset(
    {"AccessDenied", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed"}
)
CREDENTIALS_HINT = "give key and secret, a profile, or anon=True where everybody may read"
TRUST_HINT = "for a store with a CA of its own, name the CA's file in client_kwargs={'verify': ...} or AWS_CA_BUNDLE"
ELSEWHERE_CODES = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
ELSEWHERE_STATUSES = frozenset({301, 302, 307})


class UnmadeRequestError(BotoCoreError):
    """A request could not be made, because something on this machine is missing or wrong."""

    fmt = "the request could not be made: {error}"


CONNECTION_ERRORS = (
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
    aiohttp.ClientError,
    TimeoutError,
    ConnectionError,
)
CLIENT_ERRORS = (BotoCoreError, ClientError, *CONNECTION_ERRORS)
"""The errors that a request may raise. Any other error is a bug, and passes unchanged."""


def status_of(error: BaseException) -> int:
    """The HTTP status of a refusal; 0 if there was no answer."""
    if not isinstance(error, ClientError):
        return 0
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def code_of(error: BaseException) -> str:
    """The store's code for the refusal, such as ``"NoSuchKey"``; "" if there was no answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


@contextmanager
def errors_of_machine() -> Iterator[None]:
    """Raise an `UnmadeRequestError` for a file or program of this machine, such as one that gives credentials.

    This includes a program whose output is no JSON.

    A `FileNotFoundError` of such a file must not be taken for one of an object.
    """
    try:
        yield
    except CLIENT_ERRORS:
        raise
    except OSError as error:
        raise UnmadeRequestError(error=error) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:  # S3 itself speaks XML
        why = f"what credential_process, or another source of credentials, printed is no JSON ({error})"
        raise UnmadeRequestError(error=why) from error


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed in a moment."""
    if isinstance(error, ClientError):
        return status_of(error) in TRANSIENT_STATUSES or code_of(error) in TRANSIENT_CODES
    return isinstance(error, CONNECTION_ERRORS) and not is_untrusted(error)


def is_busy(error: BaseException) -> bool:
    """Whether the store refused a request because it is busy; then the request certainly took no effect."""
    return status_of(error) in BUSY_STATUSES


def is_untrusted(error: BaseException) -> bool:
    """Whether the store's certificate could not be trusted, so that nothing was sent."""
    return isinstance(error, UntrustedStoreError) or (
        isinstance(error, SSLError) and isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorCertificateError)
    )


def is_elsewhere(error: BaseException) -> bool:
    """Whether the store refused a request because the bucket lies in another region; then it was not done."""
    return isinstance(error, ClientError) and (
        code_of(error) in ELSEWHERE_CODES or status_of(error) in ELSEWHERE_STATUSES
    )


def from_obstore(error: Exception, operation: str) -> Exception:
    """One of `CLIENT_ERRORS` for an error that obstore raised."""
    found = answers.from_obstore(error)
    if not isinstance(found, answers.Refusal):
        return found
    refusal = {"Code": found.code, "Message": found.message}
    said: Exception = ClientError({"Error": refusal, "ResponseMetadata": {"HTTPStatusCode": found.status}}, operation)
    return said


def as_os_error(error: BaseException, verb: str, path: str) -> OSError:
    """The error to raise for a failed request, from its HTTP status.

    Parameters
    ----------
    error : BaseException
        One of `CLIENT_ERRORS`.
    verb, path : str
        The action and the file, for the message.
    """
    shown = names.shown(path)
    if code_of(error) == "NoSuchBucket":
        return refusals.no_bucket(path, "bucket", "make it first, with fs.mkdir")
    if status_of(error) == 404:
        return FileNotFoundError(errno.ENOENT, "no such file or folder", shown)
    why = str(error).replace(quote(path), quote(shown))  # botocore names the URL that it could not reach
    text = f"{verb} of {shown!r}: {why}"
    if is_untrusted(error):
        text += f"; {TRUST_HINT}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        text += f"; {CREDENTIALS_HINT}"
    return OSError(_errno_of(error), text)  # Python picks the subclass: FileNotFoundError, PermissionError, ...


def _errno_of(error: BaseException) -> int:
    status, code = status_of(error), code_of(error)
    if status in REFUSED_STATUSES or code in REFUSED_CODES:
        return errno.EACCES
    if status == 404:
        return errno.ENOENT
    if status in BUSY_STATUSES or code in ("SlowDown", "OperationAborted", "ConditionalRequestConflict"):
        return errno.EBUSY
    if status == NOT_IMPLEMENTED_STATUS or code == "NotImplemented":  # some stores send it with status 400
        return errno.ENOTSUP
    if status == 400 or isinstance(error, ParamValidationError):
        return errno.EINVAL
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return errno.EACCES
    if isinstance(error, ReadTimeoutError | ConnectTimeoutError | TimeoutError):
        return errno.ETIMEDOUT
    return errno.EIO


@contextmanager
def errors_of(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except CLIENT_ERRORS as error:
        raise as_os_error(error, verb, path) from error


def refused_keys(errors: Sequence[dict[str, str]], bucket: str, count: int) -> ClientError:
    """The error for a DeleteObjects that the store obeyed in part: a refusal that does not pass, if there is one."""
    worst = min(errors, key=lambda error: error.get("Code") in TRANSIENT_CODES)
    code, path = worst.get("Code", ""), f"{bucket}/{worst['Key']}"
    text = f"{len(errors)} of {count} files could not be deleted: {code}, {worst.get('Message')}: {names.shown(path)!r}"
    return ClientError({"Error": {"Code": code, "Message": text}}, "DeleteObjects")
