"""The model: what each segment holds after each operation, in the simplest form."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rollingfs.errors import (
    AttributeMismatchError,
    BadOffsetError,
    FencedError,
    SegmentNotSealedError,
    SegmentSealedError,
    SegmentTruncatedError,
)


@dataclass(frozen=True, repr=False)
class Seg:
    """What a segment, or a plain file, holds; the ids and numbers of its header are no part of that."""

    data: bytes = b""
    start: int = 0
    sealed: bool = False
    attrs: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    segment: str | None = field(default=None, compare=False)
    """Its incarnation; None for a plain file."""
    root: str | None = field(default=None, compare=False)
    ids: tuple[str, ...] = field(default=(), compare=False)
    """The incarnations in which its offsets mean the same."""
    epoch: int = field(default=0, compare=False)

    @property
    def length(self) -> int:
        return self.start + len(self.data)

    def __str__(self) -> str:
        from tests.simulation.history import runs_of

        rest = f"attrs={self.attrs} owner={self.owner} segment={self.segment} epoch={self.epoch}"
        return f"<from {self.start}, {runs_of(self.data)}, {'sealed ' * self.sealed}{rest}>"

    __repr__ = __str__


NOTHING = Seg()
State = Mapping[str, Seg]
Next = tuple[State, Any]


class Refused(Exception):
    """The operation must fail with one of these errors and change nothing."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self.errors = set(errors)


@dataclass(frozen=True)
class Who:
    """The conditions of a caller: owner, incarnation that it opened, attributes, offset."""

    owner: str | None = None
    segment: str | None = None
    expected_attrs: Mapping[str, str | None] = field(default_factory=dict)
    expected_offset: int | None = None


ANYBODY = Who()


def check(state: State, path: str, who: Who = ANYBODY) -> Seg:
    found = state.get(path)
    if found is None or who.segment not in (None, found.segment, found.root):
        raise Refused(FileNotFoundError)
    if found.owner != who.owner:
        raise Refused(FencedError)
    if any(found.attrs.get(key) != value for key, value in who.expected_attrs.items()):
        raise Refused(AttributeMismatchError)
    if who.expected_offset not in (None, found.length):
        raise Refused(BadOffsetError)
    return found


def put(state: State, path: str, seg: Seg | None) -> State:
    changed = dict(state)
    changed.pop(path, None)
    if seg is not None:
        changed[path] = seg
    return changed


def with_attrs(old: Mapping[str, str], attrs: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **attrs}.items() if value is not None}


def create(state: State, path: str) -> Next:
    if path in state:
        raise Refused(FileExistsError)
    return put(state, path, Seg()), None


def drop_in(state: State, path: str, data: bytes) -> Next:
    """Another program writes a plain file."""
    return put(state, path, Seg(data)), None


def drop_out(state: State, path: str) -> Next:
    """Another program deletes a plain file."""
    return put(state, path, None), None


FOREIGN = (drop_in, drop_out)
"""What other programs do, beside a client."""


def append(
    state: State, path: str, data: bytes, attrs: Mapping[str, str | None], who: Who, create: bool = False
) -> Next:
    found = NOTHING if create and path not in state else check(state, path, who)
    if found.sealed:
        raise Refused(SegmentSealedError)
    grown = replace(found, data=found.data + data, attrs=with_attrs(found.attrs, attrs))
    return put(state, path, grown), found.length


def overwrite(state: State, path: str, data: bytes, attrs: Mapping[str, str | None], who: Who) -> Next:
    found = state.get(path)
    if found is not None and found.segment is not None:
        check(state, path, who)
    elif any(value is not None for value in who.expected_attrs.values()):
        raise Refused(AttributeMismatchError)
    return put(state, path, Seg(data, attrs=with_attrs({}, attrs))), None


def write_new(state: State, path: str, data: bytes) -> Next:
    """Write a file whole, if nothing has its name."""
    if path in state:
        raise Refused(FileExistsError)
    return put(state, path, Seg(data)), None


def seal(state: State, path: str, who: Who) -> Next:
    found = check(state, path, who)
    return put(state, path, replace(found, sealed=True)), found.length


def truncate(state: State, path: str, offset: int, who: Who) -> Next:
    found = check(state, path, who)
    if not 0 <= offset <= found.length:
        raise Refused(BadOffsetError)
    start = max(offset, found.start)
    return put(state, path, replace(found, start=start, data=found.data[start - found.start :])), None


def acquire(state: State, path: str, owner: str) -> Next:
    if path not in state:
        raise Refused(FileNotFoundError)
    return put(state, path, replace(state[path], owner=owner)), None


def release(state: State, path: str, who: Who) -> Next:
    return put(state, path, replace(check(state, path, who), owner=None)), None


def delete(state: State, path: str, who: Who) -> Next:
    if path not in state or state[path].segment is not None:
        check(state, path, who)
    return put(state, path, None), None


def look(state: State, path: str) -> Next:
    """Any operation that changes nothing visible, and may find nothing."""
    return state, None


def by_steps(state: State, path: str, **args: Any) -> Next:
    """An operation of many steps, each of which its `is_step` judges; it has no value."""
    return state, None


def removes(before: State, after: State, folder: str) -> bool:
    """Whether a segment in a folder is gone, and nothing else changed."""
    (path, old), *rest = [(path, old) for path, old in before.items() if after.get(path) != old]
    return not rest and len(after) < len(before) and path.startswith(f"{folder}/") and old.owner is None


