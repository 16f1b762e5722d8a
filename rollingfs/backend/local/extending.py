"""Header files that grow in place: their tokens, where a disk can be trusted with them, and the write itself."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from functools import partial

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Adapt, Buffer
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.local.record_lock import record_lock
from rollingfs.backend.local.spelling import spellings
from rollingfs.format import names, records
from rollingfs.format.header import HEADER_BYTES_MAX
from rollingfs.format.records import Mark

PRIVATE_MODE = 0o600
MARKS_KEPT_MAX = 64
_marks: dict[str, Mark] = {}
"""The marks of the newest tokens: a writer's next change of a header begins with one of them."""
_named: dict[str, str] = {}
"""The header files that may grow, and whose names this process knows to survive a loss of power, by path."""


# -- tokens ----------------------------------------------------------------------------------------------------


def make_token(path: str, status: os.stat_result, content: Buffer) -> str:
    """Return the token of a file with this content, which is whole or all that a reader may read of it."""
    data = bytes(content)
    if path.endswith(names.HEADER_SUFFIX) and (mark := _mark_in(data)):
        return _token(status, mark)
    return disk.make_plain_token(status, data)


def _mark_in(content: bytes) -> Mark | None:
    return records.mark_of(lambda start, end: content[start:end], len(content))


def token_of(path: str, descriptor: int, status: os.stat_result) -> str:
    """Return the token of an open file; of a header, what is left of a torn record does not change it."""
    is_header = path.endswith(names.HEADER_SUFFIX)
    mark = records.mark_of(partial(_read, descriptor), status.st_size) if is_header else None
    return disk.plain_token(descriptor, status) if mark is None else _token(status, mark)


def has_token(path: str, descriptor: int, status: os.stat_result, token: str) -> bool:
    """Return whether an open file has `token`. A file that was put in its place has not, which takes no read."""
    if not token.startswith(f"{status.st_ino:x}-"):
        return False
    mark = _still(descriptor, status, token) if path.endswith(names.HEADER_SUFFIX) else None
    if mark is None:
        return token_of(path, descriptor, status) == token
    # without a read of the records before it
    return mark.end == status.st_size or mark.followed(_read(descriptor, mark.end, status.st_size)) is mark


def expect(path: str, token: str, flags: int = 0) -> os.stat_result:
    """Return the status of a file that must have `token`.

    Raises
    ------
    ConflictError
        It has another, or is gone.
    """

    def see(descriptor: int, status: os.stat_result) -> os.stat_result:
        if not has_token(path, descriptor, status, token):
            raise shared_errors.changed(path, token, "another")
        return status

    try:
        return disk.look(path, see, flags)
    except FileNotFoundError:
        raise shared_errors.changed(path, token, None) from None


def expect_header(path: str, token: str, is_local: bool) -> os.stat_result:
    """Check like `expect`, for a locked header that is to be replaced or deleted; a symbolic link is refused."""
    if not (is_local or is_known(path)):
        raise shared_errors.changed(path, token, "another")
    return expect(path, token, system.NO_FOLLOW)


def expect_lock(path: str, lock: record_lock, is_local: bool) -> None:
    """Refuse to change a header whose lock was taken away since, as by a hand.

    Raises
    ------
    ConflictError
        The lock is another's, or its file is gone.
    """
    if not ((is_local or is_known(lock.path)) and lock.is_held):
        raise shared_errors.unlocked(path)


def is_known(path: str) -> bool:
    """Ask the server for a name, where another machine may write (P6.35); return whether it knows the file."""
    try:
        system.look_up(path)
    except OSError as error:
        if error.errno not in disk.RENAMED:
            raise
        return False
    return True


def rest(descriptor: int, status: os.stat_result, known: str) -> tuple[bytes, str] | None:
    """Return the records after the content with a known token, and the present token.

    None: the file has other content.
    """
    mark = _still(descriptor, status, known)
    if mark is None:
        return None
    data = _read(descriptor, mark.end, status.st_size)
    return data, _token(status, mark.followed(data))


def _still(descriptor: int, status: os.stat_result, token: str) -> Mark | None:
    """Return the mark of a token, if the open file still begins with all that the mark stands for."""
    inode, _, text = token.partition("-")
    mark = _marks.get(token) or Mark.of(text)
    if mark is None or inode != f"{status.st_ino:x}" or mark.end > status.st_size:
        return None
    return mark if mark.is_in(partial(disk.read_exactly, descriptor)) else None


def _read(descriptor: int, start: int, end: int) -> bytes:
    """Return bytes of an open header, no more than a header has."""
    return disk.read_exactly(descriptor, start, min(end, HEADER_BYTES_MAX))


def _token(status: os.stat_result, mark: Mark) -> str:
    token = f"{status.st_ino:x}-{mark}"
    if len(_marks) >= MARKS_KEPT_MAX:
        _marks.clear()
    _marks[token] = mark
    return token


