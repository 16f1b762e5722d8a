"""Append a pipe that does not end: commits of whole lines, each exactly once, while the pipe goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rollingfs.cli import output
from rollingfs.cli.session import Stop
from rollingfs.errors import AppendOutcomeUnknown, RollingError
from rollingfs.format import transitions
from rollingfs.format.append_keys import AlreadyAppended, AppendKey, ForgottenError, gone_of
from rollingfs.format.transitions import Guard
from rollingfs.fs.core import Core
from rollingfs.fs.write_buffer import CommitOn
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.create import create as create_segment
from rollingfs.ship.sender import Sender, Stopped

LINE_FEED = b"\n"
READ_BYTES = 64 * 1024
COMMIT_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that wait make a commit due, also without a line feed: the memory is bounded."""
LOOK_S = 1.0
"""Longest wait for bytes between two looks whether to end."""


@dataclass
class Pipe:
    """What comes from a pipe, and the segment that it goes to.

    Parameters
    ----------
    path
        The backend's path of the segment.
    source
        The descriptor of the pipe.
    when
        What makes a commit due.
    stamps
        Put the time before each line.
    """

    core: Core
    path: str
    source: int
    when: CommitOn
    stamps: bool
    stop: Stop
    written: int = 0
    """Bytes that are committed."""
    commits: int = 0
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _waiting: bytearray = field(default_factory=bytearray)
    _since_s: float = 0.0
    """When the oldest byte that waits came."""
    _is_in_line: bool = False
    _is_unknown: bool = False
    """Whether the commit under way may have taken place."""

    def __post_init__(self) -> None:
        self._sender = Sender(self.core, self.path, self.stop, self._complain)

    def bind(self, create: bool) -> None:
        """Find the segment, or make it."""
        self._segment, self._gone = self.core.run(self._bound(create))

    async def _bound(self, create: bool) -> tuple[str, int]:
        client = self.core.client
        found = await client.headers.load(self.path)
        if not found.live and not await adopt(client, self.path, None):
            if not create:
                raise transitions.missing(self.path)
            with contextlib.suppress(FileExistsError):  # another writer was faster, and it is the same segment
                await create_segment(client, self.path)
        header = transitions.live((await client.headers.load(self.path)).header, self.path)
        return header.segment, gone_of(header.attrs)

    def run(self) -> None:
        """Commit what comes until the pipe ends, or the user stops the command.

        Raises
        ------
        RollingError
            The last bytes were not written, or it is unknown whether they were.
        """
        blocks: queue.Queue[bytes | OSError] = queue.Queue(1)
        threading.Thread(target=_read_all, args=(self.source, blocks), name="rollingfs-pipe", daemon=True).start()
        while not self.stop.is_wanted:
            with contextlib.suppress(queue.Empty):
                if not self._take(blocks.get(timeout=min(self._left_s(), LOOK_S))):
                    break
            if self._is_due():
                self._commit(self._waiting.rfind(LINE_FEED) + 1 or len(self._waiting))
        with contextlib.suppress(queue.Empty):
            self._take(blocks.get_nowait())
        while self._waiting:
            self._commit(min(len(self._waiting), COMMIT_BYTES_MAX))

    def _take(self, data: bytes | OSError) -> bool:
        """Add what came to the bytes that wait; return whether the pipe goes on."""
        if isinstance(data, OSError):
            raise data
        self._since_s = self._since_s if self._waiting else time.monotonic()
        self._waiting += self._stamped(data) if self.stamps and data else data
        return bool(data)

    def _left_s(self) -> float:
        """Return the time until a commit is due by the age of what waits."""
        if self.when.seconds is None or LINE_FEED not in self._waiting:
            return LOOK_S
        return max(0.0, self._since_s + self.when.seconds - time.monotonic())

    def _is_due(self) -> bool:
        waiting = self._waiting
        if len(waiting) >= COMMIT_BYTES_MAX:
            return True
        age_s = time.monotonic() - self._since_s
        return LINE_FEED in waiting and self.when.is_due(len(waiting), age_s, lambda: waiting.count(LINE_FEED))

    def _stamped(self, data: bytes) -> bytes:
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z ").encode()
        first, self._is_in_line = b"" if self._is_in_line else stamp, not data.endswith(LINE_FEED)
        end = b"" if self._is_in_line else LINE_FEED
        return first + data.removesuffix(LINE_FEED).replace(LINE_FEED, LINE_FEED + stamp) + end

    def _complain(self, text: str) -> None:
        output.complain(f"{text}; {len(self._waiting):,} bytes wait")

    def _commit(self, size: int) -> None:
        """Commit the first bytes that wait, and wait as long as the store fails."""
        data, self.commits = bytes(self._waiting[:size]), self.commits + 1
        self._is_unknown = False
        try:
            self._sender.patiently(lambda: self._append(data))
        except (OSError, RollingError, Stopped) as error:
            raise RollingError(self._said(size, error)) from error
        self.written += size
        del self._waiting[:size]
        self._since_s = time.monotonic()

    def _append(self, data: bytes) -> None:
        key = AppendKey(self._name, self.commits, self._gone, self._segment)
        guard, attrs = Guard(self._segment), key.attributes(len(data))
        try:
            self.core.run(append(self.core.client, self.path, data, guard=guard, attrs=attrs))
        except AlreadyAppended:
            return
        except AppendOutcomeUnknown:
            self._is_unknown = True
            raise
        except ForgottenError:  # of the appends before, whose outcome is known
            segment, self._gone = self.core.run(self._bound(create=False))
            if self._is_unknown or segment != self._segment:
                raise
            self._append(data)

    def _said(self, size: int, error: Exception) -> str:
        those, after = f"the next {size:,} bytes are", len(self._waiting) - size
        said = f"it is unknown whether {those} written" if self._is_unknown else f"{those} not written"
        rest = f", and {after:,} bytes after them are not written" if after else ""
        return f"{self.path}: {self.written:,} bytes are written; {said}{rest}: {error}"


def _read_all(source: int, blocks: queue.Queue[bytes | OSError]) -> None:
    """Read a pipe to its end, in a thread: Windows waits for a pipe only where it reads."""
    data: bytes | OSError = b" "
    while data and isinstance(data, bytes):
        try:
            data = os.read(source, READ_BYTES)
        except OSError as error:
            data = error
        blocks.put(data)
