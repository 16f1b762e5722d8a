"""The history: each change of a header at the store is a step of the model, and answers must agree with the steps.

The store serializes all commits. So no search is needed: the witness sees which operation each request belongs to, and
whose bytes it carries.
"""

import asyncio
import contextlib
import contextvars
import itertools
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollingfs.errors import CorruptChunkError, LockedError
from rollingfs.stream.retention import RetentionPolicy
from tests.simulation import model
from tests.simulation.model import Call, Refused, Seg, State

ANYWHERE = {CorruptChunkError}
"""What a damaged copy may raise."""
FOREVER = 2**62
SILENT = "no value"
"""What a program on top gives that tells its caller no more than that it is done."""
ANSWER_S_MAX = 0.1
"""More than an answer takes to a client."""
TOKEN = 4
"""Each token of the data is another one: a byte of 0xf0 or more, and three below 0x80."""


class Violation(AssertionError):
    """A rule of rollingfs was broken."""


@dataclass(eq=False)
class Doing:
    """An operation that runs, or has run."""

    number: int
    call: Call
    client: int
    began: int
    """The number of changes before it began."""
    ended: int | None = None
    told: str = "running"
    """`ok`, `error`, `not done` or `unknown`, when it has ended."""
    began_s: float = 0.0
    since: int = 0
    """The oldest changes that its looks may show: its client may believe what it saw a while ago."""
    way: Any = None
    """The way of its client to the store."""
    is_dead: Callable[[float], bool] = lambda at_s: False
    """Whether its process was dead at a time."""
    is_faulty: bool = False
    """Whether its calls may fail."""
    is_locked_out: bool = False
    """Whether the store refused one of its calls, because another held a lock for too long."""
    is_denied: bool = False
    """Whether one of its looks did not find a file that is there."""
    is_of_face: bool = False
    """Whether a program on top runs it, which nobody cancels."""
    is_alone: bool = True
    """Whether no other operation ran beside it."""
    removed: dict[str, Seg] = field(default_factory=dict)
    """What it deleted, if it is a delete."""
    policies: Mapping[str, RetentionPolicy] = field(default_factory=dict)
    """Of a run of retention: what counts in each folder where no trim is under way, when it begins."""
    dropped: int = 0
    """The bytes that its steps dropped, if it has many."""
    effects: list[tuple[int, Any]] = field(default_factory=list)
    """When it took place, and the value that its caller must get."""
    lost: tuple[int, Any] = (0, None)
    """The same, of what the store has lost."""

    def __str__(self) -> str:
        took = ", ".join(f"at {at}" for at, _ in self.effects) or "never"
        when = f"{self.told}, {self.began} to {self.ended}, took place {took}"
        return f"#{self.number} {self.call} of client {self.client} ({when})"


running: contextvars.ContextVar[Doing | None] = contextvars.ContextVar("running", default=None)
"""The operation to which a request belongs."""


def tokens_of(first: int, count: int) -> bytes:
    """So many tokens that nobody else gets."""
    numbers = range(first, first + count)
    return b"".join(bytes((0xF0 | n >> 21, n >> 14 & 127, n >> 7 & 127, n & 127)) for n in numbers)


TOKENS = re.compile(rb"[\xf0-\xff][\x00-\x7f]{3}")


def token_at(data: bytes, place: int = 0) -> int:
    high, *low = data[place : place + TOKEN]
    return (high & 7) << 21 | low[0] << 14 | low[1] << 7 | low[2]


