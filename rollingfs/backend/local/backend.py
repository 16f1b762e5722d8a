"""The backend for a disk: `link` and `rename` make its verbs atomic, under a record lock on the segment."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Adapt, Backend, Blob, Buffer, FileInfo, Listing, Metadata, Over, Upload
from rollingfs.backend.contract_values import Capability
from rollingfs.backend.local import disk, extending, folders, looks, removing, system
from rollingfs.backend.local.disk import LocalUpload
from rollingfs.backend.local.record_lock import end_turn_of_thread, gives_locks_back, lock_of
from rollingfs.backend.local.spelling import respell, spellings
from rollingfs.backend.local.windows_rules import HELD_S_MAX
from rollingfs.errors import FULL, ConflictError
from rollingfs.format import names
from rollingfs.runtime.concurrency import within

logger = logging.getLogger("rollingfs")

_HEADER, _TARGET = itemgetter(0), itemgetter(2)


class LocalBackend(Backend):
    """A backend over the local disk. It has no state, so threads and forks may share it.

    The conditional verbs take headers only (paths that end in ``$header``). Their lock is the file ``lock`` in
    the segment's ``$chunks`` folder.

    Temporary files are in ``$chunks`` folders. Collection deletes the files of dead processes.

    A file in a ``$chunks`` folder has the date when it got there (the inode's change date): collection must not
    delete an old file that was just moved there. Dates and `now` come from the filesystem's clock.

    Parameters
    ----------
    sync : bool
        Whether the bytes survive a loss of power once a verb has returned. Without `sync`, they still survive
        the death of the process.
    """

    capability = Capability(
        can_write=True,
        can_copy=True,
        can_join=True,
        can_delete_if=True,
        can_extend=True,
        must_race=False,  # `link` and the record lock decide, which are the kernel's
        has_folders=True,
        has_turns=True,
        removes_whole=True,
        finishes_aside=True,
        conflicts_are_final=True,
    )

    def __init__(self, sync: bool = True) -> None:
        self.sync = sync
        self.capability = replace(self.capability, shows_unflushed=sync)
        self.roots: list[str] = []
        """Folders out of which no link leads; see `confine`."""

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        return disk.look(path, partial(looks.blob_of, path))

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        def see(descriptor: int, status: os.stat_result) -> Blob | None:
            if (found := extending.rest(descriptor, status, token)) is not None:
                data, now = found
                return Blob(data, now, looks.date_of(path, status), is_rest=True) if now != token else None
            if extending.has_token(path, descriptor, status, token):
                return None
            return looks.blob_of(path, descriptor, status)

        return disk.look(path, see)

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        def see(descriptor: int, status: os.stat_result) -> bytes:
            data = disk.read_exactly(descriptor, start, min(end, status.st_size))
            if token is not None:
                # after the read: no two contents have one token, so all that was read has this token
                disk.check_same_or_grown(path, descriptor, token)
            return data

        return disk.look(path, see, held=looks.held_file(path, token))

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        def see(descriptor: int, _status: os.stat_result) -> int:
            count = disk.read_into(descriptor, start, target)
            if token is not None:
                disk.check_same_or_grown(path, descriptor, token)
            return count

        return disk.look(path, see, held=looks.held_file(path, token))

    def hold(self, path: str, token: str) -> object | None:
        return looks.hold_file(path, token)

    async def stat(self, path: str) -> FileInfo:
        return disk.look(path, partial(looks.stat_of, path))

    async def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_shared(self, folder: str) -> bool:
        try:
            return bool(os.stat(folder).st_mode & stat.S_IWOTH)
        except OSError:
            return False  # nothing is there to be read

    def place(self, path: str, known: str = "") -> str:
        return known if known and looks.is_same(path, known) else path

    async def list(self, folder: str) -> Listing:
        return looks.list_folder(folder, self.roots)

    async def now(self, path: str) -> float:
        return looks.now_at(path, self.sync)

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        if os.path.lexists(path):
            raise shared_errors.name_taken(path)
        temporary = names.temporary_path(names.folder_of_header(path))

        def fill(descriptor: int) -> str:
            return extending.make_token(path, disk.write_header(descriptor, data), data)

        # no lock is needed, even beside the other verbs: a link is atomic, and fails over anything that exists
        token = disk.new_file(temporary, self.sync, fill)
        try:
            if self.sync:
                # then a reader of the header need not flush the folders
                folders.flush_entries_of(os.path.dirname(path))
            disk.link(temporary, path)
        finally:
            disk.remove_if_there(temporary)
        self._flush_name(path, token, folders.is_local(path))
        return token

    @gives_locks_back
    async def replace(self, path: str, data: Buffer, token: str) -> str:
        with lock_of(path, self.sync) as lock:
            is_local = folders.is_local(path)
            if not is_local and f"/{names.PROBE_PREFIX}" in path:
                lock.check()
            old = extending.expect_header(path, token, is_local)
            new_token = extending.renew(path, data, old, lock, sync=self.sync, is_local=is_local)
        # after the lock: a later commit or conclusion flushes the same folder first
        self._flush_name(path, new_token, is_local)
        return new_token

    @gives_locks_back
    async def take_turn(self, path: str) -> None:
        with contextlib.suppress(ConflictError):
            lock = lock_of(path, self.sync)
            lock.remove_of_nothing()
            lock.is_turn = os.path.lexists(path)

    def end_turn(self, path: str) -> None:
        end_turn_of_thread(names.lock_path(path))

    @gives_locks_back
    async def extend(self, path: str, data: Buffer, token: str, adapt: Adapt | None = None) -> str | None:
        if not (extending.is_named(path, token) or folders.is_local(path)):
            return None
        file = disk.opened(path, os.O_RDWR | system.NO_FOLLOW)
        try:
            with lock_of(path, self.sync) as lock:
                try:
                    descriptor, status = file.open()
                except FileNotFoundError:
                    raise shared_errors.changed(path, token, None) from None
                except PermissionError:  # a file that may not be written may still be replaced
                    extending.expect_header(path, token, True)
                    return None
                new_token = extending.put(path, descriptor, status, data, token, lock, adapt)
            # after the lock: the flushes of several writers become one
            if new_token is not None and self.sync:
                self._flush_records(path, descriptor)
                if not extending.is_named(path, new_token):
                    self._flush_name(path, new_token, True)
        finally:
            file.close()  # after the flush: the system tells of a failed flush who had the file open before the write
        return new_token

    def _flush_records(self, path: str, descriptor: int) -> None:
        """Flush an open header; if that fails, put a new file in its place before anything else.

        The system takes failed writes for written, and does not report that to later openers of the file.
        """
        try:
            system.flush(descriptor)
        except OSError as error:
            if disk.is_gone(descriptor, error):  # nobody needs its bytes any more: another file has its name, or none
                raise
            try:
                self._renew(path, descriptor)
            except (OSError, ConflictError) as failed:
                logger.warning("%s: its flush failed, and a new file could not be put in its place: %s", path, failed)
            raise shared_errors.unflushed(path, error) from error

    def _renew(self, path: str, descriptor: int) -> None:
        """Put a new file in the place of an open header whose flush has failed; mark the header until that is there."""
        name = extending.name_of(descriptor, path)
        with lock_of(name, self.sync) as lock:
            old, is_local = os.fstat(descriptor), folders.is_local(name)
            if (is_local or extending.is_known(name)) and os.path.samestat(os.lstat(name), old):
                with extending.marked(name, old):
                    data = extending.whole(descriptor, old)
                    extending.renew(name, data, old, lock, sync=self.sync, is_local=is_local)
        self._flush_folder_of(name)  # also where another was faster: it may have died before it did so

    @gives_locks_back
    async def flush(self, path: str) -> None:
        def see(descriptor: int, status: os.stat_result) -> None:
            self._flush_records(path, descriptor)
            if status.st_nlink > 1:  # an earlier flush may have failed, of which this one was not told
                self._renew(path, descriptor)

        if not self.sync:
            return
        if path.endswith(names.HEADER_SUFFIX):
            with contextlib.suppress(FileNotFoundError, ConflictError):
                disk.look(path, see, system.FLUSHABLE)
        self._flush_folders([path])

    @gives_locks_back
    async def delete_if(self, path: str, token: str) -> bool:
        try:
            if path.endswith(names.HEADER_SUFFIX):
                with lock_of(path, self.sync) as lock:
                    is_local = folders.is_local(path)
                    extending.expect_header(path, token, is_local)
                    extending.expect_lock(path, lock, is_local)
                    system.unlink(path)
            else:
                extending.expect(path, token)  # then a file with another token is not moved at all
                removing.take_away(path, token, self.sync)
        except (FileNotFoundError, ConflictError):
            if os.path.lexists(path):
                return False
        self._flush_folders([path])  # also where another process has deleted the file: it may not have done this
        return True

    # -- whole segments ------------------------------------------------------------------------------------

    @gives_locks_back
    async def remove_whole(self, headers: Sequence[tuple[str, str]]) -> Sequence[bool]:
        def remove(header: str) -> None:
            if system.PLACE:  # elsewhere, an open file may keep its name
                with contextlib.suppress(OSError):  # it only spares time: too many files may be open
                    lock.closer.take(system.open_file(header, os.O_RDONLY | system.NO_FOLLOW))
            system.unlink(header)

        def takes(header: str, token: str) -> bool:
            try:
                return lock.takes(header, token, remove)
            except OSError as error:
                if error.errno not in FULL:  # else the delete of this header by itself meets it
                    raise
                return False

        try:
            if len(headers) == 1:
                return [removing.takes_alone(*headers[0], system.unlink, self.sync)]
            with removing.CarriedLock(self.sync, len(headers)) as lock:
                return [takes(*header) for header in headers]
        finally:
            self._flush_folders(map(_HEADER, headers))

    @gives_locks_back
    async def move_whole(self, headers: Sequence[tuple[str, str, str]]) -> Sequence[bool]:
        for folder in {os.path.dirname(target) for _, _, target in headers}:
            folders.make_folders(folder, self.sync)

        def move(target: str, header: str) -> bool:
            if os.path.lexists(target) or os.path.lexists(names.segment_of_header(target)):
                return False
            return removing.rename_to_free(header, target)

        try:
            with removing.CarriedLock(self.sync, len(headers)) as lock:
                return [lock.takes(header, token, partial(move, target)) for header, token, target in headers]
        finally:  # the new names first: after a loss of power, a segment has one of its names, or both
            self._flush_folders([*map(_TARGET, headers), *map(_HEADER, headers)])

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        disk.new_file(path, self.sync, partial(disk.write_all, data=data))
        self._flush_folder_of(path)

    async def put(self, path: str, data: Buffer) -> None:
        temporary = names.temporary_path(path)
        disk.new_file(temporary, self.sync, partial(disk.write_all, data=[data]))
        try:
            system.rename(temporary, path)
        except BaseException:
            disk.remove_if_there(temporary)
            raise
        self._flush_folder_of(path)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        return LocalUpload(path, over, self.sync)

    async def copy(self, source: str, target: str, token: str | None = None, metadata: Metadata = None) -> None:
        """Copy the bytes within the kernel: as a reflink, where the filesystem shares unchanged blocks.

        It is never a hard link: a program that opens the old name for writing would change the copy.
        """

        def see(origin: int, status: os.stat_result) -> None:
            if token is not None:
                shared_errors.check_token(source, disk.plain_token(origin, status), token)

            def fill(descriptor: int) -> None:
                disk.copy_whole(origin, status, descriptor)
                if token is not None:
                    extending.expect(source, token)

            disk.new_file(target, self.sync, fill)

        disk.look(source, see)
        self._flush_folder_of(target)

    # -- removing and folders ------------------------------------------------------------------------------

    async def keeps_versions(self, path: str) -> bool:
        return False  # what keeps snapshots of a disk, or its free blocks, is beyond a filesystem's knowledge

    async def delete(self, paths: Sequence[str]) -> None:
        with within(HELD_S_MAX):  # for all of them, however many another program holds
            shared_errors.delete_each(paths, folders.unlink)
        for header in tuple(folders.given_up):
            folders.keep_reserve(header)

    async def make_room(self, path: str) -> bool:
        return folders.give_up_reserve(path)

    async def make_folder(self, path: str) -> bool:
        return folders.make_folders(path, self.sync)

    @gives_locks_back
    async def remove_folder(self, path: str) -> None:
        removing.remove_folder(path)

    async def take_link(self, path: str, target: str | None = None) -> bool:
        if not os.path.islink(path):
            return False
        if target is None:
            system.unlink(path)
        else:
            removing.move_link(path, target)
            self._flush_folder_of(target)
        self._flush_folder_of(path)
        return True

    @gives_locks_back
    async def respell(self, path: str, given: str) -> None:
        name = looks.canonical(given).rpartition("/")[2]
        if name != path.rpartition("/")[2]:
            respell(path, name, partial(lock_of, sync=self.sync))
            self._flush_folder_of(path)

    # -- names and processes -------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        """Return the absolute path, without empty parts, ``.`` and ``..``, as the disk writes it."""
        return spellings.settle(looks.canonical(path))

    def unstrip(self, path: str) -> str:
        return f"file://{path}"

    def confine(self, root: str) -> None:
        self.roots.append(root)

    def root(self, path: str) -> str:
        return looks.disk_of(path)

    def may_tear(self, path: str) -> bool:
        # a folder that is missing will be on the disk of the folder above
        while not os.path.isdir(folder := names.parent(path)) and folder != path:
            path = folder
        return not folders.is_local(path)

    # -- within --------------------------------------------------------------------------------------------

    def _flush_name(self, path: str, token: str, is_local: bool) -> None:
        """Make the name of a header file survive a loss of power; on a disk that is nearly full, keep a reserve."""
        folders.keep_reserve(path)
        if self.sync:
            folders.flush_folder_of(path)
            if is_local:
                extending.note_named(path, token)

    def _flush_folder_of(self, path: str) -> None:
        if self.sync:
            folders.flush_folder_of(path)

    def _flush_folders(self, paths: Iterable[str]) -> None:
        for path in {path.rpartition("/")[0]: path for path in paths}.values():
            try:
                self._flush_folder_of(path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # no folder: nothing can be lost