def moves(before: State, after: State, folder: str, target: str) -> bool:
    """Whether a segment in a folder has moved to another folder, and nothing else changed."""
    for path in before:
        if path.startswith(f"{folder}/") and path not in after:
            return rename(before, path, target + path[len(folder) :])[0] == after
    return False


def retains(
    before: State, after: State, folder: str, is_unread: Callable[[str, Seg, int], bool], limited: Set[str]
) -> bool:
    """Whether segments have lost bytes that no subscriber needs, or were sealed and are gone, and nothing else changed.

    Parameters
    ----------
    is_unread
        Whether a subscriber needs bytes of a segment before an offset.
    limited
        Folders in which a policy may let go what is unread.

    Raises
    ------
    Refused
        A subscriber had not read what went.
    """
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if old is None or not path.startswith(f"{folder}/") or (new is None and not old.sealed):
            return False
        cut = old.length if new is None else new.start
        if new is not None and (cut > old.length or replace(old, start=cut, data=old.data[cut - old.start :]) != new):
            return False
        if path.rpartition("/")[0] not in limited and is_unread(path, old, cut):
            raise Refused(SegmentTruncatedError)
    return True


@dataclass
class Bound:
    """What a subscriber has read, at most, of each incarnation of the segments in a folder."""

    folder: str
    name: str
    is_stored: bool = False
    """Whether it knows that it is a subscriber."""
    read: dict[str, int] = field(default_factory=dict)
    """The offsets by incarnation."""
    leaving: int = 0
    """Calls that may still take it off the list."""
    left: int = 0
    """Such calls that have begun."""

    def leave(self) -> None:
        """A call begins that may take it off the list."""
        self.is_stored, self.leaving, self.left = False, self.leaving + 1, self.left + 1

    def of(self, seg: Seg) -> int:
        return max([seg.start, *(self.read.get(one, 0) for one in seg.ids)])


def whole(state: State, path: str) -> Next:
    """An export."""
    found = state.get(path)
    if found is None:
        raise Refused(FileNotFoundError)
    return state, found.data


def read(state: State, path: str, begin: int, end: int) -> Next:
    found = state.get(path)
    if found is None:
        raise Refused(FileNotFoundError)
    # an empty range is nowhere truncated
    checks = {SegmentTruncatedError: begin < min(found.start, end), ValueError: end > found.length}
    if any(checks.values()):
        raise Refused(*(error for error, is_so in checks.items() if is_so))
    return state, found.data[begin - found.start : end - found.start]


def part(state: State, path: str, begin: int | None, end: int | None) -> Next:
    """A slice of a file, as users read it."""
    return state, whole(state, path)[1][begin:end]


def copy(state: State, path: str) -> Next:
    """A copy of a folder to another place."""
    return state, None


READS = (read, whole, part, copy)


def concat(
    state: State, path: str, sources: Sequence[str], attrs: Mapping[str, str | None], who: Who, create: bool = False
) -> Next:
    if path in sources or len(set(sources)) < len(sources):
        raise Refused(ValueError)
    if create and path not in state and who.owner is None:
        if any(value is not None for value in who.expected_attrs.values()):
            raise Refused(AttributeMismatchError)
        state = put(state, path, Seg())
    # which of several errors comes first is not promised
    refusals = {error for step in _concat_checks(state, path, sources, who) for error in _refusal(step)}
    if refusals:
        raise Refused(*refusals)
    found = state[path]
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


def _refusal(step: Callable[[], Any]) -> set[type[BaseException]]:
    try:
        step()
    except Refused as refused:
        return refused.errors
    return set()


class Declined(FileExistsError):
    """The answer "no" of WebHDFS to a rename, which says no reason."""


def rename(state: State, path: str, target: str, overwrite: bool = True) -> Next:
    if path == target:
        if path not in state:
            raise Refused(FileNotFoundError)
        return state, None
    refusals = _refusal(lambda: check(state, path))
    if target in state:
        refusals |= _refusal(lambda: check(state, target)) if overwrite else {FileExistsError}
    if refusals:
        raise Refused(*refusals, *([Declined] if {FileNotFoundError, FileExistsError} & refusals else []))
    return put(put(state, path, None), target, state[path]), None


@dataclass(frozen=True)
class Call:
    """An operation and its arguments."""

    verb: Callable[..., Next]
    path: str
    args: Mapping[str, Any] = field(default_factory=dict)
    may_also: frozenset[type[BaseException]] = frozenset()
    """Errors that it may meet for reasons unknown to the model."""
    is_step: Callable[[State, State], bool] | None = None
    """Of an operation of many steps: whether one of them makes the one state of the other."""

    is_retaining: bool = False
    """Whether it may run retention."""

    @property
    def paths(self) -> list[str]:
        """All segments that it touches."""
        target = [self.args["target"]] if "target" in self.args else []
        return [self.path, *self.args.get("sources", ()), *target]

    @property
    def is_move(self) -> bool:
        """Whether segments become part of others, or get other names."""
        is_tree = isinstance(self.is_step, partial) and self.is_step.func is moves
        return is_tree or self.verb in (rename, concat)

    def apply(self, state: State) -> Next:
        return self.verb(state, self.path, **self.args)

    def __str__(self) -> str:
        from tests.simulation.history import runs_of

        args = {key: runs_of(one) if key == "data" else one for key, one in self.args.items()}
        return f"{self.verb.__name__} {self.path} {args}"
