"""One writer asks, another carries: forced schedules, with faults and other commits at each point between."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rollingfs import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingError
from rollingfs.client import Client
from rollingfs.commit.fairness import Turns
from rollingfs.commit.sharing import files as ask_files
from rollingfs.commit.sharing import share
from rollingfs.commit.sharing.others import PASSED_VERSIONS_MAX, Others
from rollingfs.commit.sharing.share import Share
from rollingfs.format import names
from rollingfs.format.asks import ASK_BYTES_MAX, ask_path
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Header
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Scripted, fail, private_memory, raises

PATH = "/logs/clicks"
HEADER = "$header"
ASK = names.ASK_PREFIX
LOOK = ("read", "read_if_changed")


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

        self.asking.plan(LOOK, HEADER, before=act)

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


# -- all goes well -------------------------------------------------------------------------------------------------


def test_the_bytes_of_an_ask_are_carried_behind_those_of_the_carrier(world: World) -> None:
    world.asking.clear()
    world.while_it_waits(world.carry)
    assert world.ask() == len(b"...carrier's")
    assert (world.content, world.asking.verbs) == (b"...carrier'smine", ["put", "read_if_changed"])
    assert world.asking.count("replace") == 0


def test_who_has_waited_in_vain_competes_and_carries_others(world: World) -> None:
    world.is_quiet = True
    assert world.ask() == 3
    assert world.content == b"...mine"
    assert world.carry() == 7
    assert world.content == b"...minecarrier's", "the old ask has taken place"


def test_lost_races_are_answered_with_an_ask(world: World) -> None:
    world.compete()
    world.is_quiet = True
    world.asking.plan("replace", HEADER, before=world.carry)
    world.asking.clear()
    assert world.ask() == len(b"...carrier's")
    assert (world.asking.verbs.count("put"), world.asking.verbs.count("replace")) == (1, 2)


def test_who_is_passed_by_competes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_by() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ask_files, "ASK_AGE_S_MAX", -1.0)
            world.carry()

    world.asking.clear()
    world.asking.plan(LOOK, HEADER, before=pass_by, times=PASSED_VERSIONS_MAX)
    assert world.ask() == len(b"...") + PASSED_VERSIONS_MAX * len(b"carrier's")
    assert world.asking.count("replace") == 1
    assert world.content.endswith(b"mine")


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


def test_the_ask_of_a_dead_process_is_carried_within_10_s_and_never_after(world: World, monkeypatch: Any) -> None:
    world.while_it_waits(die)
    with pytest.raises(AppendOutcomeUnknown):
        world.ask()
    with monkeypatch.context() as patch:
        patch.setattr(ask_files, "ASK_AGE_S_MAX", -1.0)
        world.carry()
        assert b"mine" not in world.content
    world.carry()
    assert world.content.count(b"mine") == 1
    world.carry()
    assert world.content.count(b"mine") == 1


# -- answers that are lost ---------------------------------------------------------------------------------------------


def test_an_ask_that_could_not_be_written_costs_nothing_but_time(world: World) -> None:
    world.asking.plan("put", before=fail)
    assert world.ask() == 3
    assert world.content == b"...mine"


def test_an_ask_is_carried_although_its_answer_was_lost(world: World) -> None:
    def carried_and_lost() -> None:
        world.carry()
        fail()

    world.asking.plan("put", after=carried_and_lost)
    assert world.ask() == len(b"...carrier's")
    assert world.content == b"...carrier'smine"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_carrier_whose_answer_is_lost_repeats_the_very_same_bytes(world: World, when: str) -> None:
    sent: list[bytes] = []

    def lost_and_another_ask() -> None:
        path = ask_path(PATH, world.asker.commits.slots.writer.id)
        world.store.fs.store.pop(path)
        fail()

    world.carrying.plan("replace", HEADER, when=lambda path, data, token: bool(sent.append(bytes(data))), times=None)
    world.carrying.plan("replace", HEADER, **{when: lost_and_another_ask})
    world.while_it_waits(world.carry)
    assert world.ask() == len(b"...carrier's")
    assert world.content == b"...carrier'smine"
    assert len(set(sent)) == 1
    assert len(sent) == (2 if when == "before" else 1)


@pytest.mark.parametrize("torn", [b"", b"rollingfs-ask 2\n", b"rollingfs-ask 3\nwhat", b"\xff" * 300, None])
def test_what_is_no_ask_or_cannot_be_read_is_left_out(world: World, torn: bytes | None) -> None:
    if torn is None:
        world.carrying.plan("read", lambda path: ASK in path, before=fail, times=None)
        world.while_it_waits(world.carry, world.compete)
    else:
        path = ask_path(PATH, world.asker.commits.slots.writer.id)
        world.while_it_waits(lambda: drive(world.store.put(path, torn)), world.carry)
    world.is_quiet = True
    assert world.ask() == 12
    assert world.content == b"...carrier'smine"


@pytest.mark.parametrize(("when", "offset"), [("after", 12), ("before", 3)])
def test_a_carrier_that_dies_has_carried_or_leaves_the_asker_to_compete(world: World, when: str, offset: int) -> None:
    def dies() -> None:
        world.carrying.plan("replace", HEADER, **{when: die})
        with pytest.raises(AppendOutcomeUnknown):
            world.carry()

    world.while_it_waits(dies)
    world.is_quiet = when == "before"
    assert world.ask() == offset
    assert world.content == (b"...carrier'smine" if when == "after" else b"...mine")


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
        world.asking.plan(LOOK, HEADER, before=world.carry)
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


def test_an_append_that_was_carried_and_overwritten_has_its_offset(world: World) -> None:
    before = world.header.segment
    world.while_it_waits(world.carry, lambda: drive(world.other.segments.overwrite(PATH, b"new")))
    written = drive(world.asker.segments.extend(PATH, b"mine"))
    assert (written.offset, written.header.segment) == (len(b"...carrier's"), before)
    assert world.content == b"new"


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


def test_an_append_that_was_overwritten_and_not_carried_goes_on_by_its_line_of_before(world: World) -> None:
    world.while_it_waits(lambda: drive(world.other.segments.overwrite(PATH, b"new")))
    world.while_it_waits(world.carry)
    assert world.ask() == len(b"new")
    assert world.content.count(b"mine") == 1


def test_the_offset_of_an_own_attempt_is_not_that_of_an_ask_of_an_incarnation_that_is_gone(world: World) -> None:
    def others_are_first() -> None:
        world.carry()
        world.roles[world.asker.commits.slots.writer.id] = "asks"

    def carried_and_overwritten() -> None:
        world.carry()
        drive(world.other.segments.overwrite(PATH, b"new"))

    world.compete()
    world.asking.plan("replace", HEADER, before=others_are_first)
    world.asking.plan(LOOK, HEADER, before=carried_and_overwritten, skips=1)
    assert world.ask() == len(b"...carrier'scarrier's"), "not where the own attempt would have put the bytes"
    assert world.content == b"new"


def test_a_conflict_that_is_certain_says_nothing_of_an_ask(world: World) -> None:
    def carried_and_made_again_from_nothing() -> None:
        world.carry()
        assert b"mine" in world.content
        drive(world.store.delete([PATH + HEADER]))
        drive(world.other.segments.create(PATH))

    world.asking.conflicts_are_final = True
    world.is_quiet = True
    world.asking.plan("replace", HEADER, before=carried_and_made_again_from_nothing)
    with pytest.raises(AppendOutcomeUnknown):
        world.ask()
    assert world.content == b""


def test_a_handle_never_asks_for_another_incarnation_than_its_own(world: World) -> None:
    bound = Guard(world.header.segment)
    drive(made_again(world.other))
    drive(world.asker.headers.load(PATH))
    world.asking.clear()
    with pytest.raises(FileNotFoundError):
        drive(world.asker.segments.append(PATH, b"mine", guard=bound))
    assert world.asking.count("put") == 0
    world.carry()
    assert b"mine" not in world.content


@pytest.mark.parametrize("options", [{"guard": Guard(expected_offset=3)}, {"attrs": {"key": "value"}}])
def test_appends_with_a_condition_or_attributes_neither_ask_nor_carry(world: World, options: Any) -> None:
    world.asking.clear()
    assert drive(world.asker.segments.append(PATH, b"mine", **options)) == 3
    assert world.asking.verbs == ["replace"]
    assert world.header.asks is None


def test_what_is_too_large_for_an_ask_competes_and_carries(world: World) -> None:
    world.asking.clear()
    large = b"x" * (ASK_BYTES_MAX + 1)
    drive(world.asker.segments.append(PATH, large))
    assert (world.asking.count("put"), world.header.length) == (0, 3 + len(large))


# -- a listing of asks beside a commit ---------------------------------------------------------------------------------


@pytest.fixture
def listing(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(Others, "must_list", True)
    world.carrying.clear()
    return world


def test_a_slow_listing_beside_a_commit_is_not_counted_as_its_time(listing: World, monkeypatch: Any) -> None:
    """Else pauses, which are multiples of that time, would grow with each listing."""
    now_s, turns = [1000.0], listing.carrier.commits.slots.of(PATH).turns
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    turns.commit_s = 0.0

    def wait() -> None:
        now_s[0] += 1

    listing.carrying.plan("list_prefix", before=wait)
    assert listing.carry() == 3
    assert turns.commit_s == 0


# -- asks that are read ahead, beside a commit -------------------------------------------------------------------------


@pytest.fixture
def ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The carrier reads asks beside each commit, and does not find that of its first look."""
    monkeypatch.setattr(world.carrier.commits.store.runtime, "is_async", True, raising=False)
    world.carrying.plan("read", is_askers(world), before=fail)
    world.carrying.clear()
    return world


