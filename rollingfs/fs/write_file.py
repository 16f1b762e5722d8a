"""`WriteFile`, the file object for writing: bounded memory, and nothing committed but by `close` or `commit`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from fsspec.core import OpenFile

from rollingfs.backend.contract import frozen
from rollingfs.client import Client
from rollingfs.errors import FencedError, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.transitions import Guard
from rollingfs.fs.append_start import Start, check_absent, find_end
from rollingfs.fs.unclosed import CommitsByClose, tell_lost, watch
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.write.ingest import PIECE_BYTES, Intake, as_bytes

logger = logging.getLogger("rollingfs")

MODES = ("wb", "xb", "ab")
FRAMES_SEARCHED_MAX = 16


class WriteFile(CommitsByClose):
    """A segment being written: from its beginning (``wb``, ``xb``) or from its end (``ab``).

    Nothing is visible before `commit` or `close`, and then all at once. Leaving a ``with`` block by an exception, or
    forgetting the file, commits nothing; nor does the end of the program. A file that is forgotten with bytes that are
    not committed warns of it.

    Parameters
    ----------
    fs
        The filesystem that opened it, for tools that ask for it.
    path
        The segment.
    mode
        ``"wb"`` replaces what is there, ``"xb"`` wants nothing there, ``"ab"`` appends to what is there or creates it.
    owner
        For ``"ab"``: hold the segment exclusively until the file is closed, as `Segment.acquire` does.
    autocommit
        False: `close` leaves the commit to a later `commit` (fsspec's transactions).
    attrs
        Attributes to set with the first commit; None removes one.

    Attributes
    ----------
    epoch : int or None
        The epoch of an exclusive writer.

    Raises
    ------
    FileExistsError
        ``"xb"``: something is there.
    IsADirectoryError
        ``"xb"``, ``"ab"``: a folder with something in it is there; ``"wb"`` finds that out when it uploads or commits.
    SegmentSealedError
        ``"ab"``: the segment is sealed.
    FencedError
        ``"ab"``: another holds it exclusively, and no `owner` is given to take over.
    ValueError
        It is no name for a segment.
    """

    def __init__(
        self,
        fs: Any,
        client: Client,
        bridge: Bridge,
        path: str,
        mode: str,
        *,
        owner: str | None = None,
        autocommit: bool = True,
        attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__()
        self._intake: Intake | None = None  # for `__del__`, if this method fails
        if mode not in MODES:
            raise ValueError(f"{path}: mode {mode!r} cannot be: a segment is written by 'wb', 'xb' or 'ab'")
        if owner is not None and mode != "ab":
            raise ValueError(f"{path}: an owner is for mode 'ab', not {mode!r}")
        names.check_segment_name(path)
        transitions.check_attrs(attrs or {}, path)
        self.fs = fs
        self.path = path
        self.mode = mode
        self.autocommit = autocommit
        self._client = client
        self._bridge = bridge
        self._attrs = attrs
        self._process = os.getpid()
        self._is_broken = False
        self._is_discarded = False
        self._is_held = False
        self._is_told = False
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        if mode == "xb":
            bridge.run(check_absent(client, path))
        start = bridge.run(find_end(client, path, owner)) if mode == "ab" else Start()
        self.epoch = start.epoch
        self._segment = start.segment
        self._position = start.position
        self._is_there = start.is_there
        self._intake = self._new_intake()
        watch(self)

    def _new_intake(self) -> Intake:
        segments = self._client.segments
        if self._is_replacing:
            return segments.replacement(self.path, create_only=self.mode == "xb")
        return segments.addition(self.path, self._guard, create=self._segment is None)

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
            How many bytes: all of them.

        Raises
        ------
        TypeError
            It is text, or not bytes-like.
        OSError
            The store failed, or did before: nothing of what is not committed yet will be.
        """
        if not self._is_held:
            self._check_usable()
        view = as_bytes(data)
        if view is None:
            raise TypeError(f"{self.path}: cannot write {type(data).__name__}: give bytes")
        with self._or_broken():
            if self._is_held or self._pieces_bytes + len(view) < PIECE_BYTES:
                self._pieces.append(frozen(view))
                self._pieces_bytes += len(view)
            else:
                self._send()
                self._take(view)
            self._position += len(view)
        return len(view)

    def _send(self) -> None:
        """Hand the buffered bytes to the intake."""
        if self._pieces:
            with self._or_broken():
                data, self._pieces, self._pieces_bytes = b"".join(self._pieces), [], 0
                self._take(memoryview(data))

    def _take(self, view: memoryview) -> None:
        assert self._intake is not None
        self._bridge.run(self._intake.take(view))

    @contextlib.contextmanager
    def _or_broken(self) -> Iterator[None]:
        """Break the file by any error within, Ctrl-C too: what comes later must not follow a gap."""
        try:
            yield
        except BaseException:
            self._is_broken = True
            raise

    def _run(self, coroutine: Any, *, commits: str | None = None) -> None:
        with self._or_broken():
            self._bridge.run(coroutine, commits=commits)

    def commit(self) -> None:
        """Publish what was written so far, all or nothing; writing may go on.

        After the first commit a file opened by ``wb`` or ``xb`` appends to the incarnation that it has made. After
        `discard` nothing happens.

        Raises
        ------
        FileExistsError
            ``xb``: something has come to be there.
        FileNotFoundError
            The segment that is appended to is gone; another may have its name.
        SegmentSealedError, FencedError
            Nothing was written.
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        """
        if self._is_discarded:
            return
        self._check_sound()
        assert self._intake is not None
        self._send()
        if not self._is_there or not self._intake.is_empty:
            if self._intake.is_streaming:
                self._run(self._intake.flush())  # in a call of its own, which Ctrl-C cancels with nothing committed
            self._run(self._commit(), commits=self.path)
            self._intake = self._new_intake()
        if self.closed:
            self._release_committed()

    async def _commit(self) -> None:
        segments = self._client.segments
        if self._is_replacing:
            header = await segments.overwrite(self.path, self._intake, attrs=self._attrs, create_only=self.mode == "xb")
        else:
            written = await segments.extend(
                self.path, self._intake, attrs=self._attrs, guard=self._guard, create=self._segment is None
            )
            header = written.header
        self._segment, self._is_there, self._attrs = header.segment, True, None

    def close(self) -> None:
        """Commit what was written (unless `autocommit` is false) and close; closing again does nothing.

        Raises
        ------
        OSError
            As `commit`; also if an earlier write or commit failed.
        """
        if self.closed:
            return
        if sys.is_finalizing():
            self.forget()  # what closes it is the end of the program
            return
        if self._is_unwinding():
            self.discard()
            return
        try:
            if self.autocommit:
                self.commit()
                self._release_committed()
            else:
                self._check_sound()
                self._send()
        finally:
            super().close()

    def discard(self) -> None:
        """Give up what is not committed, and close."""
        if self._is_discarded:
            return
        self._is_discarded = True
        self._pieces, self._pieces_bytes = [], 0
        try:
            if self._intake is not None and self.is_mine:
                self._bridge.run(self._intake.abort())
                self._release()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self.path, error)
        finally:
            super().close()

    def _release_committed(self) -> None:
        """`_release`, after the commit: whatever comes of it, what was written is there."""
        try:
            with if_interrupted(self.path, "committed"):
                self._release()
        except OSError as error:
            error.add_note(f"{self.path}: what was written is committed, but the segment is still held exclusively")
            raise

    def _release(self) -> None:
        """Give an exclusively held segment back, if it still is ours."""
        if self.epoch is None:
            return
        guard, self.epoch = self._guard, None
        try:
            self._bridge.run(self._client.segments.release(self.path, guard), commits=self.path)
        except (FencedError, FileNotFoundError) as error:
            logger.debug("%s: nothing to release: %s", self.path, error)

    # -- what a file object has ----------------------------------------------------------------------------

    def tell(self) -> int:
        """Position, counted from the first retained byte: where the next byte will be, if nobody else appends."""
        return self._position

    def readable(self) -> bool:
        return False

    def read(self, size: int | None = -1) -> bytes:
        raise io.UnsupportedOperation("read")

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: what is written stays buffered until `commit` or `close`."""
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")

    @property
    def full_name(self) -> str:
        """The full URL, as fsspec's file objects have it."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def pending_bytes(self) -> int:
        """Bytes that were written, and are not committed."""
        taken = self._intake.size if self._intake is not None else 0
        return 0 if self._is_discarded else self._pieces_bytes + taken

    def hold(self, is_held: bool = True) -> None:
        """Keep in memory what is written, whatever it is: a wrapper that dies hands on what it has, to be counted."""
        self._is_held = is_held

    def forget(self, lost: int | None = None) -> None:
        """Close without committing and without waiting: for garbage collection, which may come at any moment.

        Parameters
        ----------
        lost
            How many bytes are not committed, as what wraps this file knows it.
        """
        if self._intake is None:
            return
        lost, is_closed = self.pending_bytes if lost is None else lost, self.closed
        intake, self._intake = self._intake, None
        super().close()
        try:
            self._tell(lost, is_closed, at_exit=sys.is_finalizing())
        finally:
            if self.is_mine and not is_closed and not sys.is_finalizing():
                self._forget(intake)

    def _forget(self, intake: Intake) -> None:
        if not self._bridge.is_async:
            drive(intake.abort_open())  # no more: the rest could take a lock that this very thread holds
        elif not intake.is_empty:
            self._bridge.start(intake.abort())

    def _tell(self, lost: int, is_closed: bool, *, at_exit: bool) -> None:
        """Say how many bytes are lost, if any are; once, and not what the error of a failed `close` has said."""
        if lost and self.is_mine and not self._is_told and not (self._is_broken and is_closed):
            self._is_told = True
            tell_lost(self.path, lost, at_exit=at_exit)

    @property
    def is_mine(self) -> bool:
        """Whether this process opened it, rather than the one that it was forked from."""
        return self._process == os.getpid()

    def tell_at_exit(self, lost: int | None = None) -> None:
        """Say how many bytes are lost, if any are: the program ends."""
        self._tell(self.pending_bytes if lost is None else lost, self.closed, at_exit=True)

    def _is_unwinding(self) -> bool:
        """Whether ``with fsspec.open(…)`` closes this file because of an exception, of which it does not tell."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(FRAMES_SEARCHED_MAX):
            if frame is None:
                return False
            if frame.f_code is OpenFile.__exit__.__code__:
                opened, args = frame.f_locals["self"], frame.f_locals["args"]
                return args[0] is not None and any(file is self for file in opened.fobjects)
            frame = frame.f_back
        return False

    def _check_usable(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        self._check_sound()

    def _check_sound(self) -> None:
        if not self.is_mine:
            raise ValueError(f"{self.path} was opened for writing in another process; open it here")
        if self._is_broken:
            raise OSError(f"{self.path}: an earlier write or commit of this file failed; nothing after it is written")
