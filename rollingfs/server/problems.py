"""Errors as HTTP: a table from classes of errors to statuses, and the problem with the present state."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rollingfs import errors
from rollingfs.errors import RollingError, visible
from rollingfs.format.append_keys import ForgottenError

logger = logging.getLogger("rollingfs.server")

RETRY_S = 1
JSON, PROBLEM = "application/json", "application/problem+json"
UNCHANGED, UNKNOWN = "nothing was changed", "it is not known whether anything was changed"
KNOWN = {errors.NOT_COMMITTED: UNCHANGED, errors.PARTLY: "a part was changed; the detail has which"}
"""States by the outcome that an error has as a field."""

STATUSES: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (
    (504, (errors.AppendOutcomeUnknown,)),
    (409, (errors.SegmentSealedError, errors.SegmentNotSealedError, errors.SegmentReplacedError)),
    (409, (FileExistsError, IsADirectoryError, ForgottenError)),
    (410, (errors.SegmentTruncatedError, errors.StagedExpiredError)),
    (412, (errors.AttributeMismatchError, errors.BadOffsetError)),
    (422, (errors.WholeFileError, errors.UnknownTierError)),
    (423, (errors.FencedError,)),
    (501, (errors.UnsafeBackendError, NotImplementedError)),
    (502, (errors.TierFailedError,)),
    (503, (errors.MissingTierError, errors.CommitTimeoutError, errors.LockedError, errors.ConflictError)),
    (500, (RollingError,)),  # a header or chunk is damaged
    (404, (FileNotFoundError,)),
    (403, (PermissionError,)),
    (400, (ValueError, TypeError)),
)
"""The first row with a class that fits counts."""
ERRNOS = {
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP), 400),
    **dict.fromkeys((errno.ENOTEMPTY, errno.ENOTDIR), 409),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), 507),
}
"""Statuses of other errors of a store; the rest has `STORE_FAILED`."""
STORE_FAILED = 503


def status_of(error: Exception) -> int:
    """Return the status for an error."""
    if isinstance(error, HTTPException):
        return error.status_code
    other = ERRNOS.get(error.errno or 0, STORE_FAILED) if isinstance(error, OSError) else 500
    return next((status for status, kinds in STATUSES if isinstance(error, kinds)), other)


def text_of(error: Exception, root: str) -> str:
    """Return the text of an error, with paths of clients.

    The text of an unexpected error is not shown.
    """
    if isinstance(error, HTTPException):
        return visible(error.detail)
    if not isinstance(error, OSError | ValueError | TypeError | NotImplementedError):
        return "the server failed at this request; its log says why"
    text = errors.text_of(error)
    if root:
        text = text.replace(f"{root}/", "").replace(root, "/")
    return visible(" ".join(text.split()))


def truth_of(error: Exception, changes: bool) -> str:
    """Return the state after an error of an operation."""
    if (outcome := getattr(error, "outcome", "")) in KNOWN:
        return KNOWN[outcome]
    if not changes or isinstance(error, (HTTPException, ValueError, TypeError, NotImplementedError, *errors.TELLING)):
        return UNKNOWN if isinstance(error, errors.AppendOutcomeUnknown | errors.UnflushedError) else UNCHANGED
    return UNKNOWN


def problem_fields(error: Exception, root: str, *, changes: bool = False) -> dict[str, Any]:
    """Return the fields of a problem; its short name is from class or status."""
    status = status_of(error)
    is_named = isinstance(error, RollingError | FileNotFoundError | FileExistsError | PermissionError)
    kind = FileNotFoundError if isinstance(error, errors.NoSegmentError) else type(error)
    slug = kind.__name__.removesuffix("Error") if is_named else f"Status{status}"
    found = {"type": f"urn:rollingfs:{slug}", "title": slug, "status": status, "detail": text_of(error, root)}
    return {**found, "changed": truth_of(error, changes)}


def headers_of(error: Exception) -> Mapping[str, str]:
    """Return the headers of the answer for an error."""
    given = error.headers if isinstance(error, HTTPException) else None
    again = {"Retry-After": str(RETRY_S)} if status_of(error) in (429, 503) else {}
    other = {"Segment-Replaced": error.start} if isinstance(error, errors.SegmentReplacedError) else {}
    return {**again, **other, **(given or {})}


def json_answer(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None, media: str = JSON
) -> Response:
    """Return an answer in JSON, in which a name that is not UTF-8 has the escapes of lone surrogates."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(errors="backslashreplace"), status, headers, media)


def problem(error: Exception, root: str = "", *, changes: bool = False) -> Response:
    """Return the answer for an error."""
    fields = problem_fields(error, root, changes=changes)
    status = fields["status"]
    if status >= 500 and not isinstance(error, HTTPException):
        logger.error("a request failed: %s", error, exc_info=error if status == 500 else None)
    return json_answer(fields, status, headers_of(error), PROBLEM)
