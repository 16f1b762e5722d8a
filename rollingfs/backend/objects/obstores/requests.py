"""Limits of obstore: keys that it can name, bytes in pieces, a number of requests at once."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from rollingfs.backend.contract import Buffer, Over
from rollingfs.backend.objects.bucket import Answer, Condition, Span
from rollingfs.backend.objects.request_errors import ERRORS

if TYPE_CHECKING:
    from obstore import GetOptions, PutMode

QUICK_BYTES_MAX = 1024 * 1024
"""Sending a larger body may take longer than the read timeout, which obstore counts from the start of the sending."""
SEND_S_MAX = 300.0
"""The time for a larger body, in addition to the read timeout."""
CONNECT_S_MAX = 5.0
READ_S_MAX = 15.0
"""For an answer to begin, and between its bytes, if the user's filesystem has no limit."""
READS_MAX = 20
"""Maximum duration of a request in read timeouts: an answer that drips restarts the read timeout with each byte."""
_NO_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
"""Empty parts, "." and ".." in a key, and control characters: obstore refuses them, or drops the empty parts."""


def can_name(key: str) -> bool:
    """Return whether obstore sends a request for just this key."""
    return _NO_KEY.search(key) is None


def is_quick(data: Sequence[Buffer]) -> bool:
    """Return whether the read timeout is long enough to send the bytes as well."""
    return sum(memoryview(piece).nbytes for piece in data) <= QUICK_BYTES_MAX


def put_mode(over: Condition) -> PutMode:
    """Return the condition of a write: a free name, or a token."""
    if isinstance(over, str):
        return {"e_tag": over}
    return "create" if over is Over.NOTHING else "overwrite"


def get_options(span: Span, if_token: str, unless_token: str) -> GetOptions:
    """Return the range and the conditions of a read; an empty token means no condition."""
    given = {"range": span, "if_match": if_token, "if_none_match": unless_token}
    return {name: value for name, value in given.items() if value}  # type: ignore[return-value]


def body(data: Sequence[Buffer]) -> Buffer | list[Buffer]:
    """Return bytes as obstore takes them, not copied together."""
    if len(data) < 2:
        return b"".join(data)
    return [piece if isinstance(piece, bytes) else memoryview(piece).cast("B") for piece in data]


def new_token(token: str, over: Condition) -> str:
    """Return the token that a write gave an object.

    Where a store answers a PUT with 303, obstore follows with a GET, as HTTP has it, and takes the token of its answer
    for the token of a written object.

    Raises
    ------
    ConnectionError
        It is the token that the write had to replace, so that no fact proves that the bytes were written.
    """
    if isinstance(over, str) and token.strip('"') == over.strip('"'):
        raise ConnectionError("the store's answer has the ETag that was to be replaced, so it may have written nothing")
    return token


class Proof:
    """Whether an answer to a write without a token to replace, whose body has a certain MD5, is one to that write.

    Where a store or a gateway answers a PUT with 303, obstore follows with a GET, and gives the ETag of its answer:
    of a page, for example, on which somebody is to log in. An ETag that is the MD5 of the bytes proves the write. If
    it is not, the file is read back. If the file is right, the ETags of this store are no hashes: then they are no
    proof, and are ignored.
    """

    def __init__(self) -> None:
        self._is_md5 = True

    def begin(self, data: Sequence[Buffer]) -> Awaitable[str] | None:
        """Begin to hash many bytes, while they are sent."""
        if not self._is_md5 or is_quick(data):
            return None
        return asyncio.get_running_loop().run_in_executor(None, _md5_of, data)

    async def check(
        self,
        hashed: Awaitable[str] | None,
        token: str,
        data: Sequence[Buffer],
        read: Callable[[], Awaitable[Answer | None]],
    ) -> None:
        """Check the token that a write gave.

        Parameters
        ----------
        hashed
            The result of `begin`.
        read
            Reads the file.

        Raises
        ------
        ConnectionError
            No fact proves that the bytes were written.
        """
        if not self._is_md5 or token.strip('"').lower() == (_md5_of(data) if hashed is None else await hashed):
            return
        try:
            found = await read()
        except ERRORS as error:
            raise ConnectionError(f"whether it was written could not be looked up: {error}") from error
        if found is None or found.token != token or found.data != b"".join(data):
            raise ConnectionError("the store's answer is not one to this write, so it may have written nothing")
        self._is_md5 = False


def _md5_of(data: Sequence[Buffer]) -> str:
    hashing = hashlib.md5(usedforsecurity=False)
    for piece in data:
        hashing.update(piece)
    return hashing.hexdigest()


class Places:
    """A limit for the number of requests at once, on any event loop."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._semaphore = asyncio.Semaphore(count)

    def taken(self) -> asyncio.Semaphore:
        """Return the semaphore that a request must enter."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._semaphore = loop, asyncio.Semaphore(self._count)
        return self._semaphore
