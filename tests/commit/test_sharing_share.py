"""One writer asks, another carries: forced schedules, with faults and other commits at each point between."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rollingfs import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingError
from rollingfs.client import Client
from rollingfs.commit.fairness import Turns
from rollingfs.commit.sharing import share
from rollingfs.commit.sharing.others import Others
from rollingfs.commit.sharing.share import Share
from rollingfs.format import names
from rollingfs.format.asks import ASK_BYTES_MAX, ask_path
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Header
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from tests.support.backends import LOOKS, Scripted, fail, private_memory, raises

PATH = "/logs/clicks"
HEADER = "$header"


class DiedError(BaseException):
    """The process ends here."""


die, interrupt = raises(DiedError()), raises(KeyboardInterrupt())


class World:
    """A client that asks, one that carries, and one that knows no asks, on one store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = private_memory()
        self.roles: dict[str, str] = {}
        self.asker, self.asking = self.client("asks", commit_timeout_s=5)
        self.carrier, self.carrying = self.client("carries")
        self.other, _ = self.client("knows no asks", share_commits=False)
        self.is_quiet = False
        self.ask_file = ask_path(PATH, self.asker.commits.slots.writer.id)
        drive(self.asker.segments.create(PATH))
        for client in (self.other, self.asker, self.carrier):  # the last commit is a plain append
            drive(client.segments.append(PATH, b"."))
        drive(self.asker.headers.load(PATH))
        is_role = lambda role: lambda others, header: self.roles.get(others.turns.writer) == role  # noqa: E731
        monkeypatch.setattr(share, "LOSSES_MAX", 1)
        monkeypatch.setattr(Share, "_is_recent", lambda share, base: base.header is not None)
        monkeypatch.setattr(Turns, "turn_wait_s", lambda *args, **options: None)
        monkeypatch.setattr(Others, "are_carrying", is_role("asks"))
        monkeypatch.setattr(Others, "leads", is_role("carries"))
        monkeypatch.setattr(Others, "must_list", False)
        monkeypatch.setattr(Others, "known", lambda others, header: list(self.roles))
        monkeypatch.setattr(Others, "quiet_s", lambda others: 0 if self.is_quiet else 10**6)
        monkeypatch.setattr(Others, "look_s", 0)
        monkeypatch.setattr(Others, "look_pause_s", 0)

    def client(self, role: str, *, share_commits: bool = True, **options: Any) -> tuple[Client, Scripted]:
        way = Scripted(self.store)
        client = Client(way, share_commits=share_commits, **options)
        self.roles[client.commits.slots.writer.id] = role
        return client, way

    def ask(self, data: bytes = b"mine") -> int:
        """Let the asker append."""
        return drive(self.asker.segments.append(PATH, data))

    def carry(self, data: bytes = b"carrier's") -> int:
        """Let the carrier append, on the header that is there."""
        drive(self.carrier.headers.load(PATH))
        return drive(self.carrier.segments.append(PATH, data))

    def while_it_waits(self, *actions: Callable[[], object]) -> None:
        """Do something when the asker has asked, before its first look."""

        def act() -> None:
            for action in actions:
                action()

        self.asking.plan(LOOKS, HEADER, before=act)

    def compete(self) -> None:
        """Let the asker wait for nobody."""
        self.roles[self.asker.commits.slots.writer.id] = "competes"

    @property
    def header(self) -> Header:
        found = parse_header(drive(self.store.read(PATH + HEADER)).data, "header")
        assert found is not None
        return found

    @property
    def content(self) -> bytes:
        return self.header.tail


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


# -- every other commit voids an ask ---------------------------------------------------------------------------------


def guarded(client: Client) -> Coroutine[Any, Any, object]:
    header = drive(client.headers.load(PATH)).header
    assert header is not None
    return client.segments.append(PATH, b"g", guard=Guard(expected_offset=header.length))


async def held(client: Client) -> None:
    epoch = (await client.segments.acquire(PATH, "owner")).epoch
    await client.segments.append(PATH, b"owner's", guard=Guard(epoch=epoch))
    await client.segments.release(PATH, Guard(epoch=epoch))


