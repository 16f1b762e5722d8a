"""A trial: S3 without an event loop, each file by obstore's blocking call in the thread of the caller.

It has the proof of an answer, and no more: no limit of requests at once, no deadline, no rule for a fork or for the end
of the process, credentials only that need no wait, and no write that another way than obstore must do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import obstore
from obstore.exceptions import BaseError
from s3fs import S3FileSystem

from rollingfs.backend.contract import Buffer, Metadata
from rollingfs.backend.objects import obstore_files as requests
from rollingfs.backend.objects.bucket import Answer, Condition, RecentBuckets, Span
from rollingfs.backend.objects.obstore_files import ObstoreObjects
from rollingfs.backend.objects.request_errors import token_of
from rollingfs.backend.objects.s3.backend import S3Backend
from rollingfs.backend.objects.s3.bucket import S3Bucket
from rollingfs.runtime.concurrency import drive


class Objects(ObstoreObjects):
    """The files of a bucket, by calls that block."""

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        self._check(key)
        try:
            found = obstore.get(self.quick, key, options=requests.get_options(span, if_token, unless_token))
            data = found.bytes()
        except (BaseError, OSError) as error:
            raise self._said(error) from None
        return Answer(memoryview(data), token_of(found.meta["e_tag"]), found.meta["last_modified"].timestamp())

    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        self._check(key)
        attributes, body, mode = {**self.attributes, **(metadata or {})}, requests.body(data), requests.put_mode(over)
        try:
            answer = obstore.put(self.quick, key, body, attributes=attributes, mode=mode, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._said(error) from None
        token = requests.new_token(token_of(answer["e_tag"]), over)
        await self._prove(key, token, data)
        return token


class Bucket(S3Bucket):
    """The bucket, whose reads have no time limit of an event loop."""

    async def _get(self, key: str, span: Span = None, **tokens: str) -> Answer | None:
        return await self._by_way(lambda way: way.get(key, span, **tokens))


class BlockingBackend(S3Backend):
    """The account. Its verbs never suspend."""

    is_async = False

    def __init__(self, fs: S3FileSystem) -> None:
        super().__init__(fs)
        self.buckets = RecentBuckets(partial(Bucket, self))

    async def objects(self, bucket: str, *more: Any) -> Any:
        """As `S3Backend.objects`."""
        found = await super().objects(bucket, *more)
        provide = found.make.keywords["credentials"]
        found.make = partial(found.make, credentials=lambda: drive(provide()))  # obstore cannot await it without a loop
        found.__class__ = Objects
        found.__dict__.pop("quick", None)
        return found


BlockingBackend.__name__ = S3Backend.__name__
"""The probe's verdict is remembered by this name, and the probe needs a loop."""
