"""Files in the buckets of an object store. `rollingfs.backend.objects.bucket` has the requests."""

from __future__ import annotations

import abc
import contextlib
import errno
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import (
    Backend,
    Blob,
    Buffer,
    FileInfo,
    Listing,
    Metadata,
    Over,
    Part,
    PendingUpload,
    Upload,
    finished,
)
from rollingfs.backend.contract_values import Capability
from rollingfs.backend.objects.bucket import Bucket
from rollingfs.backend.objects.request_errors import Refusal, answer_of, errors_of, is_conflict, is_gone, retrying
from rollingfs.backend.objects.upload import PART_BYTES, PARTS_MAX, PUT_BYTES_MAX, ObjectUpload, put
from rollingfs.format import names
from rollingfs.runtime.concurrency import gather_limited

FIRST_PAGE_KEYS_MAX = 16
"""The first page of a folder shows this many keys: enough for callers that ask whether anything is in it."""
DELETES_AT_ONCE_MAX = 4


class ObjectBackend(Backend):
    """Files of an account on S3, Azure or Google. A subclass has the account's credentials, and makes its buckets."""

    is_async = True
    capability = Capability(has_metadata=True, has_clock=True, can_copy=True)

    scheme: str
    """The scheme of its URLs."""
    schemes: frozenset[str]
    """All schemes of such URLs."""
    loop: Any
    """The event loop on which verbs must run; None for the caller's own loop (``asynchronous=True``)."""
    fs: Any = None
    """The private clone of the user's filesystem whose connections are in use; None without a clone."""
    buckets: Mapping[str, Bucket]
    """By name. A bucket that does not exist has its place there too."""
    copies_between = True
    """Whether the server copies between buckets."""
    part_bytes = PART_BYTES
    put_bytes_max = PUT_BYTES_MAX
    """The size of the parts of an upload, and of the largest file that a PUT writes."""
    makes_parents = False
    """Whether a folder that is made has its bucket made."""

    # -- an account ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def list_buckets(self) -> Sequence[str]:
        """Return the names of all buckets."""

    @abc.abstractmethod
    async def make_bucket(self, name: str) -> None:
        """Make a bucket that was missing a moment ago."""

    @abc.abstractmethod
    async def remove_bucket(self, name: str) -> None:
        """Remove an empty bucket."""

    @abc.abstractmethod
    async def bucket_name(self, bucket: str) -> str:
        """Return endpoint and bucket, alike in every process, without a secret."""

    def split(self, path: str) -> tuple[str, str]:
        """Return the bucket and the key of a path."""
        name, _, key = path.partition("/")
        return name, key

    def check_key(self, key: str) -> str:
        """Return why no file of this store can have this name; "" if it can."""
        return ""

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        """Send a GET."""
        bucket, key = self._place(path)
        answer = await answer_of("reading", path, bucket.get, key)
        assert answer is not None, "no condition was given"
        return answer.blob()

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        """Send a GET with a condition."""
        bucket, key = self._place(path)
        answer = await answer_of("reading", path, bucket.get, key, unless_token=token)
        return None if answer is None or answer.token == token else answer.blob()

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> Buffer:
        """Send a GET of a range, on the condition of a token."""
        bucket, key = self._place(path)
        with errors_of("reading", path, token):
            try:
                answer = await retrying(partial(bucket.get, key, (start, end), if_token=token or ""))
            except Refusal as error:
                if error.status != 416:
                    raise
                if token is not None:  # the store may have looked at the range before the condition
                    shared_errors.check_token(path, (await self.stat(path)).token, token)
                return b""  # the file ends before `start`
        assert answer is not None, "an answer without bytes is one to another condition"
        if token is not None:  # the store may not know the condition
            shared_errors.check_token(path, answer.token, token)
        return answer.data

    async def stat(self, path: str) -> FileInfo:
        """Send a HEAD."""
        bucket, key = self._place(path)
        return await answer_of("looking up", path, bucket.head, key)

    async def metadata(self, path: str) -> Mapping[str, str]:
        """Send a HEAD, or ask for Google's description."""
        bucket, key = self._place(path)
        return await answer_of("looking up", path, bucket.metadata, key)

    async def is_folder(self, path: str) -> bool:
        """List a single file; of a bucket, look at it."""
        if not path:
            return True
        try:
            bucket, prefix = self._folder(path)
        except FileNotFoundError:
            return False
        with errors_of("looking up", path):
            try:
                return await retrying(partial(bucket.has_any, prefix))
            except Refusal as error:
                if error.status == 404:
                    return False
                raise

    async def list(self, folder: str) -> Listing:
        """List page by page; at the top, list the buckets."""
        if not folder:
            return await self._buckets()
        entries: list[FileInfo] = []
        is_there, place = not self._folder(folder)[1], None
        while True:
            listed = await self._page(folder, place)
            is_there = is_there or bool(listed.entries)
            entries += self._entries(folder, listed)
            place = listed.next_place
            if place is None:
                break
        if not is_there:
            with contextlib.suppress(FileNotFoundError):
                await self.stat(folder)
                raise shared_errors.not_a_folder(folder)
            raise shared_errors.no_folder(folder)
        return Listing(_sorted(entries), listed.now)

    async def list_page(self, folder: str, place: str | None = None) -> Listing:
        """List a page, the first with few keys; at the top, list the buckets."""
        if not folder:
            return await self._buckets()
        listed = await self._page(folder, place, keys_max=None if place else FIRST_PAGE_KEYS_MAX)
        if place is None and self._folder(folder)[1] and not listed.entries:
            raise shared_errors.no_folder(folder)  # or a file has the name: no caller of this verb needs to know
        return Listing(_sorted(self._entries(folder, listed)), listed.now, listed.next_place)

    async def _buckets(self) -> Listing:
        found = await answer_of("listing", "the buckets", self.list_buckets)
        return Listing(tuple(FileInfo(name, 0, 0.0, is_folder=True) for name in sorted(found)))

    async def _page(self, folder: str, place: str | None = None, **more: Any) -> Listing:
        bucket, prefix = self._folder(folder)
        async with self._named(folder):
            return await answer_of("listing", folder, bucket.page, prefix, place, **more)

    @contextlib.asynccontextmanager
    async def _named(self, path: str) -> AsyncIterator[None]:
        """Name the store in the error for an answer that no store should give."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.EPROTO:
                raise
            store = shared_errors.with_product(await self.store_name(path) or "", self.product(path))
            raise OSError(errno.EPROTO, f"{error.strerror}; the store is {store}") from error

    def _entries(self, folder: str, listed: Listing) -> Iterator[FileInfo]:
        """Return the entries of a page, without the empty file of the folder's own name."""
        bucket, prefix = self._folder(folder)
        marker = f"{bucket.name}/{prefix}"
        return (entry for entry in listed.entries if entry.is_folder or entry.path != marker)

    async def keeps_versions(self, path: str) -> bool | None:
        """Ask the service, if it has such a request."""
        return await answer_of("asking for the versioning of", path, self.buckets[self.root(path)].keeps_versions)

    async def now(self, path: str) -> float:
        """Send a request whose answer has a date."""
        return await answer_of("asking the time of", path, self.buckets[self.root(path)].now)

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        """Send a PUT once, on the condition of a free name."""
        bucket, key = self._place(path)
        with errors_of("creating", path):
            try:
                return await bucket.put(key, [data], Over.NOTHING)
            except Refusal as error:
                if is_conflict(error):
                    raise shared_errors.name_taken(path) from error
                raise

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        """Send a PUT once, on the condition of a token."""
        bucket, key = self._place(path)
        with errors_of("replacing", path, token):
            try:
                return await bucket.put(key, [data], token)
            except Refusal as error:
                if is_gone(error):
                    raise shared_errors.changed(path, token, None) from error
                raise

    async def delete_if(self, path: str, token: str) -> bool:
        """Send a DELETE on the condition of a token; a HEAD after a refusal.

        A store may ignore the condition.
        """
        if not self.capability.can_delete_if:
            return await super().delete_if(path, token)
        bucket, key = self._place(path)
        with errors_of("deleting", path):
            try:
                # not after a lost answer, where a refusal could be this request's own doing
                await retrying(partial(bucket.delete_if, key, token), unanswered=False)
            except Refusal as error:
                if is_conflict(error):  # SeaweedFS and Azure refuse any condition on a file that is gone
                    with contextlib.suppress(FileNotFoundError):
                        await self.stat(path)
                        return False
                elif not is_gone(error):
                    raise
        return True

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        """Send a PUT, or an upload in parts if it is large."""
        size = sum(memoryview(piece).nbytes for piece in data)
        if size <= self.put_bytes_max:
            with errors_of("writing", path):
                await put(*self._place(path), path, data, None, metadata)
            return
        part_bytes = max(self.part_bytes, -(-size // PARTS_MAX))
        async with finished(self._upload(path, None, metadata, part_bytes)) as upload:
            for piece in data:
                await upload.write(piece)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        """Return an upload in parts that begins with the second part."""
        # an export may be larger than all parts of a chunk's upload
        return self._upload(path, over, metadata, self.part_bytes if over is None else self.put_bytes_max)

    def _upload(self, path: str, over: Over | None, metadata: Metadata, part_bytes: int) -> ObjectUpload:
        put_bytes_max = max(part_bytes, self.put_bytes_max)
        return ObjectUpload(*self._place(path), path, over, metadata, self, self.split, part_bytes, put_bytes_max)

    async def copy(self, source: str, target: str, token: str | None = None, metadata: Metadata = None) -> None:
        """Copy on the server; between buckets perhaps through this process."""
        (origin, key), (bucket, target_key) = self._place(source), self._place(target)
        if origin.name != bucket.name and not self.copies_between:
            await self._copy_through(source, target, token, metadata)
            return
        with errors_of("copying", source, token):
            try:
                await retrying(partial(bucket.copy, origin.name, key, target_key, token, metadata))
            except NotImplementedError:  # of a file that needs parts
                await self._copy_through(source, target, token, metadata)

    async def _copy_through(self, source: str, target: str, token: str | None, metadata: Metadata) -> None:
        info = await self.stat(source)
        if token is not None:
            shared_errors.check_token(source, info.token, token)
        async with finished(upload := self._upload(target, None, metadata, self.put_bytes_max)):
            await upload.copy_through(Part(source, 0, info.size, info.token))

    # -- removing and folders ------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files by as few DELETEs as the store takes."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            name, key = self.split(path)
            if key and not self.check_key(key):  # else there is no such file
                by_bucket.setdefault(name, []).append(key)
        batches = [
            partial(self._delete, bucket, keys[first : first + bucket.deletes_max])
            for bucket, keys in ((self.buckets[name], keys) for name, keys in by_bucket.items())
            for first in range(0, len(keys), bucket.deletes_max)
        ]
        await gather_limited(batches, DELETES_AT_ONCE_MAX)

    async def _delete(self, bucket: Bucket, keys: Sequence[str]) -> None:
        verb = "deleting" if len(keys) == 1 else f"deleting {len(keys)} files, such as"
        with errors_of(verb, f"{bucket.name}/{keys[0]}"):
            await bucket.delete(keys)

    async def list_uploads(self, folder: str, name: str | None = None) -> Sequence[PendingUpload]:
        """List page by page.

        MinIO lists only the uploads of an exact key, so `name` is needed there. It forgets uploads after 24 hours.
        """
        bucket, prefix = self._folder(folder)
        async with self._named(folder):
            with errors_of("listing unfinished uploads in", folder):
                return await bucket.pending(prefix, name or "")

    async def abort_upload(self, upload: PendingUpload) -> None:
        """Send a request."""
        bucket, key = self._place(upload.path)
        with errors_of("aborting the upload of", upload.path):
            await bucket.forget(key, upload.id)

    async def make_folder(self, path: str) -> bool:
        """Look at the bucket, and make it if it is missing; folders are only prefixes."""
        name, key = self.split(path)
        if not key or self.makes_parents:
            await answer_of("making the bucket", name, self._see_to_bucket, name)
        return False

    async def _see_to_bucket(self, name: str) -> None:
        try:
            await self.buckets[name].has_any("")
        except Refusal as error:
            if error.status == 404:
                await self.make_bucket(name)
            elif error.status != 403:  # to a client that may not look, a later write shows whether it may write
                raise

    async def remove_folder(self, path: str) -> None:
        """Remove an empty bucket, or the file of an empty folder's own name.

        Some tools leave such a file.
        """
        bucket, prefix = self._folder(path)
        listed = await self._page(path, keys_max=2)
        if any(self._entries(path, listed)):
            raise shared_errors.not_empty(path)
        if prefix and not listed.entries:
            raise shared_errors.no_folder(path)
        with errors_of("removing", path):
            if prefix:
                await bucket.delete([prefix])
            else:
                await retrying(partial(self.remove_bucket, bucket.name))

    # -- names ---------------------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        """Return a path, without the scheme of a URL.

        Raises
        ------
        ValueError
            The URL names another account.
        """
        scheme, found, rest = path.partition("://")
        return (rest if found and scheme in self.schemes else path).strip("/")

    def unstrip(self, path: str) -> str:
        return f"{self.scheme}://{path}"

    def root(self, path: str) -> str:
        """Return the bucket."""
        return self.split(path)[0]

    async def store_name(self, path: str) -> str | None:
        """Return the endpoint and the bucket, and how the requests go where that makes a difference."""
        with errors_of("connecting to the store of", path):
            return await self.bucket_name(self.root(path))

    def _place(self, path: str) -> tuple[Bucket, str]:
        """Return the bucket and the key of a file; an `OSError` if there can be no such file."""
        name, key = self.split(path)
        if not key:
            raise FileNotFoundError(errno.ENOENT, "this is a bucket, not a file", path)
        why = self.check_key(key)
        if why:
            raise OSError(errno.EINVAL, f"{why}, so nothing was read or written: use another name", names.shown(path))
        return self.buckets[name], key

    def _folder(self, path: str) -> tuple[Bucket, str]:
        """Return the bucket and the prefix of a folder; `FileNotFoundError` if there can be no such folder."""
        name, key = self.split(path)
        if self.check_key(key or "x"):
            raise shared_errors.no_folder(path)
        # the path of a folder of another tool may end in "/", because the folder's name is empty
        return self.buckets[name], f"{key}/" if key or path == f"{name}/" else ""


def _sorted(entries: Iterable[FileInfo]) -> tuple[FileInfo, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.path))
