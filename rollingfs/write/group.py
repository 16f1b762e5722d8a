"""A group of appends that one commit takes: each with its conditions, and with its own outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rollingfs.commit.attempt import Attempt
from rollingfs.commit.chunk_files import Stored
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingError
from rollingfs.format import transitions
from rollingfs.format.header import Header
from rollingfs.format.placement import Item
from rollingfs.format.transitions import Attrs, Guard
from rollingfs.runtime.values import value_class
from rollingfs.write.grow import as_items, grow


@value_class
class Written:
    """An append that took place."""

    offset: int
    """Where its data begins."""
    header: Header
    """The header that its commit made, or met if there was nothing to do."""


Outcome = Written | Exception


@dataclass(eq=False, repr=False)
class Append:
    """One caller's append. It waits in the queue, or a group has it, or its outcome is known."""

    data: Sequence[bytes | Stored]
    guard: Guard = field(default_factory=Guard)
    attrs: Attrs = field(default_factory=dict)
    uploads: Uploads | None = None
    """The chunk files among its data that were uploaded for this append."""
    deadline_s: float = 0.0
    """When the append gives up, by the monotonic clock."""
    group: Group | None = None
    """The newest group that has taken it out of the queue."""
    gate: threading.Lock = field(default_factory=threading.Lock)
    """Its thread waits here; who lets it on has the lock of the appender."""

    def let_on(self) -> None:
        """Wake its thread, now or when that waits the next time."""
        if self.gate.locked():
            self.gate.release()

    @property
    def size(self) -> int:
        return sum(len(item) if isinstance(item, bytes) else item.size for item in self.data)

    @property
    def inline_size(self) -> int:
        return sum(len(item) for item in self.data if isinstance(item, bytes))

    @property
    def is_plain(self) -> bool:
        """Whether it has no condition but the incarnation, and no attributes."""
        guard = self.guard
        offsets = guard.expected_offset, guard.expected_start
        return not (guard.epoch is not None or offsets != (None, None) or guard.expected_attrs or self.attrs)

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None while the outcome is unknown."""
        outcomes = self.group.outcomes if self.group is not None else None
        return outcomes.get(self) if outcomes is not None else None

    @property
    def is_waiting(self) -> bool:
        """Whether no attempt to commit it is under way, and none has taken place."""
        outcomes = self.group.outcomes if self.group is not None else {}
        return outcomes is not None and self not in outcomes


def unknown(path: str, cause: BaseException | None) -> AppendOutcomeUnknown:
    """The error for an append whose commit was broken off."""
    why = f"was interrupted by {cause!r}" if cause is not None else "was interrupted"
    return AppendOutcomeUnknown(f"{path}: the commit of this append {why}; read the segment before repeating it")


class Group:
    """A group of appends as one step of the commit loop.

    Attributes
    ----------
    members : list
        In the order of their bytes.
    outcomes : mapping or None
        None while its leader is at work. An append that is not in it waits again.
    """

    def __init__(self, path: str, leader: Append) -> None:
        self.path = path
        self.leader = leader
        self.members: list[Append] = []
        self.uploads: list[Uploads] = []
        self.is_large = False
        """Whether chunk files were uploaded for it: then its commit begins with a fresh header. If that forbids the
        append, no attempt has named the files, and they can go; beside an upload the request is cheap."""
        self.is_prompt = False
        """Whether one of its appends is meant for one offset, which others reach meanwhile."""
        self.is_plain = True
        """Whether no append has a condition or attributes."""
        self.outcomes: Mapping[Append, Outcome] | None = None
        self.attempt: Attempt | None = None
        """What its commit has sent."""
        self._refused: dict[Append, Exception] = {}

    def add(self, append: Append) -> None:
        """Take an append in, which still is in the queue."""
        self.members.append(append)
        append.group = self
        self.is_large = self.is_large or Stored in map(type, append.data)
        self.is_prompt = self.is_prompt or append.guard.expected_offset is not None
        self.is_plain = self.is_plain and append.is_plain
        if append.uploads:
            self.uploads.append(append.uploads)

    def size(self) -> int:
        """Bytes of its appends, without those in chunk files."""
        return sum(append.inline_size for append in self.members)

    @property
    def is_open(self) -> bool:
        """Whether an attempt was sent that took place, or may have."""
        return self.attempt is not None and self.attempt.is_out

    def succeeded(self, committed: Committed) -> Mapping[Append, Outcome]:
        """The outcomes of a commit that took place, or that had nothing to do."""
        outcomes: dict[Append, Outcome] = dict(self._refused)
        offset = committed.base.length if committed.base is not None else 0
        for append in self.members:
            if append not in self._refused:
                assert committed.header is not None
                outcomes[append] = Written(offset, committed.header)
                offset += append.size if len(self.members) > 1 else 0
        return outcomes

    def failed(self, error: BaseException) -> Mapping[Append, Outcome]:
        """The outcomes of a commit that did not take place or whose outcome is unknown.

        No refusal counts: it rests on what was not committed, or on a header that was not made durable since.
        """
        # some are judged again, without the others
        waiting = set(self._refused) if len(self._refused) < len(self.members) else set()
        if isinstance(error, CommitTimeoutError):
            # nothing was written, and those that came later have time left
            now_s = time.monotonic()
            waiting |= {append for append in self.members if append.deadline_s > now_s}
            waiting.discard(self.leader)
        elif isinstance(error, AppendInterrupted) and error.outcome == "committed":
            assert self.attempt is not None
            return self.succeeded(self.attempt.result())
        elif not isinstance(error, Exception):
            if not self.is_open or (isinstance(error, AppendInterrupted) and error.outcome == "not committed"):
                return {}
            error = unknown(self.path, error)
        return {append: error for append in self.members if append not in waiting}

    async def step(self, base: Loaded, attempt: Attempt) -> Header | None:
        """The header with all appends of the group that it allows; it refuses the others if it is fresh."""
        header = base.header
        items: list[Item] = []
        self._refused, offset = {}, header.length if header else 0
        for append in self.members:
            try:
                admitted = transitions.check(header, append.guard, self.path, length=offset)
                transitions.check_open(admitted, self.path)
                if append.attrs:
                    admitted = transitions.with_attrs(admitted, append.attrs, self.path, offset)
                added = await as_items(append.data, attempt.files)
            except transitions.MergeFoundError:
                raise
            except (RollingError, FileNotFoundError, ValueError) as error:
                if not attempt.fresh:
                    raise
                self._refused[append] = error
                attempt.anywhere = None  # a refusal holds for this base
                continue
            header = admitted
            if len(self.members) > 1:
                offset += append.size
            items += added
        if len(self._refused) == len(self.members) or header is None or not (items or header is not base.header):
            return None
        return await grow(header, items, attempt.files)
