"""The rules of the model are those of the code: both are asked the same, about every small header."""

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from rollingfs.format import asks as code
from rollingfs.format import commit_lines, transitions
from rollingfs.format.header import Commit, Merge, Phase
from rollingfs.format.header import Header as CodeHeader
from rollingfs.format.verdict import Verdict, judge
from tests.models.asks import (
    Ask,
    Attempt,
    Client,
    Ghost,
    Header,
    Line,
    Rules,
    World,
    appended,
    is_admitted,
    is_void,
    token_of,
)
from tests.models.asks_steps import Append
from tests.models.asks_world import Bounds, Model, Op

ME, OTHER, OWNER = 1, 2, 9
VERSION = 4
SEGMENTS = {name: str(uuid.UUID(int=nth)) for nth, name in enumerate("IJ", start=1)}
STATES = {"open": Phase.OPEN, "sealed": Phase.SEALED, "deleted": Phase.DELETED, "merging": Phase.MERGING}
RULES = Rules(window=code.WINDOW_VERSIONS)
NOW_MS = 1_700_000_000_000


def in_code(header: Header) -> CodeHeader:
    """The model's header, as the code has it; each piece of the log is one byte."""
    merging = Merge(SEGMENTS["J"], "t", SEGMENTS["J"], Phase.OPEN, 0) if header.state == "merging" else None
    return CodeHeader(
        SEGMENTS[header.incarnation],
        header.version,
        phase=STATES[header.state],
        merge=merging,
        owner=None if header.owner is None else str(header.owner),
        tail="".join(header.log).encode(),
        commits=tuple(Commit(str(line.writer), line.number, line.version, line.place) for line in sorted(header.lines)),
        evicted=header.evicted,
        asks=header.asks,
    )


def ask_in_code(ask: Ask) -> code.Ask:
    return code.Ask(str(ask.writer), ask.number, SEGMENTS[ask.incarnation], ask.base, "".join(ask.ids).encode())


def lines_of(writer: int) -> Iterator[frozenset[Line]]:
    """No line of a writer, or one with a lower, an equal, a higher number."""
    yield frozenset()
    for number in (2, 3, 4):
        yield frozenset({Line(writer, number, 2)})


FLOORS = [None, *range(VERSION + 1)]


def compare_admission(rules: Rules) -> None:
    admitted = 0
    for lines, evicted, floor in itertools.product(lines_of(ME), range(VERSION + 1), FLOORS):
        for state, owner in (*((state, None) for state in STATES), ("open", OWNER)):
            header = Header("I", VERSION, state, owner, (), lines, evicted, floor)
            same = in_code(header)
            for base, incarnation, committer in itertools.product(range(VERSION + 1), "IJ", (ME, OTHER)):
                ask = Ask(ME, 3, base, incarnation, ("a",))
                expected = is_admitted(rules, header, ask, committer)
                assert code.admits(same, ask_in_code(ask), str(committer)) is expected, (header, ask, committer)
                assert code.is_void(ask_in_code(ask), same) is is_void(header, ask), (header, ask)
                admitted += expected
    assert admitted


def test_the_code_admits_and_voids_the_asks_that_the_model_does() -> None:
    compare_admission(RULES)


NEEDED = ("line_forbids", "eviction_forbids", "incarnation_forbids", "state_forbids", "floor_forbids")


@pytest.mark.parametrize("rule", NEEDED)
def test_a_rule_of_admission_that_one_of_them_leaves_out_is_found(rule: str) -> None:
    with pytest.raises(AssertionError):
        compare_admission(Rules(**{rule: False}))


LINES_MAX = 3
CARRIED = [(), (Ask(3, 1, 4, "I", ("c",)),), (Ask(3, 1, 4, "I", ("c",)), Ask(5, 7, 4, "I", ("d",)))]
LINES = [Line(ME, 1, 2), Line(3, 0, 3, 0), Line(4, 2, 4, 1), Line(5, 5, 1), Line(6, 5, 3, 1)]