async def made_again(client: Client) -> None:
    await client.segments.delete(PATH)
    await client.segments.create(PATH)


async def marked(client: Client) -> None:
    await client.concats.rename(PATH, PATH + "-away")
    await client.concats.rename(PATH + "-away", PATH)


OTHERS: dict[str, Callable[[Client], Coroutine[Any, Any, object]]] = {
    "a guarded append": guarded,
    "an owner": held,
    "a seal": lambda client: client.segments.seal(PATH),
    "a truncation": lambda client: client.segments.truncate(PATH, 1),
    "a deletion": lambda client: client.segments.delete(PATH),
    "a new segment of the name": made_again,
    "an overwrite": lambda client: client.segments.overwrite(PATH, b"new"),
    "a rename there and back": marked,
    "a collection": lambda client: client.collector.collect(PATH, grace_s=0),
    "an append by a client that shares nothing": lambda client: client.segments.append(PATH, b"o"),
    "attributes": lambda client: client.segments.append(PATH, b"a", attrs={"key": "value"}),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("is_dead", [False, True])
def test_no_other_commit_lets_an_ask_of_before_come_to_life(world: World, kind: str, is_dead: bool) -> None:
    def others_commit() -> None:
        drive(OTHERS[kind](world.other))
        try:
            world.carry()
        except OSError as error:
            assert kind in ("a seal", "a deletion"), error  # noqa: PT017 - the kinds that refuse an append
        else:
            assert world.content.endswith(b"carrier's")
        assert b"mine" not in world.content
        world.compete()
        if is_dead:
            die()

    world.while_it_waits(others_commit)
    world.while_it_waits(world.carry)
    if is_dead:
        with pytest.raises(AppendOutcomeUnknown):
            world.ask()
        assert world.content.count(b"mine") == 0
    elif kind in ("a seal", "a deletion"):
        with pytest.raises((RollingError, FileNotFoundError), match=r"sealed|No such"):
            world.ask()
        assert b"mine" not in world.content
    else:
        offset = world.ask()
        assert world.content.count(b"mine") == 1
        assert world.content[offset - world.header.start :] == b"mine"


# -- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b"", b"rollingfs-ask 2\n", b"rollingfs-ask 3\nwhat", b"\xff" * 300, None])
def test_what_is_no_ask_or_cannot_be_read_is_left_out(world: World, torn: bytes | None) -> None:
    if torn is None:
        world.carrying.plan("read", lambda path: names.ASK_PREFIX in path, before=fail, times=None)
        world.while_it_waits(world.carry, world.compete)
    else:
        world.while_it_waits(lambda: drive(world.store.put(world.ask_file, torn)), world.carry)
    world.is_quiet = True
    assert world.ask() == 12
    assert world.content == b"...carrier'smine"


# -- the end of an append: committed, not committed, or unknown ----------------------------------------------------


def out_of_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the asker's time be over when it looks the next time."""
    from rollingfs.commit.attempt import Attempt

    monkeypatch.setattr(Attempt, "left_s", lambda attempt: -1.0 if attempt.sent.asked is not None else 10.0)


@pytest.mark.parametrize(
    ("withdrawal", "error", "mine"),
    [
        ({}, CommitTimeoutError, b""),
        ({"after": fail}, CommitTimeoutError, b""),
        ({"before": fail, "times": None}, AppendOutcomeUnknown, b"mine"),
    ],
    ids=["withdrawn", "the answer is lost", "never withdrawn"],
)
def test_a_timeout_says_what_became_of_the_ask(
    world: World, monkeypatch: Any, withdrawal: dict[str, Any], error: type[Exception], mine: bytes
) -> None:
    out_of_time(world, monkeypatch)
    if withdrawal:
        world.asking.plan("replace", HEADER, **withdrawal)
    with pytest.raises(error):
        world.ask()
    world.carry()
    assert world.content == b"...carrier's" + mine


def test_who_is_carried_just_before_it_withdraws_succeeds(world: World, monkeypatch: Any) -> None:
    out_of_time(world, monkeypatch)
    world.asking.plan("replace", HEADER, before=world.carry)
    assert world.ask() == len(b"...carrier's")
    assert world.content == b"...carrier'smine"


CALLS_MAX = 9
"""More requests than the asker makes in the course of the next test."""


@pytest.mark.parametrize("is_carried", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(CALLS_MAX))
def test_ctrl_c_at_any_request_says_what_is_true(world: World, nth: int, when: str, is_carried: bool) -> None:
    world.asking.plan(skips=nth, **{when: interrupt})
    if is_carried:
        world.asking.plan(LOOKS, HEADER, before=world.carry)
    else:
        world.is_quiet = True
    outcome = "committed"
    try:
        world.ask()
    except AppendInterrupted as error:
        outcome = error.outcome
    is_there = b"mine" in world.content
    world.asking.plans.clear()
    world.carry()
    world.carry()
    count = world.content.count(b"mine")
    assert count == {"committed": 1, "not committed": 0}.get(outcome, count) <= 1
    assert is_there == (outcome == "committed") or outcome == "unknown"


def made_anew(world: World) -> None:
    """The header is removed, and another grows past its version."""
    last = world.header.version
    drive(world.store.delete([PATH + HEADER]))
    drive(world.other.segments.create(PATH))
    while world.header.version <= last + 1:
        drive(world.other.segments.append(PATH, b"x"))


@pytest.mark.parametrize("is_carried", [True, False])
def test_an_append_whose_segment_was_made_anew_from_nothing_is_told_as_unknown(world: World, is_carried: bool) -> None:
    world.while_it_waits(*([world.carry] if is_carried else []), lambda: made_anew(world))
    with pytest.raises(AppendOutcomeUnknown):
        world.ask()
    assert world.content.strip(b"x") == b""


def test_what_is_too_large_for_an_ask_competes_and_carries(world: World) -> None:
    world.asking.clear()
    large = b"x" * (ASK_BYTES_MAX + 1)
    drive(world.asker.segments.append(PATH, large))
    assert (world.asking.count("put"), world.header.length) == (0, 3 + len(large))


# -- a commit beside a listing or a reading of asks --------------------------------------------------------------------


@pytest.fixture(params=["listing", "reading"])
def beside(world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    """The carrier lists or reads asks beside each commit; it does not find the asker's by its first look."""
    if request.param == "listing":
        monkeypatch.setattr(Others, "must_list", True)
    else:
        monkeypatch.setattr(world.carrier.commits.store.runtime, "is_async", True, raising=False)
        world.carrying.plan("read", world.ask_file, before=fail)
    world.carrying.clear()
    return world


OUTCOMES: dict[str, tuple[Callable[[World], object], bytes]] = {
    "it fails": (
        lambda world: world.carrying.plan(
            ("list_prefix", "read"), lambda path: "$chunks" in path, before=fail, times=None
        ),
        b"...carrier's",
    ),
    "the commit loses": (
        lambda world: world.carrying.plan(
            "replace", HEADER, before=lambda: drive(world.other.segments.append(PATH, b"other's"))
        ),
        b"...other'scarrier's",
    ),
    "the answer is lost": (lambda world: world.carrying.plan("replace", HEADER, after=fail), b"...carrier's"),
}


@pytest.mark.parametrize(("plan", "content"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcome_is_as_without_it(beside: World, plan: Callable[[World], object], content: bytes) -> None:
    plan(beside)
    assert beside.carry() == len(content.removesuffix(b"carrier's"))
    assert beside.content == content


def test_ctrl_c_within_it_tells_that_the_commit_took_place(beside: World) -> None:
    beside.carrying.plans.clear()
    beside.carrying.plan("list_prefix", before=interrupt)
    beside.carrying.plan("read", beside.ask_file, before=interrupt, skips=1)
    with pytest.raises(AppendInterrupted) as caught:
        beside.carry()
    assert caught.value.outcome == "committed"
    assert beside.content == b"...carrier's"
