"""Files for writing that were not closed: their bytes are not committed, and a warning names them."""

from __future__ import annotations

import abc
import atexit
import io
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NoReturn

from fsspec.core import OpenFile

logger = logging.getLogger("rollingfs")

FRAMES_SEARCHED_MAX = 16


class CommitsByClose(io.IOBase):
    """The rule of all files for writing: `close` commits.

    An exception in ``with``, garbage collection and the end of the program do not; the file then reports the lost
    bytes.
    """

    _is_wrapped = False
    """Whether another such file wraps this file, and reports for both."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {getattr(self, 'path', '')!r} {getattr(self, 'mode', '')} {state}>"

    def __reduce__(self) -> NoReturn:
        """Refuse copies and pickles: two files would commit the same bytes, or overwrite the bytes of each other."""
        raise TypeError(
            f"{self!r} is for writing, so it is neither copied nor pickled: open the file where it is needed"
        )

    def seekable(self) -> bool:
        """Whether `seek` works: no. A text wrapper gets yes, and then asks for the position.

        So a byte order mark is written at offset 0, and only there, as by Python's own `open`.
        """
        return _is_asked_for_text()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """The position, for ``seek(0, os.SEEK_END)``; else refuse.

        Raises
        ------
        io.UnsupportedOperation
            Another place is given; no byte was changed.
        """
        if (offset, whence) == (0, os.SEEK_END):
            return self.tell()
        raise self._refusal("seek")

    def truncate(self, size: int | None = None, /) -> int:
        """Refuse.

        Raises
        ------
        io.UnsupportedOperation
            Always; no byte was changed.
        """
        raise self._refusal("truncate")

    def _refusal(self, verb: str) -> io.UnsupportedOperation:
        return io.UnsupportedOperation(
            f"{getattr(self, 'path', '')}: there is no {verb} in a file for writing, which takes bytes at its end "
            "only; nothing was changed. A format that goes back in its file (HDF5, an archive that is added to) needs "
            "a file of the local disk: write there, then call put(local, path)"
        )

    @abc.abstractmethod
    def discard(self) -> None:
        """Close without committing."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Close without committing and without waiting: for garbage collection, which may come at any moment."""

    @abc.abstractmethod
    def tell_at_exit(self) -> None:
        """Say, as the program ends, how much is lost, if anything is."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self._is_wrapped:  # in a cycle of garbage either file may come first
            self.forget()


_opened: weakref.WeakSet[CommitsByClose] = weakref.WeakSet()


def watch(file: CommitsByClose, instead_of: CommitsByClose | None = None) -> None:
    """Let a file report its lost bytes when the program ends; the file that it wraps does not."""
    _opened.add(file)
    if instead_of is not None:
        _opened.discard(instead_of)
        instead_of._is_wrapped = True


@atexit.register
def _at_exit() -> None:
    for file in list(_opened):
        file.tell_at_exit()


def is_unwinding(file: CommitsByClose) -> bool:
    """Whether ``with fsspec.open(…)`` closes a file because of an exception, which it does not hand on."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_SEARCHED_MAX):
        if frame is None:
            return False
        if frame.f_code is OpenFile.__exit__.__code__:
            opened, args = frame.f_locals["self"], frame.f_locals["args"]
            return args[0] is not None and any(one is file for one in opened.fobjects)
        frame = frame.f_back
    return False


def _is_asked_for_text() -> bool:
    """Whether code that makes an `io.TextIOWrapper` asks (pandas, fsspec): its constructor asks, and has no frame."""
    frame = sys._getframe(2)
    is_constructor = isinstance(frame.f_locals.get("self"), io.TextIOWrapper)
    return is_constructor or io.TextIOWrapper.__name__ in frame.f_code.co_names


def tell_lost(path: str, lost: int, *, at_exit: bool) -> None:
    """Warn that bytes are lost: a WARNING in the log, on standard error if no log is kept, and a `ResourceWarning`."""
    when = "the program ends" if at_exit else "the file was let go"
    message = (
        f"{path}: {when}, and {lost:,} bytes that were written to it were never committed: they are lost. "
        "Open it by `with`, or call close() or commit()"
    )
    if logger.isEnabledFor(logging.WARNING):
        logger.warning(message)
        if logging.lastResort is not None and not any(_is_heard(handler, at_exit) for handler in _handlers()):
            record = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, message, (), None)
            logging.lastResort.handle(record)
    warnings.warn(message, ResourceWarning, stacklevel=3)


def _handlers() -> Iterator[logging.Handler]:
    """The handlers that get the log of this library."""
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def _is_heard(handler: logging.Handler, at_exit: bool) -> bool:
    """Whether a reader sees the handler's lines; at exit, a file that is itself not closed has no reader."""
    if isinstance(handler, logging.NullHandler) or handler.level > logging.WARNING:
        return False
    stream = getattr(handler, "stream", None)
    return not (at_exit and any(isinstance(one, CommitsByClose) for one in (stream, getattr(stream, "buffer", None))))
