"""A bucket of S3 or Google, or container of Azure: the requests that `ObjectBackend` needs of each kind of store."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rollingfs.backend.contract import Blob, Buffer, FileInfo, Listing, Metadata, Over, Part, PendingUpload
from rollingfs.runtime.values import value_class

BUCKETS_MAX = 64
"""Buckets whose idle connections are kept."""
QUICK_BYTES_MAX = 1024 * 1024
"""Sending a larger body may take longer than the read timeout, which obstore counts from the start of the sending."""
SEND_S_MAX = 300.0
"""The time for a larger body, in addition to the read timeout."""
CONNECT_S_MAX = 5.0
READ_S_MAX = 15.0
"""For an answer to begin, and between its bytes, if the user's filesystem has no limit."""
READS_MAX = 20
"""Maximum duration of a request in read timeouts: an answer that drips restarts the read timeout with each byte."""
Span = tuple[int, int] | None
"""The bytes ``[start, end)`` of a file; None for all."""
Condition = Over | str | None
"""The files that a write may replace: as `Over`, a file with a token, or (None) the name is unique."""


@value_class
class Answer:
    """The answer of a store with a file."""

    data: Buffer
    token: str
    """Token of the whole file; "" if a range came without it, as without a condition."""
    modified: float
    """Seconds since 1970 by the store's clock; unknown for a range."""
    was_unfit: bool = False
    """As of `Blob`."""

    def blob(self) -> Blob:
        """Return the same as callers of the contract take it."""
        return Blob(bytes(self.data), self.token, self.modified, was_unfit=self.was_unfit)


class Parts(abc.ABC):
    """A new file that is sent in parts, invisible before it is complete. It sends no request before the first part."""

    @property
    def held_bytes(self) -> int:
        """Return bytes that it has taken and may still have in memory."""
        return 0

    @abc.abstractmethod
    async def write(self, part: bytes) -> None:
        """Send a part, or begin to; all but the last have the upload's size."""

    async def copy(self, part: Part, bucket: str, key: str) -> None:
        """Send a range of another file on the server, or begin to, if that file has the part's token.

        The errors, here or in a later call, are of the contract, and name the other file.

        Raises
        ------
        NotImplementedError
            The store does not know the request, by its first answer, so the bytes must pass through this client.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot copy on the server")

    async def rest(self, last: bytes) -> bytes:
        """Send of the last bytes what can be sent before `complete`, and wait for it; return what is left."""
        return last

    @abc.abstractmethod
    async def complete(self, last: bytes) -> None:
        """Send the bytes that are left, and make the file of all parts."""

    @abc.abstractmethod
    async def abort(self) -> None:
        """Have the store forget the parts, if it can. The file is not made after that."""


class Bucket(abc.ABC):
    """The files of a bucket. Failures are errors of `rollingfs.backend.objects.request_errors.ERRORS`.

    Each `get`, `put` and `delete_if` is a request, sent once. `delete` and the parts may repeat requests.
    """

    name: str
    deletes_max = 1000
    """The files of a `delete`."""
    can_join: bool | None = None
    """The store does `Parts.copy`. Its first answer decides."""

    @abc.abstractmethod
    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        """Return a file, or bytes of it, by the condition of a token, or None.

        A store may ignore the conditions: the answer has the token.
        """

    @abc.abstractmethod
    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        """Write a whole file by the condition of `over`; return its token."""

    @abc.abstractmethod
    async def head(self, key: str) -> FileInfo:
        """Return the store's facts of a file."""

    @abc.abstractmethod
    async def metadata(self, key: str) -> Mapping[str, str]:
        """Return the metadata of a file; names may have ``_`` for ``-``."""

    @abc.abstractmethod
    async def page(self, prefix: str, place: str | None = None, *, keys_max: int | None = None) -> Listing:
        """Return a page of a folder: "", or a key that ends with a slash.

        The empty file of the folder's own name may be among the entries, by which tools show a folder.
        """

    def folder_of(self, key: str) -> FileInfo:
        """Return a folder; its path ends in a slash if the key ends in "//"."""
        return FileInfo(f"{self.name}/{key.removesuffix('/')}", 0, 0.0, is_folder=True)

    @abc.abstractmethod
    async def has_any(self, prefix: str) -> bool:
        """Return whether there is anything below a folder; "" asks whether the bucket exists."""

    @abc.abstractmethod
    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most `deletes_max` files; a missing file is not an error."""

    @abc.abstractmethod
    async def delete_if(self, key: str, token: str) -> None:
        """Delete a file if it has this token."""

    @abc.abstractmethod
    async def copy(self, bucket: str, source: str, target: str, token: str | None, metadata: Metadata = None) -> None:
        """Copy a file of another bucket into this one, if it has this token; the copy is whole when this returns.

        Azure takes no other metadata with a copy, so there it has the source's.
        """

    @abc.abstractmethod
    def parts(self, key: str, over: Over | None, metadata: Metadata = None) -> Parts:
        """Begin a new file of unknown size."""

    @abc.abstractmethod
    async def now(self) -> float:
        """Return the store's clock, in seconds since 1970, from any answer, be it a refusal."""

    async def keeps_versions(self) -> bool | None:
        """Return whether former versions of files may be kept; or None if it is unknown."""
        return None

    async def pending(self, prefix: str, name: str) -> Sequence[PendingUpload]:
        """Return the unfinished uploads in a folder, if the service lists them.

        With `name`, only that file's.
        """
        return ()

    async def forget(self, key: str, id: str) -> None:
        """Abort an unfinished upload of `pending`."""
        raise NotImplementedError(f"{type(self).__name__} has no unfinished uploads")


def is_quick(data: Sequence[Buffer]) -> bool:
    """Return whether the read timeout is long enough to send the bytes as well."""
    return sum(memoryview(piece).nbytes for piece in data) <= QUICK_BYTES_MAX


async def read_up_to(body: Any, limit: int | None) -> bytes:
    """Return the first bytes of an answer, the rest of which is not read; None for all."""
    if limit is None:
        return bytes(await body.read())
    data = b""
    while len(data) < limit and (more := await body.read(limit - len(data))):
        data += more
    return data


B = TypeVar("B", bound=Bucket)


class RecentBuckets(dict[str, B]):
    """The buckets that were opened last, by name."""

    def __init__(self, make: Callable[[str], B]) -> None:
        self._make = make

    def __missing__(self, name: str) -> B:
        made = self[name] = self._make(name)
        if len(self) > BUCKETS_MAX:
            del self[next(iter(self))]
        return made


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
