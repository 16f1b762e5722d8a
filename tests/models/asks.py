"""A model of asks: one header, and writers that ask, compete, or do both. `explore` visits all states.

The store is an adversary. A combiner may see an ask that was sent at any later time, or never: so late and lost writes,
late reads, files that were overwritten or deleted need no steps of their own. A replacement of the header may be
answered, may land without an answer, or may land later. A crash is a client that makes no further step: what must hold
is checked in every state.

`docs/protocol.md` has the rules. Each field of `Rules` is one of them. A scenario that leaves one out must break.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

Ids = tuple[str, ...]
"""The pieces of data of one append, each by its name."""
Token = tuple[str, int] | None
"""What a replacement is conditioned on; an incarnation and a version name one header."""


class Broken(Exception):
    """What must hold does not hold."""


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. Each default is the rule; any other value leaves it out."""

    line_forbids: bool = True
    """An ask is not carried if the line of its writer has its number or a higher one."""
    eviction_forbids: bool = True
    """An ask is not carried if its writer has no line, and a line was evicted after `BASE`."""
    incarnation_forbids: bool = True
    state_forbids: bool = True
    """No ask is carried unless the segment is open and without an owner."""
    floor_forbids: bool = True
    """An ask is carried only if `BASE` is not below the floor."""
    others_void: bool = True
    """Every commit but a plain append voids all asks before it."""
    window: int = 9
    """A plain append lets asks of this many versions live."""
    carried_get_lines: bool = True
    evictions_count: bool = True
    """A line that goes raises `evicted`."""
    lines_survive: bool = True
    """A new incarnation keeps the lines of the header that it replaces."""
    judges_incarnation: str = "by the line"
    """In another incarnation than the base's, only the line that the base had of the writer proves anything.

    Not so: `any line` of the writer proves that the header comes from the base, or `no line` need prove it.
    """
    highest_only: bool = True
    """Of one writer, only one ask is carried in one commit."""
    judges_first: bool = True
    """A writer judges every header before it bases an attempt on it."""
    judges_eviction: bool = True
    judges_version: bool = True
    """A version that went back makes the outcome unknown."""
    judges_age: bool = True
    """An operation older than D ends unknown."""
    error_needs_void_ask: bool = True
    error_needs_dead_attempt: bool = True
    gives_up: str = "exactly"
    """Not so: `deletes` its ask, or lets the `timeout` pass, or forgets its own `attempt`, and reports a failure."""
    one_number: bool = True
    """An own attempt has the number of the ask."""
    one_content: bool = True
    """An own attempt has the data of the ask, no more."""
    base_is_judged: bool = True
    guarded_carries_none: bool = True
    """Neither a guarded append nor an owner's carries asks."""
    own_data_first: bool = True
    """The committer's data comes first, and a repeat on one base has the same bytes."""
    withdraws_by_higher_number: bool = True


class Line(NamedTuple):
    """A commit line."""

    writer: int
    number: int
    version: int
    place: int | None = None
    """Where the data begins, if another writer's commit has carried it."""


class Header(NamedTuple):
    """The header, and the log of all pieces that it holds."""

    incarnation: str = "I"
    version: int = 2
    state: str = "open"
    owner: int | None = None
    log: Ids = ()
    lines: frozenset[Line] = frozenset()
    evicted: int = 0
    asks: int | None = None
    """The line `asks FLOOR`."""

    def line_of(self, writer: int) -> Line | None:
        return next((line for line in self.lines if line.writer == writer), None)


class Ask(NamedTuple):
    """An ask that was sent."""

    writer: int
    number: int
    base: int
    incarnation: str
    ids: Ids


Added = tuple[tuple[Ids, str | None], ...]
"""What a replacement appends: the data, and the incarnation that it was meant for, if that matters."""


class Attempt(NamedTuple):
    """An own replacement of the header, sent and not confirmed."""

    token: Token
    wanted: Header
    position: int
    added: Added


class Landing(NamedTuple):
    """A replacement that may arrive later."""

    token: Token
    wanted: Header
    added: Added
    writer: int


class Client(NamedTuple):
    """One writer."""

    nth: int = 0
    """Which operation of its script."""
    at: str = "begin"
    """`begin`, `clean` (a header was judged), `refused` (the operation cannot succeed, but is not void), `other`."""
    base: Header | None = None
    """The last header that was judged clean."""
    seen: int = 0
    """Its version; 0 before the first look."""
    ask: Ask | None = None
    attempt: Attempt | None = None
    attempts: int = 0
    asked: int = 0
    is_old: bool = False
    """Whether the operation is older than D."""
    known: Header | None = None
    """A header of before, which it believes."""
    bound: str | None = None
    """The incarnation with which the operation began."""
    later: int = 0
    """Of the rule `one_number` left out: what is added to the number."""


class Ghost(NamedTuple):
    """What nobody in the world sees: it shows whether all is right."""

    ever: Ids = ()
    """All pieces that were committed, in their order."""
    acked: frozenset[tuple[str, int]] = frozenset()
    failed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """Deleted with a segment."""
    positions: frozenset[tuple[str, int]] = frozenset()


