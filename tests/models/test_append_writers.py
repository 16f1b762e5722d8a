"""Numbered appends through servers, by the code's own rule: each takes place once, whatever arrives late or is lost.

A request may be answered, may take place without an answer, or may arrive later, also after its writer has gone on or
has died. There is room for two entries, so writers are forgotten.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rollingfs.format import append_keys
from rollingfs.format.append_keys import WRITERS, AlreadyAppended, AppendKey, ForgottenError, gone_of
from tests.models.explore import explore

NAMES = "abc"
APPENDS = 2
FAULTS = 2


class Client(NamedTuple):
    """One writer; `sent` is its newest append as it was first sent, until the outcome is known."""

    left: int = APPENDS
    number: int = 0
    known: int = 0
    sent: AppendKey | None = None
    is_open: bool = False
    """Whether a request for it may have taken place, or may still do so."""


class World(NamedTuple):
    text: str = "0"
    clients: tuple[Client, ...] = (Client(),) * len(NAMES)
    late: frozenset[AppendKey] = frozenset()
    log: tuple[tuple[str, int], ...] = ()
    refused: frozenset[tuple[str, int]] = frozenset()
    faults: int = FAULTS
    wrong: str = ""


def served(world: World, append: AppendKey) -> tuple[World, str]:
    """What a server makes of a request, and what it answers."""
    try:
        made = append.attributes(1)({WRITERS: world.text}, len(world.log))[WRITERS]
    except AlreadyAppended as error:
        is_there = world.log[error.offset : error.offset + 1] == ((append.name, append.number),)
        return world._replace(wrong=world.wrong or ("" if is_there else f"{append} is not at {error.offset}")), "ok"
    except ForgottenError:
        return world, "forgotten"
    entry = append.name, append.number
    wrong = f"{entry} twice" if entry in world.log else f"{entry} after a refusal" if entry in world.refused else ""
    return world._replace(text=made, log=(*world.log, entry), wrong=world.wrong or wrong), "ok"


def steps(world: World) -> Iterator[World]:
    for late in world.late:
        yield served(world._replace(late=world.late - {late}), late)[0]
    for nth, client in enumerate(world.clients):
        if client.sent is None:
            if client.left:
                append = AppendKey(NAMES[nth], client.number + 1, client.known, "s")
                yield put(world, nth, client._replace(number=client.number + 1, sent=append))
            continue
        after, told = served(world, client.sent)
        done = client._replace(left=client.left - 1, sent=None, is_open=False)
        if told == "ok":
            yield put(after, nth, done)
        elif client.is_open:
            yield put(after, nth, done._replace(left=0))  # unknown: the writer is not used again
        else:
            refused = after.refused | {(client.sent.name, client.sent.number)}
            again = client._replace(known=gone_of({WRITERS: after.text}), sent=None)
            yield put(after._replace(refused=refused), nth, again)
        if world.faults:
            lost = client._replace(is_open=True)
            yield put(after._replace(faults=world.faults - 1), nth, lost)
            late = world.late | {client.sent}
            yield put(world._replace(faults=world.faults - 1, late=late), nth, lost)


def put(world: World, nth: int, client: Client) -> World:
    return world._replace(clients=(*world.clients[:nth], client, *world.clients[nth + 1 :]))


@pytest.fixture(autouse=True)
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_keys, "_room", lambda *_: 2)


def test_no_append_takes_place_twice() -> None:
    known, _, wrong = explore(World(), steps, lambda world: world.wrong)
    assert not wrong
    assert len(known) > 5_000


@pytest.mark.parametrize("rule", ["what has gone", "the number"])
def test_without_a_rule_an_append_takes_place_twice(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = AppendKey.check

    def careless(self: AppendKey, attrs: dict[str, str]) -> str | None:
        if rule == "what has gone":
            return check(AppendKey(self.name, self.number, gone_of(attrs), self.segment), attrs)
        try:
            return check(self, attrs)
        except ForgottenError as error:
            if "later" not in str(error):
                raise
            return next(one for one in attrs[WRITERS].split() if one.startswith(self._own))

    monkeypatch.setattr(AppendKey, "check", careless)
    assert explore(World(), steps, lambda world: world.wrong)[2]
