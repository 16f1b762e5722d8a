"""Copies within an object store: a whole object, and ranges of objects joined into a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.errors import CLIENT_ERRORS, status_of
from rollingfs.backend.s3.upload import PARTS_MAX, Multipart, Range, abort_after, copy_bounds
from rollingfs.runtime.concurrency import gather_limited

COPY_OBJECT_BYTES_MAX = 5 * 2**30
"""The largest object that one CopyObject copies."""


async def copy_object(
    client: S3Client, source: dict[str, str], target: dict[str, str], multipart: Multipart, token: str | None
) -> None:
    """Copy a whole object, if it has `token`: by one CopyObject, or by a multipart copy beyond 5 GiB.

    Parameters
    ----------
    source, target
        Bucket and Key of each object.
    multipart
        An upload of the target that has not begun.
    """
    condition = {} if token is None else {"CopySourceIfMatch": token}
    try:
        await client.repeatable("copy_object", **target, CopySource=source, **condition)
    except CLIENT_ERRORS as error:
        if status_of(error) != 400:
            raise
        size = (await client.repeatable("head_object", **source))["ContentLength"]
        if size <= COPY_OBJECT_BYTES_MAX:
            raise
        await join_ranges([Range(source, 0, size)], multipart, client.requests_max, token)


async def join_ranges(
    ranges: Sequence[Range], multipart: Multipart, requests_max: int, token: str | None = None
) -> None:
    """Fill an upload with ranges of objects, several at a time, and complete it; if anything fails, abort it.

    Parameters
    ----------
    token
        The token that the source must have.
    """
    pieces = [piece for whole in ranges for piece in _pieces(whole)]
    if len(pieces) > PARTS_MAX:
        raise ValueError(f"{len(pieces)} parts are too many for {multipart.path!r}: a join takes at most {PARTS_MAX}")
    await multipart.begin()
    try:
        copies = [partial(multipart.copy, number, piece, token) for number, piece in enumerate(pieces, 1)]
        await gather_limited(copies, requests_max)
        await multipart.complete()
    except BaseException as error:
        await abort_after(multipart.abort, error)
        raise


def _pieces(whole: Range) -> Iterator[Range]:
    for start, end in copy_bounds(whole.start, whole.end):
        yield Range(whole.source, start, end)
