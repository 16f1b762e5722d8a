"""The backend contract: the dozen verbs on which segments stand.

An adapter for another store subclasses `Backend` and is finished when it passes
`rollingfs.testing.BackendContract`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

Buffer = bytes | bytearray | memoryview


class Over(Enum):
    """What a new file may take the place of, where its name is one that others use as well."""

    NOTHING = "nothing"
    ANYTHING = "anything"


def frozen(data: Buffer) -> bytes:
    """Bytes that nobody will change: the very object that a buffer is all of, else a copy."""
    whole = data.obj if isinstance(data, memoryview) else data
    if isinstance(whole, bytes) and len(whole) == memoryview(data).nbytes:
        return whole
    return bytes(data)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file or folder as the store shows it."""

    path: str
    """Path within the backend, without a trailing slash."""
    size: int
    """Bytes; 0 for a folder."""
    modified: float
    """Seconds since 1970 by the store's clock; 0.0 for a folder that has no date."""
    token: str | None = None
    """What `replace` takes for this content, if the store's listing knows it."""
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """A whole small file, read in one request."""

    data: bytes
    token: str
    """Opaque; equal only if the content is the same write."""
    modified: float
    """Seconds since 1970 by the store's clock."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files and folders directly in a folder, sorted by path."""

    entries: tuple[FileInfo, ...]
    now: float | None = None
    """The store's own clock (seconds since 1970) when it answered: ages are `now - modified`. None: ask `now`."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, sorted by path."""

    entries: tuple[FileInfo, ...]
    next_place: str | None
    """Where `Backend.list_page` goes on; None after the last page."""


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range of a file, as an operand of `Backend.join` and `Upload.copy`."""

    path: str
    start: int
    end: int
    token: str | None = None
    """Of the file that is meant, for one that other programs may replace; `Upload.copy` compares it."""


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A file that somebody began to write, and that the store keeps in parts until it is finished or aborted."""

    path: str
    """Of the file that it would become."""
    began: float
    """Seconds since 1970 by the store's clock."""
    id: str
    """The store's own name for it."""