def is_askers(world: World) -> Callable[[str], bool]:
    path = ask_path(PATH, world.asker.commits.slots.writer.id)
    return lambda read: read == path


def test_an_ask_that_was_read_beside_a_commit_is_carried_by_the_next_which_reads_none(ahead: World) -> None:
    looked: list[int] = []

    def next_commit() -> None:
        ahead.carrying.plan("replace", HEADER, before=lambda: looked.append(ahead.carrying.count("read")))
        ahead.carrying.clear()
        drive(ahead.carrier.segments.append(PATH, b"next"))

    ahead.while_it_waits(ahead.carry, next_commit)
    assert ahead.ask() == len(b"...carrier'snext")
    assert ahead.content == b"...carrier'snextmine"
    assert looked == [0]


def test_an_ask_that_was_read_ahead_and_is_void_since_is_not_carried(ahead: World, monkeypatch: Any) -> None:
    where = Guard(expected_offset=len(b"...carrier's"))

    def guarded() -> None:
        """A guarded append voids all older asks."""
        drive(ahead.other.segments.append(PATH, b"guarded", guard=where))

    ahead.while_it_waits(ahead.carry, guarded, lambda: ahead.carry(b"next"), ahead.compete)
    ahead.is_quiet = True
    ahead.ask()
    assert ahead.content == b"...carrier'sguardednextmine"
    line = ahead.header.commit_of(ahead.asker.commits.slots.writer.id)
    assert line is not None
    assert line.offset is None, "it was not carried, but has competed"


