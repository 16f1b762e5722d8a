"""The bytes that were written to an open file and are not committed: the newest in memory, the others on their way."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from rollingfs.backend.contract import frozen
from rollingfs.fs.commit_on import Due
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.write.budget import Budget, Spillable
from rollingfs.segment.write.ingest import PIECE_BYTES, Intake

logger = logging.getLogger("rollingfs")

GRAIN_BYTES = 16 * 1024
"""Bytes of room that are requested at once, so that small writes are quick."""
PIECE_COST_BYTES = 48
"""Bytes that Python needs for a piece in addition to its own."""


class WriteBuffer(Spillable):
    """Gathers what is written, and hands it to the intake of the next commit.

    Parameters
    ----------
    intake
        The intake of the next commit.
    due
        Its lock is held by every use of the file.

    Attributes
    ----------
    is_broken : bool
        A write failed: later bytes must not follow a gap.
    failure : BaseException or None
        The error that the writer has not seen, because another thread met it.
    """

    def __init__(self, bridge: Bridge, budget: Budget, path: str, due: Due, intake: Intake) -> None:
        self.intake: Intake | None = intake
        self.is_broken = False
        self.failure: BaseException | None = None
        self._bridge = bridge
        self._path = path
        self._due = due
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._spilling_bytes = 0
        """Data that another writer is handing to the intake, or has failed to hand to it."""
        self._share = budget.share()
        self._process = os.getpid()
        budget.add(self)

    def renew(self, intake: Intake) -> None:
        """Begin again, after a commit."""
        self.intake = intake

    @property
    def pending_bytes(self) -> int:
        """The number of written bytes that are not committed."""
        return self._bytes + self._spilling_bytes + (self.intake.size if self.intake is not None else 0)

    @contextlib.contextmanager
    def or_broken(self) -> Iterator[None]:
        """Break the file on any error, Ctrl-C too: later bytes must not follow a gap."""
        try:
            yield
        except BaseException:
            self.is_broken = True
            raise

    def add(self, view: memoryview, *, is_held: bool) -> None:
        """Take bytes; with `is_held`, keep them all in memory, whatever the bound."""
        if is_held or self._bytes + len(view) < PIECE_BYTES:
            if not is_held:
                self._make_room(len(view))
            self._pieces.append(frozen(view))
            self._bytes += len(view)
        else:
            self.send()
            self._take(view)

    def _make_room(self, size: int) -> None:
        need = self._bytes + size + PIECE_COST_BYTES * (len(self._pieces) + 1)
        if need <= self._share.count:
            return
        grains = max(GRAIN_BYTES, need - self._share.count)
        if not (self._share.try_take(grains) or self._share.try_take(need - self._share.count)):
            # what is spilled meanwhile makes room as well, so this may be more than needed, and never less
            self._bridge.run(self._share.take(max(size + PIECE_COST_BYTES, min(grains, GRAIN_BYTES)), self._spill))

    def send(self) -> None:
        """Hand the buffered bytes to the intake."""
        if self._pieces:
            with self.or_broken():
                self._take(memoryview(self._joined()))

    def _joined(self) -> bytes:
        data, self._pieces, self._bytes = b"".join(self._pieces), [], 0
        self._share.close()
        return data

    def _take(self, view: memoryview) -> None:
        assert self.intake is not None
        self._bridge.run(self.intake.take(view))

    def drop(self) -> None:
        """Forget the buffered bytes."""
        self._pieces, self._bytes = [], 0
        self._share.close()

    # -- for other writers, at the bound of memory ---------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        intake = self.intake  # garbage collection of the file may take it away
        return self._share.count + (intake.share.count if intake is not None else 0)

    async def _spill(self) -> None:
        assert self.intake is not None
        await self.intake.spill(self._joined())

    async def spill_if_idle(self) -> bool:
        if self._process != os.getpid():
            return False
        lock, taken = self._due.lock, list[bool]()
        try:
            taken.extend(map(lock.acquire, [False]))  # in one call: Ctrl-C comes before both or after both
            return taken[0] and await self._spill_alone()
        finally:
            if True in taken:
                lock.release()

    async def _spill_alone(self) -> bool:
        """`spill_if_idle`, by a caller that has the lock."""
        due, intake = self._due, self.intake
        if due.uses or self.is_broken or intake is None or not self.held_bytes:
            return False
        due.uses += 1  # the lock lets other tasks of this thread pass
        self._spilling_bytes = self._bytes
        try:
            with self.or_broken():
                await intake.spill(self._joined())
            self._spilling_bytes = 0
        except BaseException as error:
            self.failure = error.with_traceback(None)  # its frames would keep the file alive
            self.drop()
            if not isinstance(error, Exception):
                raise
            logger.error("%s: its bytes could not be uploaded, so the file takes no more: %s", self._path, error)
        finally:
            due.uses -= 1
        if self.intake is None:
            await self._abort(intake)  # the file was let go meanwhile
        return True

    async def _abort(self, intake: Intake) -> None:
        try:
            await intake.abort()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self._path, error)

    def give_up(self, intake: Intake) -> None:
        """Give up the uploads of a file that was let go; this takes no lock, so that garbage collection may do it."""
        if self._due.uses:
            return  # another writer is writing to the upload, and gives it up afterwards
        if not self._bridge.is_async:
            drive(intake.abort_open())
        elif not intake.is_empty:
            self._bridge.start(intake.abort())
