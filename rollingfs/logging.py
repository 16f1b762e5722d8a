"""`RollingHandler` writes the records of Python's `logging` to a segment, visible while the program runs.

Must not be here: what a commit is; the handler is a user of the filesystem like any other.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from fsspec.core import url_to_fs

from rollingfs.errors import UNSUPPORTED, AppendOutcomeUnknown, SegmentSealedError, UnsafeBackendError
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.runtime import concurrency, interpreter

INTERVAL_S_DEFAULT = 1.0
QUEUE_BYTES_DEFAULT = 8 * 2**20
CLOSE_S_DEFAULT = 60.0
"""The first commit to a store probes it, by some 140 requests."""
RETRY_S_MIN = 0.1
RETRY_S_MAX = 30.0
"""Pauses between failed commits double, up to this."""

FINAL = (SegmentSealedError, UnsafeBackendError)
"""Refusals that no wait mends: what they refuse is lost at once. So is what is not supported."""

_is_committing: ContextVar[bool] = ContextVar("rollingfs_handler_is_committing", default=False)


class RollingHandler(logging.Handler):
    """A handler that appends records to a segment, with a single commit for all records of an interval.

    Many processes may log to the same segment: records never mix, and readers (``rollingfs tail -f``) see them once
    committed. `emit` queues a record. A thread of the handler commits. A handler that is made on the main thread
    writes what waits at SIGTERM as well, unless the process handles or ignores that signal itself.

    Parameters
    ----------
    url
        The segment, as ``"rolling::s3://bucket/logs/app"``; with `fs`, a path of that filesystem. The handler creates
        a missing segment.
    fs
        The filesystem to use instead of the filesystem that `url` names.
    storage_options
        Options of the filesystem that `url` names.
    append_via
        The same as this option of the filesystem that `url` names: the URL of a server near this process.
    interval
        Seconds from a queued record to its commit (or text like ``"2s"``).
    queue_bytes
        Maximum bytes of formatted records that wait (or text like ``"8MiB"``).
    block_s
        For how many seconds `emit` waits for room in a full queue, before the record is lost.
    close_s
        For how many seconds `close` waits for the last commit, and the end of the program, also by SIGTERM, for all
        that is queued. Under the lock of `logging` itself, as in `dictConfig`, `close` and `flush` do not wait: the
        thread commits, and the end of the program waits for it.
    encoding
        Of the text.

    Attributes
    ----------
    lost : int
        The number of records that were not written, for example because the segment is sealed. The next commit writes
        a line with the count; without a next commit, standard error gets the count when the handler closes.
    unknown : int
        The number of records whose commit the store never confirmed; the handler does not repeat them.

    Raises
    ------
    ValueError
        The URL is not a URL of rollingfs, or a number is out of range.
    """

    terminator = "\n"

    def __init__(
        self,
        url: str,
        *,
        fs: RollingFileSystem | None = None,
        storage_options: Mapping[str, Any] | None = None,
        interval: float | str = INTERVAL_S_DEFAULT,
        queue_bytes: int | str = QUEUE_BYTES_DEFAULT,
        block_s: float = 0.0,
        close_s: float = CLOSE_S_DEFAULT,
        encoding: str = "utf-8",
        append_via: str | None = None,
        level: int | str = logging.NOTSET,
    ) -> None:
        self.interval_s = parse_seconds(interval)
        self.queue_bytes = parse_bytes(queue_bytes)
        for name, value in (("interval", self.interval_s), ("block_s", block_s), ("close_s", close_s)):
            if not 0 <= value <= threading.TIMEOUT_MAX:
                raise ValueError(f"{name} is {value}: it must be at least 0 seconds")
        if self.queue_bytes < 1:
            raise ValueError(f"queue_bytes is {queue_bytes}: it must be at least 1")
        if append_via is not None and fs is not None:
            raise ValueError("append_via is an option of the filesystem: give it to the fs, not beside it")
        options = {**(storage_options or {}), **({} if append_via is None else {"append_via": append_via})}
        found, path = url_to_fs(url, **options) if fs is None else (fs, url)
        if not isinstance(found, RollingFileSystem):
            raise ValueError(f"{url} is not a URL of rollingfs: put rolling:: before it")
        path = core(found).strip(path)
        super().__init__(level)
        self.fs, self.path = found, path
        self.block_s, self.close_s, self.encoding = block_s, close_s, encoding
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty queue: at first, and in a child process, whose parent commits what it has queued."""
        core(self.fs).bridge.check_process()  # in a child, whose end may be near: its event loop needs a thread
        self._changed = threading.Condition()  # its lock is reentrant: a signal handler may log while its thread logs
        self._queue: deque[bytes] = deque()
        self._committing: list[bytes] = []
        self._bytes = 0
        self._queued = self._done = 0
        """Queued records, and known outcomes."""
        self._end_left_s = self.close_s
        """Longest wait for commits at the end of the program, in its two steps together."""
        self._end_s: float | None = None
        """When the second step stops waiting, by the monotonic clock."""
        self._until_s: float | None = None
        """When a closed handler without a waiting caller stops its tries, by the monotonic clock."""
        self._formatting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._is_hurried = self._has_appended = False
        self._failure: Exception | None = None
        """Why the last commit failed, if it did."""
        self.lost = self.unknown = self._lost_told = self._unknown_told = 0
        self._why_lost = self._why_unknown = ""
        self._close_at_end()
        interpreter.at_sigterm(self)
        self._process = os.getpid()  # the last: other threads of a child may log meanwhile

    def _begin_in_child(self) -> None:
        """Begin once, also if several threads of the child log at once."""
        assert self.lock is not None
        with self.lock:  # `logging` makes it anew in a child
            if self._process != os.getpid():
                _unheard(self._begin)

    # -- the program's side ----------------------------------------------------------------------------------

    def handle(self, record: logging.LogRecord) -> bool:
        """Leave out the records that commits of a handler cause: they would never end.

        Do not take the handler's lock: `logging.shutdown` holds it and waits for the store's event loop, which may log.
        """
        kept: Any = not _is_committing.get() and self.filter(record)  # Python 3.12 may give another record
        if kept:
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return bool(kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record."""
        if self._process != os.getpid():
            self._begin_in_child()
        try:
            with self._formatting:
                line = self._encoded(record)
        except Exception:  # noqa: BLE001 - as in all handlers of `logging`: a bad record must not stop the program
            self.handleError(record)
            return
        with self._changed:
            if self._is_closed or not self._has_room(len(line)):
                self._lose(1, "the handler was closed" if self._is_closed else "the queue was full")
                return
            self._queue.append(line)
            self._queued += 1
            self._bytes += len(line)
            self._has_thread()
            self._changed.notify_all()

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(self.encoding, "backslashreplace")

    def _has_thread(self) -> bool:
        """Start the thread if it does not run; whether it runs. The next record, or `flush`, tries again."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name=f"RollingHandler {self.path}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads, or the interpreter ends
                self._failure = error
                return False
            self._thread = thread
        return True

    def _has_room(self, size: int) -> bool:
        def is_room() -> bool:
            return not self._bytes or self._bytes + size <= self.queue_bytes

        if is_room() or not self.block_s:
            return is_room()
        self._hurry()
        return self._changed.wait_for(is_room, self.block_s)

    def _hurry(self) -> None:
        self._is_hurried = True
        self._changed.notify_all()

    def flush(self) -> None:
        """Commit the queued records now, and wait for it, at most `close_s` seconds."""
        self._flush(self.close_s if self._end_s is None else max(0.0, self._end_s - time.monotonic()))

    def _flush(self, wait_s_max: float) -> None:
        if self._process != os.getpid():
            return
        with self._changed:
            wanted = self._queued  # others may log all the time
            if self._done >= wanted:
                return
            if has_thread := self._has_thread():
                self._hurry()
                self._changed.wait_for(lambda: self._done >= wanted, 0 if concurrency.is_locked_here() else wait_s_max)
        if not has_thread:
            _unheard(self._commit)

    def close(self) -> None:
        """Commit the queued records, and stop. Records not committed in `close_s` seconds are lost, and reported."""
        if self._process == os.getpid() and not self._is_closed:
            self.flush()
            with self._changed:
                self._is_closed = True
                self._until_s = time.monotonic() + self.close_s
            if not concurrency.is_locked_here():
                self._drop("the handler was closed before the commit ended")
        super().close()

    def _drop(self, why: str) -> None:
        """Give up the records that wait, and report them."""
        with self._changed:
            why = str(self._failure or why)
            self._lose(len(self._queue), why)
            self._doubt(len(self._committing), why)
            self._queue.clear()
            self._committing = []
            self._done, self._bytes = self._queued, 0
            self._changed.notify_all()
        self._tell_lost()

    def main_ends(self) -> None:
        """Commit what is queued when the main thread ends, while connections can be opened; other threads may go on."""
        began_s = time.monotonic()
        self._flush(self._end_left_s)
        self._end_left_s = max(0.0, self._end_left_s - (time.monotonic() - began_s))

    def sigterm_comes(self) -> None:
        """Commit the queued records, and report the lost ones, because SIGTERM ends the process."""
        if self._process == os.getpid():
            self._flush(self.close_s)
            self._drop("SIGTERM ended the process before the commit ended")

    def _at_end(self) -> None:
        if self._process != os.getpid():
            return
        if self._end_s is None:
            self._end_s = time.monotonic() + self._end_left_s
        if multiprocessing.parent_process() is not None:
            self.close()  # `logging` does not close handlers in a child of multiprocessing
        self.flush()
        if self._is_closed:
            self._drop("the program ended before the commit ended")

    def _lose(self, count: int, why: str) -> None:
        if count:
            self.lost += count
            self._why_lost = why
            if self._is_closed and interpreter.main_has_ended():
                self._tell_lost()  # nobody else will

    def _doubt(self, count: int, why: str) -> None:
        if count:
            self.unknown += count
            self._why_unknown = why

    def _tell_lost(self) -> None:
        texts = []
        with self._changed:  # else two threads tell the same
            if self.lost > self._lost_told:
                texts.append(f"{_records(self.lost - self._lost_told)} not written: {self._why_lost}")
            if self.unknown > self._unknown_told:
                what = _records(self.unknown - self._unknown_told)
                texts.append(f"it is unknown whether {what} written: {self._why_unknown}")
            self._lost_told, self._unknown_told = self.lost, self.unknown
        if texts and logging.raiseExceptions and sys.stderr is not None:
            print(f"{self.path}: {'; '.join(texts)}", file=sys.stderr)

    # -- the thread's side -----------------------------------------------------------------------------------

    def _run(self) -> None:
        _is_committing.set(True)  # calls on the filesystem's event loop inherit it
        pause_s = self.interval_s
        while self._wait(pause_s):
            is_done = self._commit()
            pause_s = self.interval_s if is_done else min(max(2 * pause_s, RETRY_S_MIN), RETRY_S_MAX)
        self._drop("the handler was closed before the commit ended")

    def _wait(self, pause_s: float) -> bool:
        """Wait for records, and then until they are due; False once there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            if not self._queue:
                return False
            if self._until_s is not None:
                pause_s = min(pause_s, self._until_s - time.monotonic())
            self._changed.wait_for(lambda: self._is_hurried or not self._queue, pause_s)
            self._is_hurried = False
            return self._until_s is None or time.monotonic() < self._until_s

    def _commit(self) -> bool:
        """Append all queued records; if that fails for certain, they wait for the next try."""
        with self._changed:
            lines, lost = list(self._queue), self.lost - self._lost_told
            self._queue.clear()
            self._committing = lines
        if not lines:
            return True
        try:
            self._append(b"".join(lines) + self._notice(lost))
        except Exception as error:  # noqa: BLE001 - the thread must not die of it
            if self._failure is None:
                logging.getLogger("rollingfs").warning("%s: log records could not be written: %s", self.path, error)
            self._failure = error.with_traceback(None)
            with self._changed:
                count = len(self._committing)  # none if `_drop` has counted them
                if isinstance(error, AppendOutcomeUnknown):  # a repetition could write the records twice
                    self._doubt(count, str(error))
                elif isinstance(error, FINAL) or (isinstance(error, OSError) and error.errno in UNSUPPORTED):
                    self._lose(count, str(error))
                else:
                    self._queue.extendleft(reversed(self._committing))
                    self._committing = []
                    return False
        else:
            self._lost_told += lost
            self._failure = None
        with self._changed:
            self._committing = []
            self._done = min(self._done + len(lines), self._queued)
            self._bytes = sum(map(len, self._queue))
            self._changed.notify_all()
        return True

    def _append(self, data: bytes) -> None:
        try:
            self.fs.append(self.path, data)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another process was faster
                self.fs.create(self.path)
            self.fs.append(self.path, data)
        finally:
            if not self._has_appended:
                self._has_appended = True
                self._close_at_end()

    def _notice(self, lost: int) -> bytes:
        if not lost:
            return b""
        text = f"{lost} log records before this line were lost: {self._why_lost}"
        record = logging.LogRecord("rollingfs", logging.WARNING, __file__, 0, text, None, None)
        try:
            return self._encoded(record)
        except Exception:  # noqa: BLE001 - the formatter wants fields that only the program's records have
            return (text + self.terminator).encode(self.encoding, "backslashreplace")

    def _close_at_end(self) -> None:
        """Make the end of the process commit before it takes down what the filesystem needs.

        The first step comes when the main thread ends (`main_ends`). The second comes when all threads have ended. The
        last registered runs first, so the handler registers again once the filesystem is in use. `logging` closes the
        handler as well, by what it registered at its import: too late. The program's functions between may log.
        """
        interpreter.at_end(self)
        interpreter.at_last(self._at_end)


def _unheard(function: Callable[[], object]) -> None:
    """Call a function whose own records no handler takes."""
    context = contextvars.copy_context()
    context.run(_is_committing.set, True)
    context.run(function)


def _records(count: int) -> str:
    return f"{count} log record was" if count == 1 else f"{count} log records were"