# -- a commit beside a listing or a reading of asks --------------------------------------------------------------------


@pytest.fixture(params=["listing", "ahead"])
def beside(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue(request.param)
    return world


def _fails(world: World) -> None:
    world.carrying.plan(("list_prefix", "read"), lambda path: "$chunks" in path, before=fail, times=None)


def _loses(world: World) -> None:
    world.carrying.plan("replace", HEADER, before=lambda: drive(world.other.segments.append(PATH, b"other's")))


def _answer_is_lost(world: World) -> None:
    world.carrying.plan("replace", HEADER, after=fail)


OUTCOMES = {_fails: b"...carrier's", _loses: b"...other'scarrier's", _answer_is_lost: b"...carrier's"}


@pytest.mark.parametrize(("plan", "content"), OUTCOMES.items())
def test_the_outcome_is_as_without_it(beside: World, plan: Callable[[World], None], content: bytes) -> None:
    plan(beside)
    assert beside.carry() == len(content.removesuffix(b"carrier's"))
    assert beside.content == content


def test_ctrl_c_within_it_tells_that_the_commit_took_place(beside: World) -> None:
    beside.carrying.plans.clear()
    is_ahead = is_askers(beside)
    beside.carrying.plan("list_prefix", before=interrupt)
    beside.carrying.plan("read", is_ahead, before=interrupt, skips=1)
    with pytest.raises(AppendInterrupted) as caught:
        beside.carry()
    assert caught.value.outcome == "committed"
    assert beside.content == b"...carrier's"
