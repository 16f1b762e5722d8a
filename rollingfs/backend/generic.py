"""Any other fsspec filesystem: for every reader, and for a single writer by its user's word."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import inspect
import logging
import time
from collections.abc import Sequence
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.generic import GenericFileSystem

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Backend, Blob, Buffer, FileInfo, Listing, Metadata, Over, Upload
from rollingfs.backend.contract_values import Capability
from rollingfs.format import names
from rollingfs.format.side_files import read_bytes_max

# filesystems' names for what changes with every content
_STRONG_KEYS = ("ETag", "etag", "e_tag", "generation", "version_id", "versionId")
# names for what changes with most contents; a date may be as coarse as a minute (FTP)
_WEAK_KEYS = ("ino", "mtime", "LastModified", "last_modified", "modified", "created", "updated")
_DATE_KEYS = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_TOKEN_BYTES = 16
_DELETES = ("rm", "rm_file", "_rm", "_rm_file")  # a filesystem that can delete has one of its own
_MOVES_OVER = {"file", "local", "sftp", "ssh"}
"""Protocols of filesystems that move a file over another in a single step. Elsewhere `mv` may copy and then delete."""

logger = logging.getLogger("rollingfs")


class GenericBackend(Backend):
    """A backend over an fsspec filesystem without promises.

    fsspec's conditional writes are not atomic, and some filesystems ignore the condition silently. So the conditional
    verbs here read, compare and then write, which is correct for a single writer only.

    On a disk and over SFTP, a header is written under another name and moved over the old header. Elsewhere the header
    is overwritten in place. A filesystem that does not overwrite in a single step may show a reader half a header
    (`CorruptHeaderError`; the reader reads again), and may leave half a header after a crash.

    *Now* is the date of a new file. Without dates, no file is ever old.

    Parameters
    ----------
    fs : fsspec.AbstractFileSystem
        The filesystem, sync or async. The backend calls its sync methods, in the caller's thread.
    single_writer : bool
        The caller's promise that at any time at most one process writes these segments.
    """

    def __init__(self, fs: AbstractFileSystem, single_writer: bool = False) -> None:
        if getattr(fs, "asynchronous", False):
            # the sync methods of this instance would refuse; those of one with the same options work
            fs = type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False})
        self.fs = fs
        self.capability = Capability(can_write=single_writer, must_race=False, has_folders=True)
        protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
        self._can_delete = _can_delete(below := _lowest(fs))
        # without, Arrow's filesystems give a stream that cannot seek
        self._to_seek = {"seekable": True} if "seekable" in inspect.signature(type(below)._open).parameters else {}
        self._has_moved = False
        self._can_move = self._moves_over = not _MOVES_OVER.isdisjoint(protocols)

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        return self._blob(path, self._file_info(path))

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        info = self._file_info(path)
        if _has_strong_key(info) and _date_token(info) == token:
            return None
        blob = self._blob(path, info)
        return None if blob.token == token else blob

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        data = self._range(path, start, end)
        if token is not None:
            # after the read: a file that had the token before and has it now had it all the while
            shared_errors.check_token(path, (await self.stat(path)).token, token)
        return data

    def _range(self, path: str, start: int, end: int) -> bytes:
        try:
            data: bytes = self.fs.cat_file(path, start=start, end=end, **self._to_seek)
        except FileNotFoundError as error:
            raise shared_errors.no_file(path) from error  # many filesystems give no more than a name
        except Exception as error:  # for a range beyond the end, filesystems give b"", a 416 or another error
            if isinstance(error, IsADirectoryError | NotADirectoryError):
                raise shared_errors.no_file(path) from error
            if start < int(self._file_info(path)["size"]):
                raise
            return b""
        return data if len(data) <= end - start else data[start:end]  # a web server may ignore the range

    async def stat(self, path: str) -> FileInfo:
        info = self._file_info(path)
        return FileInfo(path, int(info["size"]), _modified_s(info), self._token(path, info))

    async def is_folder(self, path: str) -> bool:
        self._forget(path)
        try:
            return bool(self.fs.info(path)["type"] == "directory")
        except (FileNotFoundError, NotADirectoryError):
            return False

    async def list(self, folder: str) -> Listing:
        self._forget(folder)
        try:
            found = self.fs.ls(folder, detail=True)
        except FileNotFoundError as error:
            raise shared_errors.no_folder(folder) from error
        entries: dict[str, FileInfo] = {}
        for info in found:
            path = self.fs._strip_protocol(info["name"]).rstrip("/")
            if path == folder.rstrip("/"):
                # an object store lists the marker object of a folder in the folder, and lists a file as itself
                if info["type"] != "directory":
                    raise shared_errors.not_a_folder(folder)
            elif info["type"] == "directory":
                entries[path] = FileInfo(path, 0, 0.0, is_folder=True)
            else:
                token = None if _needs_content(path, info) else _date_token(info)
                entries[path] = FileInfo(path, int(info["size"]), _modified_s(info), token)
        return Listing(tuple(entries[path] for path in sorted(entries)))

    async def now(self, path: str) -> float:
        """Return the date of a temporary file in the `$chunks` folder of `path`.

        Without the right to write, it is this machine's clock.
        """
        if not self.capability.can_write:
            return time.time()
        temporary = names.temporary_path(path)
        folder = names.parent(temporary)
        is_new = not await self.is_folder(folder)
        try:
            self.make_parents(temporary)
            self.fs.pipe_file(temporary, b"")
            return _modified_s(self._file_info(temporary))
        finally:
            await self.delete([temporary])
            if is_new and not (await self.list(folder)).entries:
                self.fs.rmdir(folder)

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        self._check_can_write(path)
        self.check_absent(path)
        return self._put(path, bytes(data))

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        self._check_can_write(path)
        try:
            found = (await self.stat(path)).token
        except FileNotFoundError:
            found = None
        shared_errors.check_token(path, found, token)
        return self._put(path, bytes(data))

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        self._put(path, b"".join(data))

    async def put(self, path: str, data: Buffer) -> None:
        self._put(path, bytes(data), in_one_step=True)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        return _GenericUpload(self, path, over)

    # -- removing and folders ------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        if not self._can_delete:
            raise shared_errors.read_only(paths[0], type(self.fs).__name__)
        shared_errors.delete_each(paths, self.fs.rm_file)  # not `rm`, which takes "*" and "[" in a name for a pattern

    async def make_folder(self, path: str) -> bool:
        is_new = not await self.is_folder(path)  # there is a single writer
        self.fs.makedirs(path, exist_ok=True)
        return is_new

    async def remove_folder(self, path: str) -> None:
        listing = await self.list(path)
        if listing.entries:
            raise shared_errors.not_empty(path)
        self.fs.rmdir(path)

    # -- names ---------------------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        stripped: str = self.fs._strip_protocol(path)
        return stripped

    def unstrip(self, path: str) -> str:
        url: str = self.fs.unstrip_protocol(path)
        return url

    def root(self, path: str) -> str:
        protocol = self.fs.protocol if isinstance(self.fs.protocol, str) else self.fs.protocol[0]
        return f"{protocol}-{self.fs._fs_token}"

    # -- within --------------------------------------------------------------------------------------------

    def check_absent(self, path: str) -> None:
        """Refuse a name that a file or folder has; correct for a single writer only."""
        self._forget(path)
        try:
            self.fs.info(path)  # not `exists`, which takes every error for "no"
        except FileNotFoundError:
            return
        raise shared_errors.name_taken(path)

    async def move(self, path: str, target: str, over: Over) -> None:
        """Give a whole file another name; with `Over.ANYTHING`, over the file that may have it."""
        if type(self.fs).mv is AbstractFileSystem.mv:  # which takes "*" and "[" in a name for a pattern
            self.fs.cp_file(path, target)
            self.fs.rm_file(path)
            return
        if over is Over.ANYTHING and not self._moves_over:
            await self.delete([target])
        self.fs.mv(path, target)

    def _check_can_write(self, path: str) -> None:
        if not self.capability.can_write:
            raise shared_errors.not_atomic(path)
        if not self._can_delete:
            raise shared_errors.read_only(path, type(self.fs).__name__)

    def _forget(self, path: str) -> None:  # some filesystems answer `info` from the cached listing of the parent
        self.fs.invalidate_cache(path)
        self.fs.invalidate_cache(self.fs._parent(path))

    def _file_info(self, path: str) -> dict[str, Any]:
        self._forget(path)
        try:
            info: dict[str, Any] = self.fs.info(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise shared_errors.no_file(path) from error
        if info["type"] == "directory":
            raise shared_errors.no_file(path)
        return info

    def _blob(self, path: str, info: dict[str, Any]) -> Blob:
        # the token is older than the bytes, never newer: at worst a caller looks again without need
        limit = read_bytes_max(path)
        is_long = limit is not None and int(info["size"]) > limit
        data: bytes = self.fs.cat_file(path, start=0, end=limit) if is_long else self.fs.cat_file(path)
        token = _date_token(info)
        if _needs_content(path, info):
            token += hashlib.blake2b(data, digest_size=_TOKEN_BYTES).hexdigest()
        return Blob(data, token, _modified_s(info))

    def _token(self, path: str, info: dict[str, Any]) -> str:
        return self._blob(path, info).token if _needs_content(path, info) else _date_token(info)

    def _put(self, path: str, content: bytes, *, in_one_step: bool = False) -> str:
        self.make_parents(path)
        in_one_step = in_one_step or path.endswith(names.HEADER_SUFFIX)
        if not (in_one_step and self._can_move and self._put_beside(path, content)):
            self.fs.pipe_file(path, content)
        return self._token(path, self._file_info(path))

    def _put_beside(self, path: str, content: bytes) -> bool:
        """Write a file under another name and move it over the old file.

        False: this server cannot move files so.
        """
        temporary = names.temporary_path(path)
        self.make_parents(temporary)
        self.fs.pipe_file(temporary, content)  # if this fails, collection removes what is left of it
        try:
            self.fs.mv(temporary, path)
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                self.fs.rm_file(temporary)
            if self._has_moved:
                raise
            logger.warning(
                "%s: this server cannot move a file over another, so headers are overwritten in place: %s", path, error
            )
            self._can_move = False
            return False
        self._has_moved = True
        return True

    def make_parents(self, path: str) -> None:
        """Make the folders above a file; a filesystem over an object store may ignore this."""
        self.fs.makedirs(self.fs._parent(path), exist_ok=True)


def _lowest(fs: AbstractFileSystem) -> AbstractFileSystem:
    """Return the filesystem that does the work of another."""
    while isinstance(inner := getattr(fs, "fs", None) or getattr(fs, "sync_fs", None), AbstractFileSystem):
        fs = inner
    return fs


def _can_delete(fs: AbstractFileSystem) -> bool:
    """Return whether a filesystem can delete a file; an archive and HTTP cannot."""
    inherited = [vars(one).get(name) for one in (AbstractFileSystem, AsyncFileSystem) for name in _DELETES]
    has_own = any(getattr(type(fs), name, None) not in inherited for name in _DELETES)
    return has_own and not isinstance(fs, GenericFileSystem)


def _has_strong_key(info: dict[str, Any]) -> bool:
    return any(info.get(key) for key in _STRONG_KEYS)


def _needs_content(path: str, info: dict[str, Any]) -> bool:
    """Return whether the token must cover the bytes: a coarse clock may give two headers of a length the same date."""
    return path.endswith(names.HEADER_SUFFIX) and not _has_strong_key(info)


def _date_token(info: dict[str, Any]) -> str:
    marks = [f"{key}={info[key]}" for key in (*_STRONG_KEYS, *_WEAK_KEYS) if info.get(key) is not None]
    text = f"{info['size']} {' '.join(marks)}"
    return hashlib.blake2b(text.encode(), digest_size=_TOKEN_BYTES).hexdigest()


def _modified_s(info: dict[str, Any]) -> float:
    for key in _DATE_KEYS:
        date = info.get(key)
        if isinstance(date, str):
            date = datetime.datetime.fromisoformat(date)
        if isinstance(date, datetime.datetime):
            # fsspec's filesystems give dates without a zone in UTC
            return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()
        if isinstance(date, int | float):
            return float(date)
    return 0.0


class _GenericUpload(Upload):
    """A file that, with `over`, grows under another name, and is moved once it is whole."""

    def __init__(self, backend: GenericBackend, path: str, over: Over | None) -> None:
        self._backend = backend
        self._path = path
        self._over = over
        self._growing = path if over is None else names.export_path(path)
        backend.make_parents(self._growing)
        self._file = backend.fs.open(self._growing, "wb")
        self._is_over = False

    async def write(self, data: Buffer) -> None:
        self._check_open()
        self._file.write(bytes(data))

    async def finish(self) -> None:
        self._check_open()
        self._file.close()
        self._is_over = True
        if self._over is None:
            return
        try:
            if self._over is Over.NOTHING:
                self._backend.check_absent(self._path)
            await self._backend.move(self._growing, self._path, self._over)
        except FileNotFoundError as error:
            raise shared_errors.export_ended(self._path) from error
        except BaseException:
            await self._backend.delete([self._growing])
            raise
        finally:
            self._clean()

    async def abort(self) -> None:
        if not self._is_over:
            self._is_over = True
            try:
                self._file.close()  # not `discard`, which does something else in each filesystem
            finally:
                with contextlib.suppress(FileNotFoundError):
                    self._backend.fs.rm_file(self._growing)
        self._clean()

    def _check_open(self) -> None:
        if self._is_over:
            raise shared_errors.upload_closed(self._path)

    def _clean(self) -> None:
        if self._over is not None:
            with contextlib.suppress(OSError):  # the folder is not empty, or gone
                self._backend.fs.rmdir(names.parent(self._growing))
