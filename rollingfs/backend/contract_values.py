"""Values of the contract: the capability of a store; arguments and results of verbs: files, folders, listings."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum

from rollingfs.runtime.values import value_class

Buffer = bytes | bytearray | memoryview
Adapt = Callable[[bytes, str | None], bytes | None]
"""Makes a record that may follow on others, or on another header with its token; see `Backend.extend`."""
Metadata = Mapping[str, str] | None
"""Metadata that a store keeps with a new file, if it can."""


class Over(Enum):
    """Files that a new file may replace, under a shared name."""

    NOTHING = "nothing"
    ANYTHING = "anything"


class Link(Enum):
    """Target of a symbolic link."""

    FILE = "file"
    FOLDER = "folder"
    NOTHING = "nothing"


def frozen(data: Buffer) -> bytes:
    """Return bytes that will not change: the object of a buffer, or a copy."""
    whole = data.obj if isinstance(data, memoryview) else data
    if isinstance(whole, bytes) and len(whole) == memoryview(data).nbytes:
        return whole
    return bytes(data)


@value_class
class FileInfo:
    """A file or folder as the store shows it."""

    path: str
    """Path within the backend, without a trailing slash."""
    size: int
    """Bytes; 0 for a folder."""
    modified: float
    """Seconds since 1970 by the store's clock; 0.0 for a folder without a date."""
    token: str | None = None
    """The token that `replace` takes for this content, if the store's listing has it."""
    is_folder: bool = False
    link: Link | None = None
    """Its target, if it is a symbolic link."""
    data: bytes | None = None
    """The whole content, if the listing has read it: of a small header, on a disk."""
    inode: int | None = None
    """On a disk, the number of the file, which a rename and an append keep."""


@value_class
class Blob:
    """A whole small file, read in a single request."""

    data: bytes
    token: str
    """Opaque. Two equal tokens mean the same write."""
    modified: float
    """Seconds since 1970 by the store's clock."""
    is_rest: bool = False
    """Whether `data` is only what was put after the content whose token the reader has given."""
    was_unfit: bool = False
    """The store first gave other bytes with this token, or a token of other bytes."""


@value_class
class Listing:
    """The files and folders directly in a folder, sorted by path."""

    entries: tuple[FileInfo, ...]
    now: float | None = None
    """The store's clock (seconds since 1970) when it answered; an age is `now - modified`. None: ask `Backend.now`."""
    next_place: str | None = None
    """Of a page, the place at which `Backend.list_page` continues; None after the last page."""


@value_class
class Part:
    """A byte range of a file for `Upload.copy`, which compares `token`, if given."""

    path: str
    start: int
    end: int
    token: str | None = None


@value_class
class PendingUpload:
    """A file whose writing has begun. The store keeps its parts until the upload is finished or aborted."""

    path: str
    """The file that the upload would make."""
    began: float
    """Seconds since 1970 by the store's clock."""
    id: str
    """The store's own name for the upload."""


class Upload(abc.ABC):
    """A new file that is written piece by piece. The file appears whole, with `finish` and not before.

    (Without `over`, a disk may show the file earlier, under its own, still unused name.)
    """

    @property
    def held_bytes(self) -> int:
        """Return bytes in memory that it has taken and not sent yet."""
        return 0

    @abc.abstractmethod
    async def write(self, data: Buffer) -> None:
        """Append bytes. The upload may buffer them; the caller may reuse `data` after the call."""

    async def copy(self, part: Part) -> None:
        """Append a range of a file on the same store, if the store has `Capability.can_join`.

        A later call may raise its error.

        Raises
        ------
        FileNotFoundError, ConflictError
            The file of the part is missing, or has another token.
        ValueError
            The bytes that were written before it are fewer than `Capability.join_part_bytes_min`.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot copy on the server")

    @abc.abstractmethod
    async def finish(self) -> None:
        """Make the file durable and visible. A write after it is an error.

        Raises
        ------
        FileExistsError
            With `Over.NOTHING`: a file exists (the caller's own, if an answer was lost), or another is changing it.
        ConflictError
            Somebody aborted the upload.
        """

    @abc.abstractmethod
    async def abort(self) -> None:
        """Give up and leave no file and no upload; a missing file is not an error."""


@asynccontextmanager
async def finished(upload: Upload) -> AsyncIterator[Upload]:
    """Finish an upload, or abort it because of an error.

    If the abort fails too, the error gets a note.
    """
    try:
        yield upload
        await upload.finish()
    except BaseException as error:
        try:
            await upload.abort()
        except OSError as second:
            error.add_note(
                "aborting the upload failed as well; a collection, or the next export to this name, removes its parts: "
                f"{second}"
            )
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Capability:
    """The optional abilities and the limits of a store.

    An adapter declares them as an attribute of its class; an instance that differs has a changed copy.
    The defaults suit the poorest store that can be written.

    Attributes
    ----------
    can_write
        False: `Backend.create` and `Backend.replace` are not atomic, and no user vouched for a single writer.
    can_copy
        The server (or the disk) does `Backend.copy`, so that the bytes do not pass through this process.
    can_join
        The server does `Upload.copy`, and so joins ranges of files.
    can_delete_if
        The adapter has `Backend.delete_if`. The probe still tries what the store does.
    can_extend
        The adapter has `Backend.extend`: a commit may put a record after a header instead of replacing the file.
    can_list_uploads
        `Backend.list_uploads` finds the unfinished uploads of others.
    must_race
        The probe races writers. False where a lock of this process or kernel decides, and for a single writer.
    has_folders
        Empty folders exist (a disk). False: a folder is only a prefix (an object store).
    has_metadata
        The store keeps metadata with files. They help when a header is lost; no reader relies on them.
    has_clock
        `Backend.now` is the time of the store's own clock, not of a client's.
    has_turns
        Without `Backend.is_async`: the adapter has `Backend.take_turn`, so that a commit need not race others.
    removes_whole
        The adapter has `Backend.remove_whole` and `Backend.move_whole`: no request arrives late that a tombstone would
        have to refuse.
    shows_unflushed
        A reader sees headers that a loss of power would take back. Then `Backend.flush` makes them durable.
    finishes_aside
        Without `Backend.is_async`: a thread may wait for the end of an upload while another is written.
    conflicts_are_final
        A `ConflictError` of `Backend.replace` proves that no byte was written, because no request arrives twice.
    requests_max
        The number of simultaneous requests that makes sense.
    small_requests_max
        The same for requests of a few kilobytes, such as headers and pins; None: `requests_max`.
    join_part_bytes_min
        The smallest part, in bytes, that `Upload.copy` takes on the server; the last part may be smaller.
    date_step_s
        Two files with the same token differ in date if this time is between them; 0 if tokens never repeat.
    commit_interval_s
        Wait of a client between two writes of the same file: commits gather for as long.
    """

    can_write: bool = True
    can_copy: bool = False
    can_join: bool = False
    can_delete_if: bool = False
    can_extend: bool = False
    can_list_uploads: bool = False
    must_race: bool = True
    has_folders: bool = False
    has_metadata: bool = False
    has_clock: bool = False
    has_turns: bool = False
    removes_whole: bool = False
    shows_unflushed: bool = False
    finishes_aside: bool = False
    conflicts_are_final: bool = False
    requests_max: int = 32
    small_requests_max: int | None = None
    join_part_bytes_min: int = 0
    date_step_s: float = 0.0
    commit_interval_s: float = 0.0

    def limited(self, requests_max: int | None) -> Capability:
        """Return the same with as many simultaneous requests as a user wants; None for no wish."""
        return replace(self, requests_max=requests_max) if requests_max else self