class History:
    """The states of all segments, one after another, and the operations that made them."""

    def __init__(self, clock: Callable[[], float], stepped: Callable[[Doing, State, State], None]) -> None:
        self.now = 0
        self.clock, self.stepped = clock, stepped
        self.state: State = {}
        self.made: dict[str, list[Doing]] = {}
        """The operations that made the newest state of each segment; none if nobody can tell the difference."""
        self._lines: dict[str, tuple[list[int], list[Seg | None]]] = {}
        self.gone: dict[str, set[int]] = {}
        """The tokens that were truncated from each segment, and from those that became part of it."""
        self._limbo: dict[str, list[tuple[int, int, Seg]]] = {}
        """When readers may see a source although its target has its content: until it is a tombstone."""
        self._between: list[tuple[int, str, Seg]] = []
        """What a segment held between two appends of one commit: nobody reads it, and the second one meets it."""
        self._deletes: list[Doing] = []
        self._appends: dict[int, Doing] = {}
        """Appends by their first token."""
        self._recovered_s: dict[str, float] = {}
        """When the last append began that was on condition of a segment's length."""
        self.written_s: dict[int, float] = {}
        """When each token was first visible, by the store's clock."""
        self._at_s: list[float] = []
        """When each change was made."""
        self._own: defaultdict[tuple[int, str], int] = defaultdict(int)
        """The last change of each segment of which a client was told that the change was its own."""

    def begin(self, number: int, call: Call, client: int) -> Doing:
        doing = Doing(number, call, client, self.now, since=self.now)
        data = call.args.get("data")
        if call.verb is model.append and data:
            self._appends[token_at(data)] = doing
        return doing

    def believe(self, doing: Doing, age_s: float) -> None:
        """Let a look of a client show what was there a while ago, but not what was before the client's own commits."""
        own = max(self._own[doing.client, path] for path in doing.call.paths)
        doing.since = min(doing.began, max(own, bisect_left(self._at_s, doing.began_s - age_s - ANSWER_S_MAX)))

    def trace(self) -> list[tuple[str, list[int], list[str]]]:
        """All states of all segments, as text."""
        return [(path, times, list(map(str, segs))) for path, (times, segs) in self._lines.items()]

    # -- steps -------------------------------------------------------------------------------------------------

    def changed(self, changes: Mapping[str, Seg | None]) -> None:
        """The segments that are visible have changed so, in one step of the store."""
        before, after = self.state, self.state
        for path, seg in changes.items():
            after = model.put(after, path, seg)
        self.now += 1
        self._at_s.append(asyncio.get_running_loop().time())
        cause = running.get()
        self.made |= {path: [] for path in changes}
        if not self._is_silent(before, after, changes):
            self._explain(before, after, changes, cause)
        self._note_gone(before, after, changes, cause)
        for path, seg in changes.items():
            if before.get(path) is not seg:
                times, segs = self._lines.setdefault(path, ([0], [None]))
                times.append(self.now)
                segs.append(seg)
        for path in changes:
            old, new = before.get(path, model.NOTHING).data, after.get(path, model.NOTHING).data
            for one in TOKENS.finditer(new, len(old) if new.startswith(old) else 0):
                self.written_s.setdefault(token_at(one.group()), self.clock())
        self.state = after

    def lost(self, path: str) -> None:
        """The newest state of a segment has gone, and the one before is there, as if nobody had changed it."""
        times, segs = self._lines[path]
        self.now += 1
        self._at_s.append(asyncio.get_running_loop().time())
        self.state = model.put(self.state, path, segs[-2])
        times.append(self.now)
        segs.append(segs[-2])
        for doing in self.made.pop(path):
            doing.lost = doing.effects.pop()

    def taken(self, path: str, seg: Seg | None) -> None:
        """A source is taken, or, with None, it is a tombstone now."""
        spans = self._limbo.setdefault(path, [])
        if seg is not None:
            spans.append((self.now, FOREVER, seg))
        elif spans and spans[-1][1] == FOREVER:
            spans[-1] = (spans[-1][0], self.now, spans[-1][2])

    def _note_gone(self, before: State, after: State, changes: Mapping[str, Seg | None], cause: Doing | None) -> None:
        moved = {path: self.gone.pop(path, set()) for path in changes if path in before and path not in after}
        for path in changes:
            old, new = before.get(path), after.get(path)
            if new is None or (old is not None and new.data == old.data and new.start == old.start):
                continue
            if cause is not None and cause.call.is_move:
                others = set().union(*moved.values())
                self.gone[path] = others | (self.gone.get(path, set()) if cause.call.verb is model.concat else set())
            elif old is None or old.segment not in (None, new.segment):
                self.gone[path] = set()
            elif new.start > old.start:
                cut = TOKENS.finditer(old.data[: new.start - old.start])
                self.gone.setdefault(path, set()).update(token_at(one.group()) for one in cut)

    @staticmethod
    def _is_silent(before: State, after: State, changes: Mapping[str, Seg | None]) -> bool:
        """Whether nobody can tell the difference; a plain file may get a header."""
        if before != after:
            return False
        for path in changes:
            old, new = before.get(path), after.get(path)
            if old is None or new is None or old.segment is None:
                continue
            if (old.segment, old.epoch) != (new.segment, new.epoch):
                return False
        return True

    def _explain(self, before: State, after: State, changes: Mapping[str, Seg | None], cause: Doing | None) -> None:
        """Find the operations that make the one state of the other."""
        for doings in ([cause] if cause is not None else [], self._appended(before, after, changes)):
            if not doings:
                continue
            state, values, between = before, [], []
            try:
                for doing in doings:
                    state, value = doing.call.apply(state)
                    values.append(value)
                    between.append((self.now, doing.call.path, state.get(doing.call.path)))
            except Refused:
                continue
            if state == after:
                self._between += between[:-1]
                for doing, value in zip(doings, values, strict=True):
                    self._took_place(doing, value)
                    self.made |= dict.fromkeys(changes, doings)
                if doings[0].call.verb is model.delete:
                    self._note_removed(doings[0], before, after)
                return
        if self._is_adopted_within_delete(before, after):
            return
        if cause is not None and cause.call.is_step is not None:
            with contextlib.suppress(Refused):
                if cause.call.is_step(before, after):
                    self._note_removed(cause, before, after)
                    self.stepped(cause, before, after)
                    return
        raise Violation(
            f"nobody asked for this, by {cause}: from {_shown(before, changes)}\nto {_shown(after, changes)}"
        )

    def _note_removed(self, doing: Doing, before: State, after: State) -> None:
        self._deletes.append(doing)
        doing.removed.update((path, seg) for path, seg in before.items() if path not in after)
        doing.dropped += sum(len(one.data) for one in before.values()) - sum(len(one.data) for one in after.values())

    def _is_adopted_within_delete(self, before: State, after: State) -> bool:
        """Whether a plain file that goes was adopted just before: the delete deletes the segment, if it gets so far."""
        for doing in self._deletes:
            for path, file in doing.removed.items():
                is_back = path not in before and file.segment is None and after.get(path) == file
                if is_back and doing.told in ("running", "unknown") and (doing.effects or doing.call.is_step):
                    doing.effects.clear()
                    return True
        return False

    def _appended(self, before: State, after: State, changes: Mapping[str, Seg | None]) -> list[Doing]:
        """The appends whose bytes are behind the old ones."""
        grown = [path for path in changes if before.get(path) != after.get(path)]
        if len(grown) != 1:
            return []
        (path,) = grown
        old, new = before.get(path), after.get(path)
        if old is None or new is None or not new.data.startswith(old.data):
            return []
        found, place = [], len(old.data)
        while place < len(new.data):
            doing = self._appends.get(token_at(new.data, place))
            if doing is None:
                return []
            found.append(doing)
            place += len(doing.call.args["data"])
        return found

    def _took_place(self, doing: Doing, value: Any) -> None:
        doing.effects.append((self.now, value))
        if len(doing.effects) > 1:
            raise Violation(f"it took place twice: {doing}")
        if doing.told in ("error", "not done"):
            raise Violation(f"its caller was told that nothing was written, and now it took place: {doing}")
        if doing.told == "ok":
            raise Violation(f"it took place after its caller was told so: {doing}")
        if doing.call.verb is model.append:
            self._check_recovered(doing)

    def _check_recovered(self, doing: Doing) -> None:
        """After an append on condition of the length, nothing of a process that was dead before comes to life."""
        path = doing.call.path
        if doing.is_dead(self._recovered_s.get(path, -1.0)):
            raise Violation(f"it came to life after a recovery at {self._recovered_s[path]}: {doing}")
        if doing.call.args["who"].expected_offset is not None:
            self._recovered_s[path] = doing.began_s

    # -- answers -----------------------------------------------------------------------------------------------

    def ended(self, doing: Doing, told: str, value: Any = None) -> None:
        """Check what a caller is told: a value, the kind of an error, or nothing."""
        doing.told, doing.ended = told, self.now
        if told == "unknown":
            return
        if told == "not done":
            if doing.effects:
                raise Violation(f"its caller was told that nothing was written: {doing}, {value!r}")
        elif told == "error":
            self._check_error(doing, value)
        elif doing.effects or doing.lost[0]:
            at, expected = (*doing.effects, doing.lost)[0]
            if doing.call.verb not in model.FOREIGN:
                self._own |= {(doing.client, path): at for path in doing.call.paths}
            if expected is not None and value not in (expected, SILENT):
                raise Violation(f"at {at} it gave {expected!r}, but its caller got {value!r}: {doing}")
        elif not (
            any(self._gives(doing.call, state, value) for state in self.moments(doing))
            or (doing.call.verb is model.delete and self.is_overtaken(doing.call.path, doing))
        ):
            states = [_shown(state, doing.call.paths) for state in self.moments(doing)]
            raise Violation(f"it did not take place, but its caller got {value!r}: {doing}\nin {states}")

    def _check_error(self, doing: Doing, error: type[BaseException]) -> None:
        if doing.effects:
            raise Violation(f"it took place, but its caller got {error.__name__}: {doing}")
        if issubclass(error, tuple(one for one in {*doing.call.may_also, *ANYWHERE} if one is not None)):
            return
        if issubclass(error, FileExistsError) and self._is_seen_in_limbo(doing):
            return
        is_whole = doing.call.verb in (model.delete, model.rename)
        if error is LockedError and doing.is_locked_out and (is_whole or doing.call.is_step is not None):
            return  # a commit tries again; what takes a segment away in one step, or many, says which is locked
        ids = {seg.segment for seg in self.segs(doing.call.path, doing) if seg is not None}
        if doing.call.verb is model.read and error is FileNotFoundError and len(ids) > 1:
            return  # another incarnation came while it read
        for state in self.moments(doing):
            try:
                doing.call.apply(state)
            except Refused as refused:
                if error in refused.errors:
                    return
        states = [_shown(state, doing.call.paths) for state in self.moments(doing)]
        raise Violation(f"nothing justified {error.__name__}: {doing}\nin {states}")

    @staticmethod
    def _gives(call: Call, state: State, value: Any) -> bool:
        """Whether a call in a state changes nothing and returns the value."""
        try:
            after, expected = call.apply(state)
        except Refused:
            return None in call.may_also
        return after == state and expected in (None, value)

    def is_overtaken(self, path: str, doing: Doing) -> bool:
        """Whether a plain file was replaced while it was being deleted, perhaps after it was adopted.

        Nobody saw it gone in between.
        """
        segs = list(self.segs(path, doing))
        files = {one for seg in segs if seg is not None and seg.segment is None for one in seg.ids}
        pairs = [(old, new) for old, new in itertools.pairwise(segs) if old is not None and new is not None]
        return any(
            (old.segment is None or not files.isdisjoint(old.ids)) and new.segment and set(old.ids).isdisjoint(new.ids)
            for old, new in pairs
        )

    def moments(self, doing: Doing) -> Iterator[State]:
        """The states of the segments of an operation while it ran."""
        paths = list(dict.fromkeys(doing.call.paths))
        end = self.now if doing.ended is None else doing.ended
        times = {doing.since}
        for path in paths:
            line = self._lines.get(path, ([0], [None]))[0]
            times.update(line[bisect_right(line, doing.since) : bisect_right(line, end)])
        for time in sorted(times):
            found = {path: self.at(path, time) for path in paths}
            yield {path: seg for path, seg in found.items() if seg is not None}
        if doing.call.verb in model.READS:
            yield from ({doing.call.path: seg} for seg in self._seen_in_limbo(doing.call.path, doing))
        else:
            yield from ({path: seg} for at, path, seg in self._between if paths == [path] and doing.began < at <= end)

    def segs(self, path: str, doing: Doing) -> Iterator[Seg | None]:
        """What a path held while an operation ran, for readers."""
        times = self._lines.get(path, ([0], [None]))[0]
        end = self.now if doing.ended is None else doing.ended
        for time in [doing.since, *times[bisect_right(times, doing.since) : bisect_right(times, end)]]:
            yield self.at(path, time)
        yield from self._seen_in_limbo(path, doing)

    def _is_seen_in_limbo(self, doing: Doing) -> bool:
        """Whether a look for a free name may have met a source whose content has moved already."""
        name = doing.call.args.get("target", doing.call.path)
        is_looking = doing.is_of_face and (doing.call.verb is model.write_new or "overwrite" in doing.call.args)
        return is_looking and any(True for _ in self._seen_in_limbo(name, doing))

    def _seen_in_limbo(self, path: str, doing: Doing) -> Iterator[Seg]:
        end = self.now if doing.ended is None else doing.ended
        for first, last, seg in self._limbo.get(path, ()):
            if first <= end and last >= doing.since:
                yield seg

    def line(self, path: str) -> list[Seg | None]:
        """All that a path has held."""
        return self._lines.get(path, ([0], [None]))[1]

    def at(self, path: str, time: int) -> Seg | None:
        """What a path held after so many changes."""
        times, segs = self._lines.get(path, ([0], [None]))
        return segs[bisect_right(times, time) - 1]


def runs_of(data: bytes) -> str:
    """The data as runs of tokens: where a token begins or ends in the middle of a piece, its bytes are left out."""
    found: list[list[int]] = []
    numbers = [token_at(one.group()) for one in TOKENS.finditer(data)]
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return f"{len(data)} B: " + " ".join(f"{first}-{last}" for first, last in found)


def _shown(state: State, paths: Sequence[str] | Mapping[str, Any]) -> dict[str, Seg | None]:
    return {path: state.get(path) for path in paths}