def whole(descriptor: int, status: os.stat_result) -> bytes:
    """Return the content of an open header up to the end of its last whole record."""
    mark = records.mark_of(partial(_read, descriptor), status.st_size)
    return disk.read_exactly(descriptor, 0, status.st_size if mark is None else mark.end)


def name_of(descriptor: int, path: str) -> str:
    """Return the present path of an open header, which may have been renamed.

    It is `path` if the header has no name.
    """
    for name in (path, None):  # the first before the second: the thread may keep a turn there
        with contextlib.suppress(OSError):
            name = name or system.path_of(descriptor)
            if name.endswith(names.HEADER_SUFFIX) and os.path.samestat(os.lstat(name), os.fstat(descriptor)):
                return name
    return path


@contextlib.contextmanager
def marked(path: str, status: os.stat_result) -> Iterator[None]:
    """Give a header a second name, which goes unless an error comes.

    Until then no process extends it.
    """
    mark = names.temporary_path(path)
    with contextlib.suppress(OSError):  # what follows is needed all the more where the disk refuses the name
        if status.st_nlink == 1:
            system.link(path, mark)
    yield
    disk.remove_if_there(mark)


def renew(path: str, data: Buffer, old: os.stat_result, lock: record_lock, *, sync: bool, is_local: bool) -> str:
    """Replace a locked header by a new file with this content; returns the token.

    Raises
    ------
    ConflictError
        The lock was taken away while the new file was written and flushed.
    """

    def fill(descriptor: int) -> str:
        if stat.S_IMODE(old.st_mode) != PRIVATE_MODE:
            system.set_mode(descriptor, stat.S_IMODE(old.st_mode))
        return make_token(path, disk.write_header(descriptor, data, old.st_mtime_ns + 1), data)

    temporary, name = names.temporary_path(path), path
    token = disk.new_file(temporary, sync, fill, PRIVATE_MODE)
    try:
        expect_lock(path, lock, is_local)
        if is_local:  # elsewhere, to ask may be to list a large folder each time
            name = names.header_path(spellings.settle(names.segment_of_header(path), fresh=True))
        system.rename(temporary, name)
    except BaseException:
        disk.remove_if_there(temporary)
        raise
    return token


# -- records ---------------------------------------------------------------------------------------------------


def put(
    path: str,
    descriptor: int,
    status: os.stat_result,
    data: Buffer,
    token: str,
    lock: record_lock,
    adapt: Adapt | None = None,
) -> str | None:
    """Put a record at the end of an open, locked header with `token`; return the new token.

    Parameters
    ----------
    adapt
        Makes the record that may follow on the records since `token`, or on the header that is there instead.

    Returns
    -------
    str or None
        None if the header cannot be extended: no byte was written.

    Raises
    ------
    ConflictError
        The header has another token, or its lock was taken away.
    OSError
        The disk refuses the record (it is full); its written part is cut off again.
    """
    mark = _still(descriptor, status, token)
    answer: Buffer | None = data
    if adapt is not None and (mark is None or mark.end < status.st_size):
        others = _read(descriptor, 0 if mark is None else mark.end, status.st_size)
        after = _mark_in(others) if mark is None else mark.followed(others)
        if after is not None:
            answer = adapt(others, _token(status, after) if mark is None else None)
            mark, data = (mark, data) if answer is None else (after, answer)
    if mark is None or mark.end != status.st_size:
        if not has_token(path, descriptor, status, token):
            lock.is_turn = answer is None
            raise shared_errors.changed(path, token, "another")
        return None  # the rest of a torn record goes with a new file
    if status.st_nlink > 1:  # a backup made of hard links shares the inode; or it is `marked`
        return None
    if lock.is_deleted:
        raise shared_errors.unlocked(path)
    view, at = memoryview(data).cast("B"), mark.end
    try:
        while view:
            count = system.write_at(descriptor, view, at)
            view, at = view[count:], at + count
    except OSError:
        os.ftruncate(descriptor, mark.end)  # if this fails, too, its error says that the outcome is not known
        raise
    return _token(status, mark.extended(bytes(data)))


def is_named(path: str, token: str) -> bool:
    """Return whether this process knows that a header file may grow, and that its name survives a loss of power."""
    return _named.get(path) == _file_of(token)


def note_named(path: str, token: str) -> None:
    """Note that the name of a header file survives a loss of power: its folder was flushed since it got the name.

    A header that may not grow in place needs no note.
    """
    if len(_named) >= folders.FOLDERS_FLUSHED_MAX:
        _named.clear()
    _named[path] = _file_of(token)


def _file_of(token: str) -> str:
    """Return the common part of all tokens of a header file."""
    words = token.rsplit("-", 4)  # behind inode, incarnation and the checksum of the text
    return words[0] if len(words) == 5 else token