class Upload(abc.ABC):
    """A new file being written piece by piece; it appears, whole, with `finish` and not before.

    (A backend of local files may show it earlier, under its own name, which nobody refers to yet.)
    """

    @abc.abstractmethod
    async def write(self, data: Buffer) -> None:
        """Append bytes. They may be buffered; `data` may be reused by the caller after the call."""

    async def copy(self, part: Part) -> None:
        """Append a range of a file of the same store, on the server; for backends that say `can_join`.

        The copy may still be under way when this returns: then `write`, `copy` or `finish` raises its error.

        Raises
        ------
        FileNotFoundError
            The file of the part is missing.
        ConflictError
            The file of the part has another token.
        ValueError
            What was appended before it is less than `Backend.join_part_bytes_min`.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot copy on the server")

    @abc.abstractmethod
    async def finish(self) -> None:
        """Make the file durable and visible. It is an error to write after it.

        Raises
        ------
        FileExistsError
            With `Over.NOTHING`: the store says that there is a file (it may be one's own, if an answer was lost), or
            that another was changing it.
        ConflictError
            Somebody aborted the upload.
        """

    @abc.abstractmethod
    async def abort(self) -> None:
        """Give up: leave nothing (no file, no unfinished multipart upload). Never raises for a missing file."""


class Backend(abc.ABC):
    """A store of files.

    Every verb is a coroutine. Where `is_async` is false no verb ever suspends, so that a caller may drive it
    with ``send(None)`` and without an event loop, from any thread. A verb that waits there for another process gives up
    with `LockedError` at `rollingfs.runtime.concurrency.until_s`.

    Errors common to all verbs: `FileNotFoundError` for a missing file, `PermissionError` where the store
    refuses, otherwise an `OSError`. An `OSError` from a conditional verb says nothing about whether the
    write took place. No verb retries a conditional write by itself.

    Paths are the store's own ("bucket/key", "/folder/file"), with "/" between parts and none at the end.
    """

    is_async: bool = False
    """Whether verbs suspend and must run on the event loop of the store's client."""
    can_write: bool = True
    """False: `create` and `replace` are not atomic and nobody said that he writes alone."""
    can_copy: bool = False
    """Whether `copy` is done on the server (or the disk), without the bytes passing through here."""
    can_join: bool = False
    """Whether `join` and `Upload.copy` are done on the server."""
    can_delete_if: bool = False
    """Whether the adapter has `delete_if`; the store's word for it is still probed."""
    has_folders: bool = False
    """Whether empty folders exist (a disk) or a folder is but a prefix (an object store)."""
    join_part_bytes_min: int = 0
    """The smallest part but the last that `join` and `Upload.copy` take."""
    can_list_uploads: bool = False
    """Whether `list_uploads` finds what others left unfinished."""
    requests_max: int = 32
    """How many requests at once make sense."""
    conflicts_are_final: bool = False
    """Whether a `ConflictError` of `replace` says for certain that nothing was written: no request can come twice."""
    date_step_s: float = 0.0
    """How much later a file must come to have another date than one of the same token; 0 where tokens never repeat."""
    shows_unflushed: bool = False
    """Whether a header can be read that a loss of power would still take back: then `flush` makes it durable."""
    finishes_aside: bool = False
    """Without `is_async`: whether the end of one upload may be waited for in a thread while another is written."""

    # -- reading -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def read(self, path: str) -> Blob:
        """Read a whole small file with its token, in one request.

        Raises
        ------
        FileNotFoundError
            There is no such file (a folder is no file).
        """

    @abc.abstractmethod
    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        """Like `read`, but None if the file still has `token`: a conditional request without a body."""

    @abc.abstractmethod
    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        """Bytes ``[start, end)`` of a file; fewer (or none) only where the file ends before `end`.

        ``0 <= start < end`` is the caller's duty.

        Parameters
        ----------
        token
            Of the file that is to be read, for one that other programs may replace. A store whose files can grow
            in place takes a file that has only grown for the same one.

        Raises
        ------
        ConflictError
            The file has another token than `token`. (One that is gone is a `FileNotFoundError`.)
        """

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        """Fill `target` from byte `start` of a file on; returns how many bytes there were. Otherwise as `read_range`.

        For adapters that can spare the copy that this one makes.
        """
        data = await self.read_range(path, start, start + len(target), *([] if token is None else [token]))
        target[: len(data)] = data
        return len(data)

    def hold(self, path: str, token: str) -> object | None:
        """Keep a file readable that others may replace or delete: `read_range` with its token goes on to read it.

        Returns
        -------
        object or None
            The file is held until the caller forgets this object. None where the store cannot hold a file, or
            where too many are held: then `read_range` says if it is another.

        Raises
        ------
        FileNotFoundError, ConflictError
            It is gone, or has another token.
        """
        return None

    @abc.abstractmethod
    async def stat(self, path: str) -> FileInfo:
        """Size, date and token of a *file*; a folder raises `FileNotFoundError`."""

    @abc.abstractmethod
    async def is_folder(self, path: str) -> bool:
        """Whether there is a folder, or a prefix with something under it, of this name."""

    @abc.abstractmethod
    async def list(self, folder: str) -> Listing:
        """What lies directly in a folder, complete whatever the number, never from a cache.

        Raises
        ------
        FileNotFoundError
            There is no such folder (on an object store: nothing has this prefix).
        NotADirectoryError
            It is a file.
        """

    async def list_page(self, folder: str, place: str | None = None) -> Page:
        """A part of `list`, for those who need not know all: the first page is short, and goes on at `next_place`.

        For stores that list by pages, with all paths of a page before those of the next; this one gives all at once.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            As `list`, but which of the two it is may be left open.
        """
        return Page((await self.list(folder)).entries, None)

    @abc.abstractmethod
    async def now(self, path: str) -> float:
        """The clock that dates new files where `path` lies, in seconds since 1970; not this machine's, if they differ.

        0.0 where files have no dates: then none is ever old.
        """

    # -- conditional writes --------------------------------------------------------------------------------

    @abc.abstractmethod
    async def create(self, path: str, data: Buffer) -> str:
        """Write a file if there is none, atomically and durably; missing parent folders are made.

        Returns
        -------
        str
            The token of what was written.

        Raises
        ------
        FileExistsError
            The store says that there is one (it may be one's own, if an answer was lost).
        """

    @abc.abstractmethod
    async def replace(self, path: str, data: Buffer, token: str) -> str:
        """Replace a file if it still has `token`, atomically and durably.

        Returns
        -------
        str
            The token of what was written.

        Raises
        ------
        ConflictError
            The store says that the file has another token or is gone (it may be one's own doing, if an
            answer was lost).
        """

    async def flush(self, path: str) -> None:  # noqa: B027 - most have nothing to flush
        """Make durable what a look at a header has shown, also if another process wrote it, or if nothing was there.

        Called after the look, before anything is concluded from it. Afterwards that version, or a later one, survives
        a loss of power. For adapters that say `shows_unflushed`.
        """

    async def delete_if(self, path: str, token: str) -> bool:
        """Delete a file if it still has `token`.

        Returns
        -------
        bool
            False if it had another token; True if it is deleted, or was gone.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot delete conditionally")

    # -- new files -----------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def write(self, path: str, data: Sequence[Buffer]) -> None:
        """Write a new file durably, under a name that nobody uses; missing parent folders are made."""

    @abc.abstractmethod
    async def open_write(self, path: str, over: Over | None = None) -> Upload:
        """Begin a new file of unknown size, in bounded memory.

        Parameters
        ----------
        over
            For a name that others use as well: what may be there when the file appears, whole. A store that knows no
            condition is looked at right before. Without `over`, the name must be one that nobody uses.
        """

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        """Copy a whole file into a new one on the server; durable when it returns.

        With `token`, only if the source has it.

        Raises
        ------
        ConflictError
            The source has another token than `token`. No target is left.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot copy on the server")

    async def join(self, parts: Sequence[Part], target: str) -> None:
        """Join ranges of files on the server to one new file, of a name that nobody uses; durable when it returns."""
        raise NotImplementedError(f"{type(self).__name__} cannot join on the server")

    # -- removing and folders ------------------------------------------------------------------------------

    @abc.abstractmethod
    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files, as many a request as the store takes; missing ones are no error.

        Raises
        ------
        OSError
            Some could not be deleted; the message names the first.
        """

    async def list_uploads(self, folder: str, name: str | None = None) -> Sequence[PendingUpload]:
        """The unfinished uploads of files directly in a folder, whoever began them; none, where a store has no such.

        Collection has those aborted that are older than the grace.

        Parameters
        ----------
        name
            Of the one file of which uploads are wanted. Some stores (MinIO) list those of one file only.

        Raises
        ------
        PermissionError
            The store does not let this client know.
        """
        return ()

    async def abort_upload(self, upload: PendingUpload) -> None:
        """Have the store forget an unfinished upload and its parts; one that is gone is no error."""
        raise NotImplementedError(f"{type(self).__name__} has no unfinished uploads")

    @abc.abstractmethod
    async def make_folder(self, path: str) -> None:
        """Make a folder and its parents; nothing if it is there. On an object store only a bucket is made."""

    @abc.abstractmethod
    async def remove_folder(self, path: str) -> None:
        """Remove an empty folder.

        Raises
        ------
        FileNotFoundError
            There is none.
        OSError
            It is not empty (``errno.ENOTEMPTY``).
        """

    # -- names and processes -------------------------------------------------------------------------------

    @abc.abstractmethod
    def strip(self, path: str) -> str:
        """The backend's own path for a path or URL of its protocol (``s3://b/k`` is ``b/k``)."""

    @abc.abstractmethod
    def unstrip(self, path: str) -> str:
        """The URL for a path (``b/k`` is ``s3://b/k``)."""

    @abc.abstractmethod
    def root(self, path: str) -> str:
        """What shares one set of abilities with `path`: a bucket, a disk. Probed once each."""

    def after_fork(self) -> None:  # noqa: B027 - most have nothing to drop
        """Called in a child process before its first use: drop connections, loops, locks."""
