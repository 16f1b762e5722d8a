"""Bodies that belong to their ETag: a store may answer a GET next to a PUT with the old body and the new ETag.

versitygw 1.8.0 does so, most often with ``--sidecar``, and rclone 1.76.0 mixes two bodies. A commit that is made of
such an answer would replace the header of another writer on a condition that holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rollingfs.backend.contract import Buffer
from rollingfs.backend.objects.bucket import Answer
from rollingfs.runtime.concurrency import backoff_s

SETTLE_S_MAX = 1.0
"""Time for which an answer is asked for again. A later misfit was so written."""
_MD5 = re.compile(r'"?[0-9a-f]{32}"?')


class Etags:
    """Kind of the ETags of a bucket: the MD5 of the bodies, as S3's are, or not (as with keys of KMS)."""

    def __init__(self) -> None:
        self._are_md5: bool | None = None
        """None while neither a write nor a read has shown it."""
        self.is_proved = False
        """Whether a write has shown it."""

    def learn(self, token: str, body: bytes) -> None:
        """Note whether the token of a write is the MD5 of its body."""
        self._are_md5, self.is_proved = _is_md5(token, body), True

    def fits(self, answer: Answer) -> bool:
        """Return whether a whole body may belong to its token."""
        if self._are_md5 is False or not _MD5.fullmatch(answer.token):
            return True
        return _is_md5(answer.token, answer.data)

    async def settle(self, answer: Answer, ask: Callable[[], Awaitable[Answer | None]]) -> Answer | None:
        """Ask again until a body fits its token, or stays the same without a write that explains it.

        A bucket without a proof that its ETags are MD5 is asked once more only: most such buckets have keys of KMS.
        """
        began_s = time.monotonic()
        for count in itertools.count():
            again = await ask()
            if again is None:
                return None
            if self.fits(again):
                return replace(again, was_unfit=True)
            is_same = (again.token, bytes(again.data)) == (answer.token, bytes(answer.data))
            if (is_same and not self.is_proved) or time.monotonic() - began_s > SETTLE_S_MAX:
                break
            answer = again
            await asyncio.sleep(backoff_s(count))
        self._are_md5 = False
        return again


def _is_md5(token: str, body: Buffer) -> bool:
    return token.strip('"') == hashlib.md5(body, usedforsecurity=False).hexdigest()