class World(NamedTuple):
    """A state."""

    header: Header | None
    asks: frozenset[Ask]
    landing: frozenset[Landing]
    clients: tuple[Client, ...]
    ghost: Ghost
    faults: int
    """How many faults may still happen."""

    def client(self, index: int, **changes: object) -> World:
        """The world with a client changed."""
        changed = self.clients[index]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(clients=(*self.clients[:index], changed, *self.clients[index + 1 :]))


Steps = Iterator[tuple[str, World]]
"""What may happen next, each with what it leads to."""


def token_of(header: Header | None) -> Token:
    return None if header is None else (header.incarnation, header.version)


def floor(header: Header) -> int:
    """Asks whose base is not below this version may be carried."""
    return header.version if header.asks is None else header.asks


def is_void(header: Header, ask: Ask) -> bool:
    """Whether an ask is void for ever."""
    return header.incarnation != ask.incarnation or floor(header) > ask.base


def is_admitted(rules: Rules, header: Header, ask: Ask, committer: int) -> bool:
    """Whether the replacement of a header may carry an ask."""
    line = header.line_of(ask.writer)
    return not (
        ask.writer == committer
        or header.state == "deleted"
        or (rules.incarnation_forbids and ask.incarnation != header.incarnation)
        or (rules.state_forbids and (header.state != "open" or header.owner is not None))
        or (rules.line_forbids and line is not None and line.number >= ask.number)
        or (rules.eviction_forbids and line is None and header.evicted > ask.base)
        or (rules.floor_forbids and floor(header) > ask.base)
    )


def choices(rules: Rules, header: Header, asks: frozenset[Ask], committer: int, most: int) -> Iterator[tuple[Ask, ...]]:
    """All sets of asks that a committer may have seen and may carry."""
    admitted = sorted(ask for ask in asks if is_admitted(rules, header, ask, committer))
    yield ()
    if not rules.highest_only:
        for count in range(1, min(most, len(admitted)) + 1):
            yield from combinations(admitted, count)
        return
    by_writer: dict[int, list[Ask]] = {}
    for ask in admitted:
        by_writer.setdefault(ask.writer, []).append(ask)
    # which asks of a writer were seen is the adversary's choice; the highest of them may be any one
    for count in range(1, min(most, len(by_writer)) + 1):
        for writers in combinations(sorted(by_writer), count):
            yield from product(*(by_writer[writer] for writer in writers))


def _shortened(lines: frozenset[Line], count: int) -> tuple[frozenset[Line], int]:
    """The newest lines, and the newest version of those that go."""
    kept = sorted(lines, key=lambda line: (line.version, line.writer))
    gone = kept[: max(0, len(kept) - count)]
    return lines.difference(gone), max((line.version for line in gone), default=0)


def stamped(
    rules: Rules,
    header: Header,
    own: dict[int, int],
    lines_max: int,
    *,
    plain: bool = False,
    carried: frozenset[Line] = frozenset(),
) -> Header:
    """The next version, with the lines of these writers."""
    version = header.version + 1
    new = carried | {Line(writer, number, version) for writer, number in own.items()}
    writers = {line.writer for line in new}
    others = frozenset(line for line in header.lines if line.writer not in writers)
    others, gone = _shortened(others, max(0, lines_max - len(new)))
    asks = None
    if plain:
        asks = max(floor(header), version - rules.window)
    elif not rules.others_void:
        asks = floor(header)
    evicted = max(header.evicted, gone) if rules.evictions_count else header.evicted
    return header._replace(version=version, lines=others | new, evicted=evicted, asks=asks)


def reborn(rules: Rules, header: Header, name: str) -> Header:
    """The header of a new incarnation, which a stamped header becomes."""
    lines = header.lines if rules.lines_survive else {line for line in header.lines if line.version == header.version}
    return header._replace(incarnation=name, state="open", log=(), asks=None, lines=frozenset(lines))


def appended(
    rules: Rules,
    header: Header,
    own: tuple[int, int, Ids],
    carried: tuple[Ask, ...],
    lines_max: int,
    *,
    plain: bool = True,
) -> tuple[Header, int]:
    """The header after an append that carries asks, and the position of the own data."""
    parts = [own, *((ask.writer, ask.number, ask.ids) for ask in carried)]
    if not rules.own_data_first:
        parts = [*parts[1:], parts[0]]
    log, position = header.log, 0
    lines: dict[int, Line] = {}
    for writer, number, ids in parts:
        if writer == own[0]:
            position = len(log)
        elif rules.carried_get_lines and (writer not in lines or number < lines[writer].number):
            lines[writer] = Line(writer, number, header.version + 1, len(log))  # of two asks, the lower number stays
        log += ids
    wanted = stamped(rules, header, {own[0]: own[1]}, lines_max, plain=plain, carried=frozenset(lines.values()))
    return wanted._replace(log=log), position
