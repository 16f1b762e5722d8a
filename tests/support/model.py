"""The reference model: what a folder of segments contains after each operation, in the simplest form.

`Possible` keeps every state that the folder may be in. An operation without a clear outcome leaves two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rollingfs.errors import (
    AttributeMismatchError,
    BadOffsetError,
    FencedError,
    SegmentNotSealedError,
    SegmentSealedError,
)
from rollingfs.policy import RollingPolicy


@dataclass(frozen=True)
class Seg:
    """The visible content of a segment, its incarnation (`born`), the one before all renames, and its owner."""

    policy: RollingPolicy | None
    start: int = 0
    data: bytes = b""
    sealed: bool = False
    attrs: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    plain: bool = False
    born: int = 0
    root: int | None = None

    @property
    def length(self) -> int:
        return self.start + len(self.data)


_births = itertools.count(-1, -1)
"""Policy of segments that were adopted without one."""

State = Mapping[str, Seg]
Next = tuple[State, Any]


class Refused(Exception):
    """The operation must fail with one of these errors and change nothing."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = set(errors)


@dataclass(frozen=True)
class Who:
    """The conditions of a caller: owner, incarnation that it opened, attributes, offset."""

    owner: str | None = None
    born: int | None = None
    expected_attrs: Mapping[str, str | None] = field(default_factory=dict)
    expected_offset: int | None = None


ANYBODY = Who()


def check(state: State, path: str, who: Who = ANYBODY) -> Seg:
    found = state.get(path)
    if found is None or who.born not in (None, found.born, found.root):
        raise Refused(FileNotFoundError)
    if found.owner != who.owner:
        raise Refused(FencedError)
    if any(found.attrs.get(key) != value for key, value in who.expected_attrs.items()):
        raise Refused(AttributeMismatchError)
    if who.expected_offset not in (None, found.length):
        raise Refused(BadOffsetError)
    return found


def put(state: State, path: str, seg: Seg | None) -> State:
    rest = {name: other for name, other in state.items() if name != path}
    return {**rest, path: seg} if seg is not None else rest


def headed(seg: Seg, born: int, policy: RollingPolicy) -> Seg:
    """The segment with a header. A plain file is adopted, under the policy of the caller."""
    return replace(seg, plain=False, born=born, policy=policy) if seg.plain else seg


def create(state: State, path: str, born: int, policy: RollingPolicy) -> Next:
    if path in state:
        raise Refused(FileExistsError)
    return put(state, path, Seg(policy, born=born)), None


def drop_in(state: State, path: str, data: bytes) -> Next:
    """Another program writes a plain file where no segment is."""
    return put(state, path, Seg(None, data=data, plain=True)), None


def with_attrs(old: Mapping[str, str], attrs: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **attrs}.items() if value is not None}


def append(
    state: State, path: str, born: int, policy: RollingPolicy, data: bytes, attrs: Mapping[str, str | None], who: Who
) -> Next:
    found = headed(check(state, path, who), born, policy)
    if found.sealed:
        raise Refused(SegmentSealedError)
    grown = replace(found, data=found.data + data, attrs=with_attrs(found.attrs, attrs))
    return put(state, path, grown), found.length


def overwrite(
    state: State, path: str, born: int, policy: RollingPolicy, data: bytes, attrs: Mapping[str, str | None], who: Who
) -> Next:
    old = state.get(path)
    if old is None or old.plain:
        if any(value is not None for value in who.expected_attrs.values()):
            raise Refused(AttributeMismatchError)
    else:
        policy = check(state, path, who).policy or policy
    return put(state, path, Seg(policy, data=data, attrs=with_attrs({}, attrs), born=born)), None


def seal(state: State, path: str, born: int, policy: RollingPolicy, who: Who) -> Next:
    found = headed(check(state, path, who), born, policy)
    return put(state, path, replace(found, sealed=True)), found.length


def truncate(state: State, path: str, born: int, policy: RollingPolicy, offset: int, who: Who) -> Next:
    found = headed(check(state, path, who), born, policy)
    if not 0 <= offset <= found.length:
        raise Refused(BadOffsetError)
    start = max(offset, found.start)
    return put(state, path, replace(found, start=start, data=found.data[start - found.start :])), None


def acquire(state: State, path: str, born: int, policy: RollingPolicy, owner: str) -> Next:
    if path not in state:
        raise Refused(FileNotFoundError)
    return put(state, path, replace(headed(state[path], born, policy), owner=owner)), None


def delete(state: State, path: str, who: Who) -> Next:
    if path not in state or not state[path].plain:
        check(state, path, who)
    return put(state, path, None), None