@pytest.mark.parametrize("carried", CARRIED, ids=len)
def test_the_code_stamps_an_append_as_the_model_does(carried: tuple[Ask, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_lines, "COMMITS_MAX", LINES_MAX)
    monkeypatch.setattr(commit_lines, "CARRIED_LINES_MAX", 0)
    for count, floor, evicted in itertools.product(range(LINES_MAX + 1), FLOORS, (0, 1)):
        for chosen in itertools.combinations(LINES, count):
            header = Header("I", VERSION, log=("x", "y"), lines=frozenset(chosen), evicted=evicted, asks=floor)
            wanted, position = appended(RULES, header, (ME, 3, ("a",)), carried, LINES_MAX)
            same, asked = in_code(header), [ask_in_code(ask) for ask in carried]
            added = code.carry(same, asked, same.length + 1)
            tail = same.tail + b"a" + b"".join(ask.data for ask in asked)
            grown = transitions.extend(same, (), tail, NOW_MS)
            made = transitions.stamp(grown, same, str(ME), 3, NOW_MS, added)
            assert _shown(made) == _shown(in_code(wanted))
            assert position == same.length


def _shown(header: CodeHeader) -> tuple[Any, ...]:
    return header.version, header.tail, {*header.commits}, header.evicted, header.asks


def compare_judges(rules: Rules) -> None:
    """After an ask, or after an own attempt alone, which may be one to create the header."""
    verdicts = set()
    headers = [
        Header(*of, "open", None, (), *more) for of in itertools.product("IJ", range(2, 7)) for more in lines_left()
    ]
    for asked, before, now in itertools.product((True, False), [None, *lines_of(ME)], [None, *headers]):
        if (before is None and asked) or any(line.number >= 3 for line in before or ()):
            continue  # nobody asks without a header; else the operation would have taken place, or be void, in the base
        base = None if before is None else Header("I", VERSION, lines=before)
        is_same = token_of(now) == token_of(base)
        if is_same and (before or now is None or now.lines or now.evicted):
            continue  # one token stands for one header
        expected = _judged(rules, base, now, asked=asked)
        found = judge(base and in_code(base), is_same, now and in_code(now), str(ME), 3, asked=asked)
        assert (Verdict.NOT_MINE if found is Verdict.SAME else found) is expected, (base, now, asked)
        verdicts.add(expected)
    assert len(verdicts) == 3


def lines_left() -> Iterator[tuple[frozenset[Line], int]]:
    """The lines of a header, and the newest version of which one was evicted."""
    yield from itertools.product(lines_of(ME), range(6))


def test_the_code_judges_as_the_model_does() -> None:
    compare_judges(RULES)


LEFT_OUT = [{"judges_eviction": False}, {"judges_version": False}]
LEFT_OUT += [{"judges_incarnation": how} for how in ("any line", "no line")]


@pytest.mark.parametrize("left_out", LEFT_OUT, ids=str)
def test_a_rule_of_the_judge_that_one_of_them_leaves_out_is_found(left_out: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        compare_judges(Rules(**left_out))


def _judged(rules: Rules, base: Header | None, now: Header | None, *, asked: bool) -> Verdict:
    """What the model's writer concludes, whose second operation has number 3."""
    model = Model([[], [Op("append", ("z",)), Op("append", ("a",))]], rules, Bounds())
    ask = Ask(ME, 3, base.version, "I", ("a",)) if asked and base else None
    attempt = None if asked else Attempt(token_of(base), Header(), 0, ())
    seen = base.version if base else 0
    client = Client(1, "clean", base, seen, ask, attempt, asked=int(asked), known=base, bound="I")
    asks = frozenset() if ask is None else frozenset({ask})
    world = World(now, asks, frozenset(), (Client(), client), Ghost(ever=("a",)), 0)
    label, _ = Append(model, ME, model.scripts[ME][1])._look(world, now)
    if "mine" in label:
        return Verdict.MINE
    return Verdict.UNKNOWN if "unknown" in label else Verdict.NOT_MINE
