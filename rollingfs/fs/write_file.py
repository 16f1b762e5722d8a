"""`WriteFile`, the file object for writing: in bounded memory; only `close` and `commit` commit."""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from rollingfs.errors import COMMITTED, FencedError, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.transitions import Guard
from rollingfs.fs.arguments import WRITE_MODES
from rollingfs.fs.binding import Binding, check_absent, find_end
from rollingfs.fs.closing import CommitsByClose, is_unwinding, tell_lost, watch
from rollingfs.fs.core import Core
from rollingfs.fs.write_buffer import NEVER, CommitOnGiven, WriteBuffer, parse_commit_on
from rollingfs.segment.files.intakes import addition, replacement
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.change import release
from rollingfs.segment.verbs.create import overwrite
from rollingfs.segment.write.ingest import Intake, as_bytes

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("rollingfs")


def alone(method: Callable[Concatenate[WriteFile, P], T]) -> Callable[Concatenate[WriteFile, P], T]:
    """Let a method of a file run only while no other thread runs such a method."""

    @functools.wraps(method)
    def run(file: WriteFile, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # in a child process, and once the interpreter stops, a thread that is gone may hold the lock for ever;
        # garbage collection may come to a thread for which the holder waits
        if file._process != os.getpid() or sys.is_finalizing() or file._is_held:
            return method(file, *args, **kwargs)
        buffer = file._buffer
        with buffer.lock:
            buffer.uses += 1
            try:
                return method(file, *args, **kwargs)
            finally:
                buffer.uses -= 1

    return run


class WriteFile(CommitsByClose):
    """A segment being written: from its beginning (``wb``, ``xb``) or from its end (``ab``).

    `commit` and `close` make all written bytes visible at once; no byte is visible before. An exception within a
    ``with`` block, the garbage collection and the end of the program commit no byte. They warn of bytes that are lost.

    Parameters
    ----------
    path
        The segment.
    mode
        ``"wb"`` replaces an existing file, ``"xb"`` refuses to, ``"ab"`` appends or creates.
    owner
        For ``"ab"``: hold the segment exclusively until the file is closed, as `Segment.acquire` does.
    absolute
        `tell` counts from the first byte that the segment ever had.
    autocommit
        If false, `close` leaves the commit to a later `commit` (fsspec's transactions).
    attrs
        Attributes to set with the first commit; None removes an attribute.
    commit_on
        When the file commits by itself, apart from `commit` and `close`.

    Attributes
    ----------
    epoch : int or None
        The epoch of an exclusive writer.

    Raises
    ------
    FileExistsError
        ``"xb"``: something is there.
    IsADirectoryError
        ``"xb"``, ``"ab"``: a folder with something in it is there. ``"wb"`` raises this when it uploads or commits.
    SegmentSealedError
        ``"ab"``: the segment is sealed.
    FencedError
        ``"ab"``: another writer holds the segment exclusively, and no `owner` is given to take over.
    ValueError
        There is no such mode, the mode takes no owner, or a segment cannot have this name.
    """

    def __init__(
        self,
        core: Core,
        path: str,
        mode: str,
        *,
        owner: str | None = None,
        absolute: bool = False,
        autocommit: bool = True,
        attrs: Mapping[str, str | None] | None = None,
        commit_on: CommitOnGiven | None = None,
    ) -> None:
        super().__init__()
        if mode not in WRITE_MODES:
            raise ValueError(f"{path}: there is no mode {mode!r}: write a segment by 'wb', 'xb' or 'ab'")
        if owner is not None and mode != "ab":
            raise ValueError(f"{path}: an owner is for mode 'ab', not {mode!r}")
        if commit_on is not None and not autocommit:
            raise ValueError(f"{path}: a file of a transaction is committed at its end: leave out commit_on")
        when = NEVER if commit_on is None else parse_commit_on(commit_on)
        names.check_new_name(path)
        transitions.check_attrs(attrs or {}, path)
        self.fs: Any = core.fs  # for tools that ask for it
        self.path = path
        self.mode = mode
        self.autocommit = autocommit
        self._client = core.client
        self._bridge = core.bridge
        self._attrs = attrs
        self._process = os.getpid()
        self._is_discarded = False
        self._is_held = False
        self._is_told = False
        self._is_closing = False
        if mode == "xb":
            self._bridge.run(check_absent(self._client, path))
        found = self._bridge.run(find_end(Binding(core, path), owner)) if mode == "ab" else None
        header = None if found is None else found.header
        self.epoch = None if header is None or owner is None else header.epoch
        self._segment = None if header is None else header.segment
        self._position = 0 if found is None else found.length if absolute else found.size
        self._is_there = found is not None
        parts = self._new_intake(), when, self._commit_in_time
        self._buffer = WriteBuffer(self._bridge, self._client.budget, path, *parts)
        watch(self)

    def _new_intake(self) -> Intake:
        if self._is_replacing:
            return replacement(self._client, self.path, create_only=self.mode == "xb")
        return addition(self._client, self.path, self._guard, create=self._segment is None)

    @property
    def _is_replacing(self) -> bool:
        return self.mode != "ab" and not self._is_there

    @property
    def _guard(self) -> Guard:
        return Guard(segment=self._segment, epoch=self.epoch)

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, data: Any) -> int:
        """Take bytes; they are not visible before `commit` or `close`.

        Returns
        -------
        int
            The number of bytes: all of them.

        Raises
        ------
        TypeError
            The data is text, or not bytes-like.
        OSError
            The store failed, now or before. Uncommitted bytes will never be committed.
        """
        if not self._is_held:
            if self.closed:
                raise ValueError(f"{self.path}: the file is closed")
            self._check_sound()
        view = as_bytes(data)
        if view is None:
            raise TypeError(f"{self.path}: cannot write {type(data).__name__}: give bytes")
        self._accept(view)
        return len(view)

    @alone
    def _accept(self, view: memoryview) -> None:
        with self._buffer.or_broken():
            self._buffer.add(view, is_held=self._is_held)
            self._position += len(view)
            is_due = not self._is_held and self._buffer.wrote(view)
        if is_due:
            self.commit()

    @alone
    def commit(self) -> None:
        """Publish all bytes written so far, or no byte; writing may go on.

        After the first commit a file opened by ``wb`` or ``xb`` appends to the incarnation that it has made. After
        `discard` this has no effect.

        Raises
        ------
        FileExistsError
            ``xb``: something has been created there.
        FileNotFoundError
            The segment that this file appends to is gone; another may have its name.
        SegmentSealedError, FencedError
            No byte was written.
        AppendOutcomeUnknown
            It is not known whether the commit took place.
        """
        if self._is_discarded:
            return
        self._check_sound()
        self._buffer.restart()
        self._buffer.send()
        intake = self._buffer.intake
        assert intake is not None
        if not self._is_there or not intake.is_empty:
            with self._buffer.or_broken():
                if intake.is_streaming:
                    self._bridge.run(intake.flush())  # a call of its own: Ctrl-C cancels it, and nothing is committed
                self._bridge.run(self._commit(), commits=self.path)
            self._buffer.intake = self._new_intake()
        if self.closed:
            self._release_committed()

    async def _commit(self) -> None:
        intake = self._buffer.intake
        assert intake is not None
        if self._is_replacing:
            header = await overwrite(self._client, self.path, intake, attrs=self._attrs, create_only=self.mode == "xb")
        else:
            is_new = self._segment is None
            written = await append(self._client, self.path, intake, attrs=self._attrs, guard=self._guard, create=is_new)
            header = written.header
        self._segment, self._is_there, self._attrs = header.segment, True, None

    @alone
    def close(self) -> None:
        """Commit the written bytes (unless `autocommit` is false) and close; closing again has no effect.

        Raises
        ------
        OSError
            As `commit`; also if an earlier write or commit failed.
        """
        if self.closed:
            return
        if sys.is_finalizing():
            self.forget()  # the end of the program closes the file
            return
        if is_unwinding(self):
            self.discard()
            return
        self._is_closing = True
        try:
            if self.autocommit:
                self.commit()
                self._release_committed()
            else:
                self._check_sound()
                self._buffer.send()
        finally:
            super().close()

    @alone
    def discard(self) -> None:
        """Drop the bytes that are not committed, and close."""
        if self._is_discarded:
            return
        self._is_discarded = True
        self._buffer.drop()
        try:
            if self._buffer.intake is not None and self.is_mine:
                self._bridge.run(self._buffer.intake.abort())
                self._release()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self.path, error)
        finally:
            super().close()

    def _release_committed(self) -> None:
        """Release after the commit: errors of `_release` add that the written bytes are committed."""
        try:
            with if_interrupted(self.path, "committed"):
                self._release()
        except OSError as error:
            error.add_note(f"{self.path}: the written bytes are committed, but the segment is still held exclusively")
            vars(error)["outcome"] = COMMITTED  # not that of the release
            raise

    def _release(self) -> None:
        """Release a segment that this file holds exclusively, if another writer has not acquired it."""
        if self.epoch is None:
            return
        guard, self.epoch = self._guard, None
        try:
            self._bridge.run(release(self._client, self.path, guard), commits=self.path)
        except (FencedError, FileNotFoundError) as error:
            logger.debug("%s: nothing to release: %s", self.path, error)

    # -- what a file object has ----------------------------------------------------------------------------

    def tell(self) -> int:
        """Return the position of the next byte, if no other writer appends."""
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        raise io.UnsupportedOperation(f"{self.path}: it is open for writing, by mode {self.mode!r}: open it by 'rb'")

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Commit if the file was opened with ``commit_on="flush"``; else written bytes stay buffered."""
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        if not self._buffer.when.flush or self._is_held or self._buffer.intake is None or self._is_discarded:
            return  # `IOBase.close` calls this method too, of a file that is let go as well
        if self._buffer.is_broken and self._is_closing:
            return  # `close` has said so
        if (self.pending_bytes or self._buffer.is_broken) and not is_unwinding(self):
            self.commit()

    @alone
    def _commit_in_time(self) -> None:
        """Commit in the timer's thread; the next call of the writer raises what went wrong."""
        if self.closed or self._buffer.is_broken or not self.is_mine or not self.pending_bytes:
            return
        try:
            self.commit()
        except OSError as error:
            self._buffer.failure = error.with_traceback(None)  # its frames would keep the file alive
            logger.error("%s: a commit by commit_on failed, so the file takes no more bytes: %s", self.path, error)

    @property
    def full_name(self) -> str:
        """The full URL, as fsspec's file objects have it."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def pending_bytes(self) -> int:
        """The number of written bytes that are not committed."""
        return 0 if self._is_discarded else self._buffer.pending_bytes

    def hold(self, is_held: bool = True) -> None:
        """Keep all written bytes in memory: a dying wrapper hands on its bytes, which are only counted."""
        self._is_held = is_held

    def forget(self, lost: int | None = None) -> None:
        """Close without committing and without waiting: for garbage collection, which may come at any moment.

        Parameters
        ----------
        lost
            The number of bytes that are not committed, as the wrapper of this file counts them.
        """
        if not hasattr(self, "_buffer") or self._buffer.intake is None:  # the constructor may have failed
            return
        lost, is_closed = self.pending_bytes if lost is None else lost, self.closed
        intake, self._buffer.intake = self._buffer.intake, None
        super().close()
        try:
            self._tell(lost, is_closed, at_exit=sys.is_finalizing())
        finally:
            if self.is_mine and not is_closed and not sys.is_finalizing():
                self._buffer.give_up(intake)

    def _tell(self, lost: int, is_closed: bool, *, at_exit: bool) -> None:
        """Report lost bytes once, unless the error of a failed `close` has reported them."""
        if lost and self.is_mine and not self._is_told and not (self._buffer.is_broken and is_closed):
            self._is_told = True
            tell_lost(self.path, lost, at_exit=at_exit)

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the file, rather than the process that it was forked from."""
        return self._process == os.getpid()

    def tell_at_exit(self, lost: int | None = None) -> None:
        """Say, as the program ends, how many bytes are lost, if any are."""
        self._tell(self.pending_bytes if lost is None else lost, self.closed, at_exit=True)

    def _check_sound(self) -> None:
        if not self.is_mine:
            raise ValueError(f"{self.path} was opened for writing in another process; open it here")
        if self._buffer.is_broken:
            text = f"{self.path}: an earlier write or commit of this file failed; nothing after it is written"
            raise OSError(text) from self._buffer.failure
