"""The checker of histories finds what is wrong: each course below differs from a right one in one thing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support import records as module
from tests.support.history import Call, Record, check_history
from tests.support.records import record, records

SIZE = 10
"""Of each append here."""
A = Call("a", 0, "append", 10, 20, "ok", 0)
B = Call("b", 0, "append", 15, 40, "ok", SIZE)
C = Call("a", 1, "append", 21, 50, "ok", 3 * SIZE, expected=3 * SIZE)
KILLED = Call("c", 0, "append", 5)
FAILED = Call("c", 1, "append", 12, 30, "failed")
LOOK = Call("d", 0, "look", 30, 60, "ok", 2 * SIZE)
SEAL = Call("d", 1, "seal", 70, 80, "ok", 4 * SIZE)
CALLS = (A, B, C, KILLED, FAILED, LOOK, SEAL)
THERE: tuple[Record, ...] = ((0, "a", 0), (SIZE, "b", 0), (2 * SIZE, "c", 0), (3 * SIZE, "a", 1))


def but(*changed: Call) -> list[Call]:
    """The right history, with some calls as given."""
    return list({(call.name, call.kind): call for call in (*CALLS, *changed)}.values())


def test_a_right_history_passes() -> None:
    check_history(CALLS, THERE)


WRONG: dict[str, tuple[Sequence[Call], Sequence[Record]]] = {
    "acknowledged and lost": (but(replace(C, expected=None)), THERE[:3]),
    "more than once": (CALLS, (*THERE, (5 * SIZE, "b", 0))),
    "it lies at": (but(replace(B, value=SIZE + 1)), THERE),
    "nobody appended it": (CALLS, (*THERE, (5 * SIZE, "e", 0))),
    "reported failed, but it is there": (CALLS, (*THERE, (5 * SIZE, "c", 1))),
    "conditioned on another offset": (but(replace(C, expected=2 * SIZE)), THERE),
    "after the seal": (but(replace(SEAL, value=3 * SIZE)), THERE),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_found_out(what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check_history(*WRONG[what])


OUT_OF_ORDER: dict[str, Callable[[], list[Call]]] = {
    "an append before one that had ended": lambda: but(replace(B, began=1, ended=3), replace(A, began=4)),
    "one that was killed before it began": lambda: but(replace(KILLED, began=51)),
    "a look that misses what had ended": lambda: but(replace(LOOK, began=51, ended=60)),
    "a look that saw what had not begun": lambda: but(replace(LOOK, began=1, ended=9)),
    "a look behind another": lambda: [*CALLS, Call("e", 0, "look", 61, 62, "ok", SIZE)],
    "an append that began after the seal": lambda: but(replace(C, began=81, ended=90)),
}


@pytest.mark.parametrize("what", OUT_OF_ORDER)
def test_forbidden_order_of_events_is_found_out(what: str) -> None:
    with pytest.raises(AssertionError, match="which had ended when it began"):
        check_history(OUT_OF_ORDER[what](), THERE)


@pytest.mark.parametrize("kept", [slice(None, -1), slice(5, None), slice(None, 3_000)])
def test_a_record_that_is_torn_is_found_out(kept: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SIZES", (3_000,))
    whole = record("a", 0) + record("b", 1)
    assert [name for _, *name in records(whole)] == [["a", 0], ["b", 1]]
    with pytest.raises(AssertionError, match=r"torn|no record"):
        list(records(whole[kept]))
