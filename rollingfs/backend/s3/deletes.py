"""Many objects deleted at once: DeleteObjects, which a store may obey in part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.errors import errors_of, refused_keys
from rollingfs.runtime.concurrency import gather_limited

DELETE_KEYS_MAX = 1000
"""Objects that one DeleteObjects takes."""
DELETES_AT_ONCE_MAX = 4


async def delete_objects(client: S3Client, targets: Iterable[dict[str, str]]) -> None:
    """Delete objects, each given by its Bucket and Key; a missing object is no error.

    Raises
    ------
    OSError
        Some objects could not be deleted; the message names the first.
    """
    keys: dict[str, list[str]] = {}
    for target in targets:
        keys.setdefault(target["Bucket"], []).append(target["Key"])
    batches = [
        partial(_delete_keys, client, bucket, of_bucket[first : first + DELETE_KEYS_MAX])
        for bucket, of_bucket in keys.items()
        for first in range(0, len(of_bucket), DELETE_KEYS_MAX)
    ]
    await gather_limited(batches, DELETES_AT_ONCE_MAX)


async def _delete_keys(client: S3Client, bucket: str, keys: Sequence[str]) -> None:
    left = list(keys)

    async def once() -> None:
        orders = {"Objects": [{"Key": key} for key in left], "Quiet": True}
        answer = await client.call("delete_objects", Bucket=bucket, Delete=orders)
        errors = [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]
        left[:] = [error["Key"] for error in errors]  # a busy store may delete some keys and put off others
        if errors:
            raise refused_keys(errors, bucket, len(keys))

    with errors_of("deleting", f"{bucket}/{keys[0]}"):
        await client.retrying(once)
