"""The rules of the model are those of the code: both are asked the same, about every small header."""

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from rollingfs.format import asks as code
from rollingfs.format import commit_lines, transitions
from rollingfs.format.header import Commit, Header, Merge, Phase
from rollingfs.format.verdict import Verdict, judge
from tests.models import asks as model
from tests.models.asks_steps import Append
from tests.models.asks_world import Bounds, Model, Op

ME, OTHER, OWNER = 1, 2, 9
VERSION = 4
SEGMENTS = {name: str(uuid.UUID(int=nth)) for nth, name in enumerate("IJ", start=1)}
STATES = {"open": Phase.OPEN, "sealed": Phase.SEALED, "deleted": Phase.DELETED, "merging": Phase.MERGING}
RULES = model.Rules(window=code.WINDOW_VERSIONS)
NOW_MS = 1_700_000_000_000


def in_code(header: model.Header) -> Header:
    """The model's header, as the code has it; each piece of the log is one byte."""
    merging = Merge(SEGMENTS["J"], "t", SEGMENTS["J"], Phase.OPEN, 0) if header.state == "merging" else None
    return Header(
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


def ask_in_code(ask: model.Ask) -> code.Ask:
    return code.Ask(str(ask.writer), ask.number, SEGMENTS[ask.incarnation], ask.base, "".join(ask.ids).encode())


def lines_of(writer: int) -> Iterator[frozenset[model.Line]]:
    """No line of a writer, or one with a lower, an equal, a higher number."""
    yield frozenset()
    for number in (2, 3, 4):
        yield frozenset({model.Line(writer, number, 2)})


FLOORS = [None, *range(VERSION + 1)]


def compare_admission(rules: model.Rules) -> None:
    admitted = 0
    for lines, evicted, floor in itertools.product(lines_of(ME), range(VERSION + 1), FLOORS):
        for state, owner in (*((state, None) for state in STATES), ("open", OWNER)):
            header = model.Header("I", VERSION, state, owner, (), lines, evicted, floor)
            same = in_code(header)
            for base, incarnation, committer in itertools.product(range(VERSION + 1), "IJ", (ME, OTHER)):
                ask = model.Ask(ME, 3, base, incarnation, ("a",))
                expected = model.is_admitted(rules, header, ask, committer)
                assert code.admits(same, ask_in_code(ask), str(committer)) is expected, (header, ask, committer)
                assert code.is_void(ask_in_code(ask), same) is model.is_void(header, ask), (header, ask)
                admitted += expected
    assert admitted


def test_the_code_admits_and_voids_the_asks_that_the_model_does() -> None:
    compare_admission(RULES)


NEEDED = ("line_forbids", "eviction_forbids", "incarnation_forbids", "state_forbids", "floor_forbids")


@pytest.mark.parametrize("rule", NEEDED)
def test_a_rule_of_admission_that_one_of_them_leaves_out_is_found(rule: str) -> None:
    with pytest.raises(AssertionError):
        compare_admission(model.Rules(**{rule: False}))


LINES_MAX = 3
CARRIED = (model.Ask(3, 1, 4, "I", ("c",)), model.Ask(5, 7, 4, "I", ("d",)))
LINES = [model.Line(*of) for of in ((ME, 1, 2), (3, 0, 3, 0), (4, 2, 4, 1), (5, 5, 1), (6, 5, 3, 1))]


@pytest.mark.parametrize("carried", [CARRIED[:count] for count in range(3)], ids=len)
def test_the_code_stamps_an_append_as_the_model_does(
    carried: tuple[model.Ask, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_lines, "COMMITS_MAX", LINES_MAX)
    monkeypatch.setattr(commit_lines, "CARRIED_LINES_MAX", 0)
    for count, floor, evicted in itertools.product(range(LINES_MAX + 1), FLOORS, (0, 1)):
        for chosen in itertools.combinations(LINES, count):
            header = model.Header("I", VERSION, log=("x", "y"), lines=frozenset(chosen), evicted=evicted, asks=floor)
            wanted, position = model.appended(RULES, header, (ME, 3, ("a",)), carried, LINES_MAX)
            same, asked = in_code(header), [ask_in_code(ask) for ask in carried]
            added = code.carry(same, asked, same.length + 1)
            tail = same.tail + b"a" + b"".join(ask.data for ask in asked)
            grown = transitions.extend(same, (), tail, NOW_MS)
            assert _shown(transitions.stamp(grown, same, str(ME), 3, NOW_MS, added)) == _shown(in_code(wanted))
            assert position == same.length


def _shown(header: Header) -> tuple[Any, ...]:
    return header.version, header.tail, {*header.commits}, header.evicted, header.asks


def compare_judges(rules: model.Rules) -> None:
    """After an ask, or after an own attempt alone, which may be one to create the header."""
    verdicts = set()
    lines_left = itertools.product("IJ", range(2, 7), lines_of(ME), range(6))
    headers = [model.Header(name, version, "open", None, (), *more) for name, version, *more in lines_left]
    for asked, before, now in itertools.product((True, False), [None, *lines_of(ME)], [None, *headers]):
        if (before is None and asked) or any(line.number >= 3 for line in before or ()):
            continue  # nobody asks without a header; else the operation would have taken place, or be void, in the base
        base = None if before is None else model.Header("I", VERSION, lines=before)
        is_same = model.token_of(now) == model.token_of(base)
        if is_same and (before or now is None or now.lines or now.evicted):
            continue  # one token stands for one header
        expected = _judged(rules, base, now, asked=asked)
        found = judge(base and in_code(base), is_same, now and in_code(now), str(ME), 3, asked=asked)
        assert (Verdict.NOT_MINE if found is Verdict.SAME else found) is expected, (base, now, asked)
        verdicts.add(expected)
    assert len(verdicts) == 3


def test_the_code_judges_as_the_model_does() -> None:
    compare_judges(RULES)


LEFT_OUT = [{"judges_eviction": False}, {"judges_version": False}]
LEFT_OUT += [{"judges_incarnation": how} for how in ("any line", "no line")]


@pytest.mark.parametrize("left_out", LEFT_OUT, ids=str)
def test_a_rule_of_the_judge_that_one_of_them_leaves_out_is_found(left_out: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        compare_judges(model.Rules(**left_out))


def _judged(rules: model.Rules, base: model.Header | None, now: model.Header | None, *, asked: bool) -> Verdict:
    """What the model's writer concludes, whose second operation has number 3."""
    steps = Model([[], [Op("append", ("z",)), Op("append", ("a",))]], rules, Bounds())
    ask = model.Ask(ME, 3, base.version, "I", ("a",)) if asked and base else None
    attempt = None if asked else model.Attempt(model.token_of(base), model.Header(), 0, ())
    seen = base.version if base else 0
    client = model.Client(1, "clean", base, seen, ask, attempt, asked=int(asked), known=base, bound="I")
    asks = frozenset() if ask is None else frozenset({ask})
    world = model.World(now, asks, frozenset(), (model.Client(), client), model.Ghost(ever=("a",)), 0)
    label, _ = Append(steps, ME, steps.scripts[ME][1])._look(world, now)
    if "mine" in label:
        return Verdict.MINE
    return Verdict.UNKNOWN if "unknown" in label else Verdict.NOT_MINE
