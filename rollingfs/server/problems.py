"""Errors as HTTP: one table from classes of errors to statuses, and the problem that says what is true now."""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

from rollingfs import errors
from rollingfs.errors import RollingError, visible

logger = logging.getLogger("rollingfs.server")

RETRY_S = 1
PROBLEM = "application/problem+json"
UNCHANGED, UNKNOWN = "nothing was changed", "it is not known whether anything was changed"


@dataclass(eq=False)
class Refused(Exception):
    """A request that the server itself refuses, before it changes anything."""

    status: int
    detail: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail


STATUSES: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (
    (504, (errors.AppendOutcomeUnknown,)),
    (409, (errors.SegmentSealedError, errors.SegmentNotSealedError, errors.FolderOccupiedError)),
    (410, (errors.SegmentTruncatedError, errors.StagedExpiredError)),
    (412, (errors.AttributeMismatchError, errors.BadOffsetError)),
    (422, (errors.WholeFileError, errors.UnknownTierError)),
    (423, (errors.FencedError,)),
    (501, (errors.UnsafeBackendError,)),
    (502, (errors.TierFailedError,)),
    (503, (errors.MissingTierError, errors.CommitTimeoutError, errors.LockedError, errors.ConflictError)),
    (500, (RollingError,)),  # a header or chunk is damaged
    (404, (FileNotFoundError,)),
    (409, (FileExistsError, IsADirectoryError, NotADirectoryError)),
    (403, (PermissionError,)),
    (501, (NotImplementedError,)),
    (400, (ValueError, TypeError)),
)
"""The first row with a class that fits counts."""
ERRNOS = {
    400: (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP),
    409: (errno.ENOTEMPTY,),
    507: (errno.ENOSPC, errno.EDQUOT),
}
"""Statuses of other errors of a store."""
STORE_FAILED = 503


def status_of(error: Exception) -> int:
    """The status for an error."""
    if isinstance(error, Refused):
        return error.status
    for status, kinds in STATUSES:
        if isinstance(error, kinds):
            return status
    if not isinstance(error, OSError):
        return 500
    return next((status for status, numbers in ERRNOS.items() if error.errno in numbers), STORE_FAILED)


def slug_of(error: Exception, status: int) -> str:
    """A short name for programs: that of the error's class, or of the status."""
    if isinstance(error, RollingError | FileNotFoundError | FileExistsError | PermissionError):
        return type(error).__name__.removesuffix("Error")
    return f"Status{status}"


def text_of(error: Exception, root: str) -> str:
    """What an error says, with paths as clients know them; nothing of an error that nobody expected."""
    if not isinstance(error, OSError | ValueError | TypeError | NotImplementedError | Refused):
        return "the server failed at this request; its log says why"
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if root:
        text = text.replace(f"{root}/", "").replace(root, "/")
    return visible(" ".join(text.split()))


def truth_of(error: Exception, changes: bool) -> str:
    """What is true after an error of an operation that changes something, or that reads."""
    if not changes or isinstance(error, (Refused, ValueError, TypeError, NotImplementedError, *errors.TELLING)):
        return UNKNOWN if isinstance(error, errors.AppendOutcomeUnknown) else UNCHANGED
    return UNCHANGED if errors.NOT_COMMITTED in str(error) else UNKNOWN


def problem_fields(error: Exception, root: str, *, changes: bool = False) -> dict[str, Any]:
    """What is said of an error."""
    status = status_of(error)
    slug, detail = slug_of(error, status), text_of(error, root)
    found = {"type": f"urn:rollingfs:{slug}", "title": slug, "status": status, "detail": detail}
    return {**found, "changed": truth_of(error, changes)}


def problem(error: Exception, root: str, *, changes: bool = False) -> JSONResponse:
    """The answer for an error."""
    fields = problem_fields(error, root, changes=changes)
    status = fields["status"]
    if status >= 500 and not isinstance(error, Refused):
        logger.error("a request failed: %s", error, exc_info=error if status == 500 else None)
    headers = dict(error.headers) if isinstance(error, Refused) else {}
    if status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_S))
    return JSONResponse(fields, status, headers, media_type=PROBLEM)
