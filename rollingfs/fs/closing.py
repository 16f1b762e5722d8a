"""Files for writing: `close` commits, also through text and compression.

A warning names the files that were not closed, and whose bytes are not committed.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import functools
import io
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, NoReturn

from fsspec.compression import compr
from fsspec.core import OpenFile, get_compression

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
        """Return False: `seek` does not work. A text wrapper gets True, and then asks for the position.

        So a byte order mark is written at offset 0, and only there, as by Python's own `open`.
        """
        frame = sys._getframe(1)  # `io.TextIOWrapper` asks by code that makes it: its constructor has no frame
        is_constructor = isinstance(frame.f_locals.get("self"), io.TextIOWrapper)
        return is_constructor or io.TextIOWrapper.__name__ in frame.f_code.co_names

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Return the position, for ``seek(0, os.SEEK_END)``; else refuse.

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
    """Return whether ``with fsspec.open(…)`` closes a file because of an exception, which it does not hand on."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_SEARCHED_MAX):
        if frame is None:
            return False
        if frame.f_code is OpenFile.__exit__.__code__:
            opened, args = frame.f_locals["self"], frame.f_locals["args"]
            return args[0] is not None and any(one is file for one in opened.fobjects)
        frame = frame.f_back
    return False


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
    """Yield the handlers that get the log of this library."""
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def _is_heard(handler: logging.Handler, at_exit: bool) -> bool:
    """Return whether a reader sees the handler's lines; at exit, a file that is itself not closed has no reader."""
    if isinstance(handler, logging.NullHandler) or handler.level > logging.WARNING:
        return False
    stream = getattr(handler, "stream", None)
    return not (at_exit and any(isinstance(one, CommitsByClose) for one in (stream, getattr(stream, "buffer", None))))


# -- text and compression over a `WriteFile` -------------------------------------------------------------------


@functools.cache
def joins(codec: Callable[..., Any]) -> bool:
    """Return whether a codec of fsspec reads two of its streams, in sequence, as one stream. An archive does not."""
    joined = b""
    for part in (b"a", b"b"):
        packed = io.BytesIO()
        packed.close = lambda: None  # type: ignore[method-assign]  # the codec closes it, and its bytes are still read
        file = codec(packed, mode="wb")
        file.write(part)
        file.close()
        joined += packed.getvalue()
    with contextlib.suppress(Exception):
        found: bytes = codec(io.BytesIO(joined), mode="rb").read()
        return found == b"ab"
    return False


class CompressedFile(CommitsByClose, io.BufferedIOBase):
    """Writes through a codec of fsspec; `close` ends the compressed stream and commits.

    fsspec's own wrapper leaves the file below open, and relies on its garbage collection to commit.

    Parameters
    ----------
    file
        A `WriteFile`.
    codec
        The name of a codec in `fsspec.compression.compr`.
    """

    def __init__(self, file: Any, codec: str) -> None:
        self.path: str = file.path
        self._file = file
        self._taken = 0
        self._start: int = file.tell()
        self._is_dying = False
        self._codec = compr[codec](file, mode=file.mode[0])
        watch(self, instead_of=file)

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        written = 0 if self._is_dying else int(self._codec.write(data))
        self._taken += size
        return written

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """Return the bytes that this file took, before compression, and the bytes that were there before."""
        return self._start + self._taken

    def commit(self) -> None:
        """Refuse, except at the end of a transaction: a compressed stream is whole only at its end.

        Raises
        ------
        io.UnsupportedOperation
            The file is of no transaction; no byte is lost.
        """
        if self._file.autocommit:
            raise io.UnsupportedOperation(
                f"{self.path}: only close() commits a compressed file; nothing is committed yet, and writing may go on"
            )
        self.close()
        self._file.commit()

    def close(self) -> None:
        """End the stream and commit."""
        if not self.closed:
            self._codec.close()
            self._file.close()
            super().close()

    def discard(self) -> None:
        """Close without committing."""
        self._file.discard()
        super().close()

    @property
    def pending_bytes(self) -> int:
        """The number of written bytes, counted before compression, that are not committed."""
        return self._taken if self._file.pending_bytes or not self.closed else 0

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the file."""
        return bool(self._file.is_mine)

    def hold(self, is_held: bool = True) -> None:
        """Keep all output of the codec in memory."""
        self._file.hold(is_held)

    def stop(self) -> None:
        """Only count written bytes from now on: this file dies, and its codec may be dead already."""
        self._is_dying = True

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        lost = self.pending_bytes
        self._file.hold()  # the codec will want to end its stream
        self._file.forget(lost)
        super().close()

    def tell_at_exit(self) -> None:
        """Say, as the program ends, how many bytes are lost, if any are."""
        self._file.tell_at_exit(self.pending_bytes)


class TextFile(CommitsByClose, io.TextIOWrapper):
    """Writes text to a `WriteFile` or `CompressedFile`; an exception or garbage collection commits no byte."""

    def __init__(self, file: Any, **options: Any) -> None:
        self.path: str = file.path
        self._file = file
        self._is_made = False
        super().__init__(file, **options)
        self._is_made = True
        watch(self, instead_of=file)

    def commit(self) -> None:
        """Publish all bytes written so far, or no byte; writing may go on.

        Raises
        ------
        OSError
            The same as in `WriteFile.commit`.
        io.UnsupportedOperation
            The file is compressed.
        """
        self._hand_on()
        self._file.commit()

    def _hand_on(self) -> None:
        """Hand the text that is buffered here to the file below."""
        if self._is_made and not self.closed:
            self.flush()

    def discard(self) -> None:
        """Close without committing."""
        self._file.discard()

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        if isinstance(self._file, CompressedFile):
            self._file.stop()
        self._file.hold()
        self._hand_on()
        self._file.forget()

    def tell_at_exit(self) -> None:
        """Say, as the program ends, how many bytes are lost, if any are."""
        if self._file.is_mine:
            self._file.hold()
            self._hand_on()
            self._file.hold(False)
        self._file.tell_at_exit()


def open_to_write(
    open_binary: Callable[..., Any], path: str, mode: str, compression: str | None, options: dict[str, Any]
) -> Any:
    """Open a file for writing; what is written as text or compressed is committed by only `close`.

    Parameters
    ----------
    open_binary
        Opens a binary file without compression.
    """
    keys = [key for key in ("encoding", "errors", "newline") if "b" not in mode and key in options]
    text = {key: options.pop(key) for key in keys}
    codec = get_compression(path, compression)
    if codec is not None and options.get("commit_on") is not None:
        raise ValueError(f"{path}: only close() commits a compressed file: leave out commit_on")
    if codec is not None and "a" in mode and not joins(compr[codec]):
        raise ValueError(
            f"{path}: a reader finds only one of several {codec} archives in a file, so nothing can be appended "
            "by this codec; nothing was written: open by 'wb', or append by gzip, bz2 or xz"
        )
    file = open_binary(path, mode if "b" in mode else mode.replace("t", "") + "b", **options)
    file = file if codec is None else CompressedFile(file, codec)
    return file if "b" in mode else TextFile(file, write_through="commit_on" in options, **text)
