"""The backend contract: the verbs that segments need of a store.

An adapter for another store subclasses `Backend`. It is finished when it passes `rollingfs.testing.BackendContract`.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping, Sequence

from rollingfs.backend.contract_values import (
    Adapt as Adapt,
    Blob as Blob,
    Buffer as Buffer,
    Capability,
    FileInfo as FileInfo,
    Link as Link,
    Listing as Listing,
    Metadata as Metadata,
    Over as Over,
    Part as Part,
    PendingUpload as PendingUpload,
    Upload as Upload,
    finished as finished,
    frozen as frozen,
)


class Backend(abc.ABC):
    """A store of files.

    Every verb is a coroutine. Where `is_async` is false, no verb ever suspends: a caller may drive the verb with
    ``send(None)``, without an event loop, from any thread. A verb that waits for another process gives up
    with `LockedError` at `rollingfs.runtime.concurrency.until_s`.

    All verbs raise `FileNotFoundError` for a missing file, `NoBucketError` for a missing bucket, `PermissionError`
    where the store refuses, else an `OSError`, which of a conditional verb, never repeated, leaves the outcome open.

    Paths are the store's own ("bucket/key", "/folder/file"), with "/" between parts, and not at the end.
    """

    is_async: bool = False
    """Whether verbs suspend. If so, they must run on the event loop of the store's client."""
    capability: Capability = Capability()
    """The optional abilities and the limits of the store."""
    tiers: Mapping[str, bool] = {}
    """The aliases of its tiers; whether the server copies between each and the hot store, where it copies at all."""

    # -- reading -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def read(self, path: str) -> Blob:
        """Read a whole small file with its token, in a single request.

        Of a file that is longer than `sizes` allows, it reads the beginning.

        Raises
        ------
        FileNotFoundError
            There is no such file (a folder is not a file).
        """

    @abc.abstractmethod
    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        """Read like `read`, but return None if the file still has `token`: a conditional request without a body.

        Of a header that was extended since, the blob may have only the new records (`Blob.is_rest`).
        """

    @abc.abstractmethod
    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> Buffer:
        """Return bytes ``[start, end)`` of a file; fewer only if the file ends before.

        The caller sees to ``0 <= start < end``. With `token`, only of the file with that token, for a file that other
        programs may replace. A store whose files can grow in place takes a file that has only grown for the same file.

        Raises
        ------
        ConflictError
            The file has another token than `token`. (A file that is gone is a `FileNotFoundError`.)
        """

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        """Fill `target` from byte `start` of a file on, as `read_range`; return the bytes read. This default copies."""
        data = await self.read_range(path, start, start + len(target), *([] if token is None else [token]))
        target[: len(data)] = data
        return len(data)

    def hold(self, path: str, token: str) -> object | None:
        """Keep a file readable that others may replace or delete: `read_range` with its token still reads it.

        The file is held until the caller drops the object that this returns. None where the store cannot hold a file,
        or where too many files are held; `read_range` then detects another file.

        Raises
        ------
        FileNotFoundError, ConflictError
            The file is gone, or has another token.
        """
        return None

    @abc.abstractmethod
    async def stat(self, path: str) -> FileInfo:
        """Return size, date and token of a *file*; a folder raises `FileNotFoundError`."""

    async def metadata(self, path: str) -> Mapping[str, str]:
        """Return the metadata of a file that `write` or `open_write` got; empty if the store has no metadata.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        """
        return {}

    @abc.abstractmethod
    async def is_folder(self, path: str) -> bool:
        """Return whether a folder, or a prefix with something under it, has this name."""

    @abc.abstractmethod
    async def list(self, folder: str) -> Listing:
        """Return everything directly in a folder, never from a cache.

        Raises
        ------
        FileNotFoundError
            There is no such folder (on an object store: no file has this prefix).
        NotADirectoryError
            A file has this name.
        """

    async def list_page(self, folder: str, place: str | None = None) -> Listing:
        """Return a part of `list`, from `Listing.next_place` of a page on.

        The first page is short. All paths of a page sort before all paths of the next.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            As `list`; a store may raise the first where a file has this name.
        """
        return await self.list(folder)

    @abc.abstractmethod
    async def now(self, path: str) -> float:
        """Return the time of the clock that dates files at `path`.

        It is in seconds since 1970, and may differ from this machine's.

        0.0 where files have no dates: no file is ever old there.
        """

    # -- conditional writes --------------------------------------------------------------------------------

    @abc.abstractmethod
    async def create(self, path: str, data: Buffer) -> str:
        """Write a file if none exists, atomically and durably; return its token. Missing parent folders are made.

        Raises
        ------
        FileExistsError
            A file exists, according to the store. If an answer was lost, that file may be the caller's own.
        """

    @abc.abstractmethod
    async def replace(self, path: str, data: Buffer, token: str) -> str:
        """Replace a file if it still has `token`, atomically and durably; return the new token.

        Raises
        ------
        ConflictError
            The file has another token or is gone, according to the store. If an answer was lost, the caller's own
            request may have done that.
        """

    async def extend(self, path: str, data: Buffer, token: str, adapt: Adapt | None = None) -> str | None:
        """Put a record after a header that still has `token`, atomically and durably; return the new token.

        None: the header cannot be extended in place, and no byte was written; `replace` can write it.

        Parameters
        ----------
        adapt
            A store with a lock may call it with the records that were put after the header since it had `token`; or
            with the content and the token of the header that is there instead. It returns the record to put there
            instead of `data`, or None to have the header taken for another: then this thread gets the turn, if any.

        Raises
        ------
        ConflictError
            As `replace`.
        UnflushedError
            The record is written, and a loss of power may take it back.
        """
        return None

    async def take_turn(self, path: str) -> None:  # noqa: B027 - a store without `Capability.has_turns` has none
        """Let no other client change a header, until this thread has changed it.

        It changes it by `replace` or `extend`, or gives the turn up by `end_turn`.

        A commit never depends on a turn: those verbs compare tokens all the same. Without a header there is no
        turn, and no error.

        Raises
        ------
        LockedError
            Another has held it for too long.
        """

    def end_turn(self, path: str) -> None:  # noqa: B027
        """Give up the turn of this thread at a header, if it has one."""

    async def flush(self, path: str) -> None:  # noqa: B027 - most have nothing to flush
        """Make the state that a look at a header has shown durable.

        That is a version, by any writer, or the absence of a file.

        A caller flushes after the look and before it concludes anything from the look. Afterwards that version,
        or a later one, survives a loss of power. For adapters with `Capability.shows_unflushed`.
        """

    async def delete_if(self, path: str, token: str) -> bool:
        """Delete a file if it still has `token`: False if it has another; True if it is deleted, or was gone."""
        raise NotImplementedError(f"{type(self).__name__} cannot delete conditionally")

    # -- new files -----------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        """Write a new file durably, under an unused name, and make missing parent folders.

        The store keeps `metadata` with the file, in the same request, or drops them (`has_metadata`).
        """

    async def put(self, path: str, data: Buffer) -> None:
        """Write a small file, such as a pin, over any file of its name, atomically."""
        await self.write(path, [data])

    @abc.abstractmethod
    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        """Begin a new file of unknown size, in bounded memory; without `over`, under an unused name.

        With `over`, others may use the name; `over` defines the files that may exist when the whole file appears. If a
        store takes no condition, the adapter looks right before.
        """

    async def copy(self, source: str, target: str, token: str | None = None, metadata: Metadata = None) -> None:
        """Copy a whole file into a new one on the server, durably; with `token`, only if the source has that token.

        A store that can gives the copy `metadata` instead of the source's.

        Raises
        ------
        ConflictError
            The source has another token than `token`. No target is left.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot copy on the server")

    # -- whole segments ------------------------------------------------------------------------------------

    async def remove_whole(self, headers: Sequence[tuple[str, str]]) -> Sequence[bool]:
        """Delete headers with their chunk folders, by token and durably, if no file is in the folder.

        False: no file was deleted. After an error, headers before the named header are deleted.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot delete a segment whole")

    async def move_whole(self, headers: Sequence[tuple[str, str, str]]) -> Sequence[bool]:
        """Give headers other names (header, token, target), as `remove_whole` deletes.

        The chunk folder goes. False: no file was moved: the target's name is taken, and never replaced, or the store
        cannot do it. After an error, earlier headers are moved.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot move a segment whole")

    # -- removing and folders ------------------------------------------------------------------------------

    @abc.abstractmethod
    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files, in as few requests as the store allows; a missing file is not an error.

        Raises
        ------
        OSError
            Some files could not be deleted; the message names the first.
        """

    async def list_uploads(self, folder: str, name: str | None = None) -> Sequence[PendingUpload]:
        """Return the unfinished uploads of files directly in a folder.

        With `name`, only uploads of that file, as MinIO needs.

        Raises
        ------
        PermissionError
            The store does not let this client know.
        """
        return ()

    async def abort_upload(self, upload: PendingUpload) -> None:
        """Make the store forget an unfinished upload and its parts; an upload that is gone is not an error."""
        raise NotImplementedError(f"{type(self).__name__} has no unfinished uploads")

    async def make_room(self, path: str) -> bool:
        """Give up the reserve of a full store, for a verb that frees space.

        False: there is no reserve any more.
        """
        return False

    @abc.abstractmethod
    async def make_folder(self, path: str) -> bool:
        """Make a folder and its parents; an existing folder is not an error. An object store makes buckets only.

        Returns
        -------
        bool
            Whether this call has made it: of several callers at once, a single caller has. Needs `has_folders`.
        """

    @abc.abstractmethod
    async def remove_folder(self, path: str) -> None:
        """Remove an empty folder.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        OSError
            The folder is not empty (``errno.ENOTEMPTY``).
        """

    def confine(self, root: str) -> None:
        """Take a symbolic link below `root` that leads out of it for a broken link.

        Only a disk has links.
        """
        return

    async def take_link(self, path: str, target: str | None = None) -> bool:
        """Remove a symbolic link, or give it another name; False if it is no link.

        Its target stays as it is.
        """
        return False

    async def respell(self, path: str, given: str) -> None:  # noqa: B027 - most stores have no other spelling
        """Write the name of what is at `path` as in `given`, another spelling of the same path for this store."""

    # -- names and processes -------------------------------------------------------------------------------

    @abc.abstractmethod
    def strip(self, path: str) -> str:
        """Return the backend's own path for a path or URL of its protocol (``s3://b/k`` is ``b/k``)."""

    @abc.abstractmethod
    def unstrip(self, path: str) -> str:
        """Return the URL for a path (``b/k`` is ``s3://b/k``)."""

    def may_tear(self, path: str) -> bool:
        """Return whether a read during a write may be cut off, mix two versions, or find no file."""
        return True

    def is_shared(self, folder: str) -> bool:
        """Return whether any user of the machine may write into a folder (``/tmp``).

        Its policies count only in itself.
        """
        return False

    def place(self, path: str, known: str = "") -> str:
        """Return the path by which tiers keep what belongs to `path`: `known`, if both certainly lead to the same."""
        return path

    @abc.abstractmethod
    def root(self, path: str) -> str:
        """Return the bucket or disk of `path`. All paths of a root share a set of abilities, probed once."""

    async def keeps_versions(self, path: str) -> bool | None:
        """Return whether the store keeps former versions of files, or None."""
        return None

    def product(self, path: str) -> str:
        """Return the product that the store has named in an answer (the header ``Server``), or ""."""
        return ""

    async def store_name(self, path: str) -> str | None:
        """Return endpoint and bucket, alike in all processes, for which a verdict holds; None: only this backend."""
        return None

    async def close(self) -> None:  # noqa: B027 - most have no connections
        """Close the connections, on their loop; a later verb opens new ones."""

    def after_fork(self) -> None:  # noqa: B027 - most have nothing to drop
        """Drop connections, loops and locks. Called in a child process before its first use of the backend."""


VERBS = tuple(name for name, verb in vars(Backend).items() if inspect.iscoroutinefunction(verb) and name != "close")
"""The verbs of files. A wrapper forwards by this list, so a new verb is written here and in the adapters."""