def look(state: State, path: str) -> Next:
    """Any operation that changes nothing visible."""
    return state, None


def concat(
    state: State,
    path: str,
    born: int,
    policy: RollingPolicy,
    sources: Sequence[str],
    attrs: Mapping[str, str | None],
    who: Who,
) -> Next:
    if path in sources or len(set(sources)) < len(sources):
        raise Refused(ValueError)
    # which of several errors comes first is not promised
    refusals = [error for call in _concat_checks(state, path, sources, who) for error in _refusal(call)]
    if refusals:
        raise Refused(*refusals)
    found = headed(state[path], born, policy)
    data = found.data + b"".join(state[source].data for source in sources)
    rest = {name: seg for name, seg in state.items() if name not in sources}
    return put(rest, path, replace(found, data=data, attrs=with_attrs(found.attrs, attrs))), found.length


def _concat_checks(state: State, path: str, sources: Sequence[str], who: Who) -> Iterator[Callable[[], None]]:
    def check_target() -> None:
        if check(state, path, who).sealed:
            raise Refused(SegmentSealedError)

    def check_source(source: str) -> None:
        if not check(state, source).sealed:
            raise Refused(SegmentNotSealedError)

    yield check_target
    for source in sources:
        yield lambda source=source: check_source(source)  # type: ignore[misc]


def _refusal(call: Callable[[], Any]) -> set[type[Exception]]:
    try:
        call()
    except Refused as refused:
        return refused.errors
    return set()


def rename(state: State, path: str, born: int, policy: RollingPolicy, target: str) -> Next:
    if path == target:
        if path not in state:
            raise Refused(FileNotFoundError)
        return state, None
    refusals = _refusal(lambda: check(state, path))
    if target in state:
        refusals |= _refusal(lambda: check(state, target))
    if refusals:
        raise Refused(*refusals)
    found = headed(state[path], born, policy)
    moved = replace(found, born=born, root=found.born if found.root is None else found.root)
    return put(put(state, path, None), target, moved), None


@dataclass(frozen=True)
class Call:
    """An operation and its arguments."""

    verb: Callable[..., Next]
    path: str
    args: Mapping[str, Any]

    def apply(self, state: State) -> Next:
        return self.verb(state, self.path, **self.args)

    def __str__(self) -> str:
        return f"{self.verb.__name__} {self.path} {dict(self.args)}"


@dataclass(frozen=True)
class Outcome:
    """The outcome for the caller: a value, an error, "not done", or "unknown"."""

    kind: str
    """``ok``, ``error``, ``not done`` or ``unknown``."""
    value: Any = None
    error: BaseException | None = None

    def follow(self, call: Call, state: State) -> list[State]:
        """The states that a call with this outcome may lead to."""
        try:
            new, value = call.apply(state)
        except Refused as refused:
            fits = self.kind in ("unknown", "not done") or (self.kind == "error" and self.value in refused.errors)
            return [state] if fits else []
        if self.kind == "ok":
            return [new] if value in (None, self.value) else []
        if self.kind == "error":
            return []
        return [state] if self.kind == "not done" else [state, new]


class Possible:
    """Every state that the folder may be in."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]

    def happened(self, call: Call, outcome: Outcome) -> None:
        """Apply a call."""
        states = [new for state in self.states for new in outcome.follow(call, state)]
        assert states, f"the model cannot have gone through: {call} -> {outcome}\nfrom {self.states}"
        self.states = states

    def seen(self, path: str, observed: Seg | None) -> None:
        """Keep the states that agree with what an undisturbed client saw at a path."""
        states = [new for state in self.states for new in _agree(state, path, observed)]
        assert states, f"{path} is {observed}\nbut the model has {[state.get(path) for state in self.states]}"
        self.states = states

    def join(self) -> None:
        """Keep one of the states that look the same."""
        kept: dict[str, State] = {}
        for state in self.states:
            kept.setdefault(str({path: _shown(state[path]) for path in sorted(state)}), state)
        self.states = list(kept.values())


def _agree(state: State, path: str, observed: Seg | None) -> list[State]:
    """The state, if it agrees with the observation; an adoption is visible by its policy only."""
    known = state.get(path)
    if known is None or observed is None:
        return [state] if known is observed else []
    if known.plain and observed == replace(_shown(known), plain=False, policy=observed.policy):
        return [put(state, path, replace(observed, born=next(_births)))]
    return [state] if _shown(known) == observed else []


def _shown(seg: Seg) -> Seg:
    """What an undisturbed client sees of a segment."""
    return replace(seg, born=0, root=None)
