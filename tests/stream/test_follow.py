"""A segment that is followed: what moves when, stores that fail, requests counted.

`tests/segment/test_at_each_call.py` has crashes, faults and other clients at every call.
"""

import math
import re
from dataclasses import replace
from functools import partial

import pytest

from rollingfs.errors import CorruptChunkError, CorruptHeaderError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.segment.verbs.change import change
from rollingfs.segment.verbs.export import export
from rollingfs.stream.blocks import RETRY_S_MAX, OffloadStatus
from rollingfs.stream.follow import Followed
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.states import states_below
from tests.support import small
from tests.support.faults import CLOCK, Store, TieredStore
from tests.support.life import World
from tests.support.small import Failing, client, filled, is_whole, settle, shrink_pages, step

pytestmark = pytest.mark.usefixtures("hurried")
RULE = Asked("cold", Chosen(), 0.0, 40, 100)
A = "/stream/a"
WHOLE = b"0" * 20 + b"1" * 20 + b"2" * 20 + b"tail"


def followed(world: World, rule: Asked = RULE, lag_s: float = 0.0) -> Followed:
    return small.followed(world, A, rule, lag_s)


def fill(store: Store) -> World:
    """A segment of three chunks and a tail: one full block, and a part of the next."""
    return filled(store, [WHOLE[:20], WHOLE[20:40], WHOLE[40:60]])


@pytest.fixture
def world(store):
    return fill(store)


def follow(one: Followed) -> None:
    for _ in range(20):
        CLOCK.sleep(min(step(one).pause_s, one.poll_s_max))


def chunks_of(world: World) -> list[tuple[str, int]]:
    return [(chunk.tier, chunk.length) for chunk in world.chunks(A)]


# -- what it does --------------------------------------------------------------------------------------------


@pytest.fixture
def damaged() -> tuple[World, str, bytes]:
    """A segment of two full blocks, a part of the next, and a tail; a chunk of the first block is damaged."""
    store = TieredStore()
    world = fill(store)
    for piece in (b"3" * 20, b"4" * 20, b"more"):
        world.append(A, piece)
    file = names.resolve(A, world.header(A).entries[1].file)
    whole = store.snapshot()[file]
    store._put(file, b"?" * 20)
    return world, file, whole


def test_bytes_after_damage_move_first_damage_once_mended(damaged):
    world, file, whole = damaged
    one, expected = followed(world), [chunk for _, chunk in chunks_of(world)]
    follow(one)
    assert chunks_of(world)[:2] == [("", 20), ("", 20)], "the damaged block stays"
    assert {tier for tier, _ in chunks_of(world)[2:]} == {"cold"}
    assert sum(size for _, size in chunks_of(world)) == world.header(A).length == sum(expected) + 4
    assert file in str(one.status.last_error)
    assert (one.status.cold_end, one.status.lag_bytes) == (0, world.header(A).length)
    assert one.status.lag_s > 200, "it grows, as the damaged bytes stay"
    world.append(A, b"later")
    follow(one)
    assert [tier for tier, _ in chunks_of(world)].count("") == 2
    assert file in str(one.status.last_error), "it is said as long as it lasts"
    world.backend.inner._put(file, whole)
    CLOCK.sleep(RETRY_S_MAX)
    settle(one)
    assert {tier for tier, _ in chunks_of(world)} == {"cold"}


def test_upkeep_moves_bytes_after_damage_and_reports_it(damaged):
    world, file, _ = damaged
    with pytest.raises(CorruptChunkError, match=re.escape(file)):
        drive(followed(world, rule=replace(RULE, max_delay_s=0)).move_all())
    assert chunks_of(world)[:2] == [("", 20), ("", 20)]
    assert {tier for tier, _ in chunks_of(world)[2:]} == {"cold"}


def test_lost_index_page_is_neither_missing_nor_changing_segment(monkeypatch):
    shrink_pages(monkeypatch, chunks=2, loose_max=1)
    store, moved = TieredStore(), "/other/b"
    fill(store).rename(A, moved)
    [page] = [file for file in store.files() if "/index-" in file]
    del store.fs.store[page]
    one = small.followed(client(store), moved, RULE)
    assert not step(one).is_over
    assert page in str(one.status.last_error)
    looks = client(store).client
    [state] = drive(states_below(Ledgers(looks), "/other", None, Chosen(upto=1)))
    assert page in str(state.error)
    verbs = [
        lambda world: world.content(moved),
        lambda world: drive(export(world.client, drive(world.client.headers.view(moved)), world.backend, "/out")),
        lambda world: world.offload(moved),
        lambda world: world.consolidate(moved),
        lambda world: world.collect(A),  # the folder where its chunks lie
        lambda world: world.collect(moved),
        lambda world: world.erase(moved, 30),
        lambda world: world.rename(moved, A),
    ]
    busy = client(store)
    other = client(store).client
    touch = partial(change, other, moved, lambda found: replace(found, attrs={"version": str(found.version)}))
    busy.backend.prepare(between={call: lambda: drive(touch()) for call in range(99)})
    with pytest.raises(CorruptHeaderError, match="index page that its header names is missing"):
        busy.offload(moved)
    for verb in verbs:
        with pytest.raises(CorruptHeaderError, match=r"index page that (its|a) header names is missing"):
            verb(client(store))
    assert client(store).header(moved).merge is None, "a mark that nobody can undo"


def test_full_block_moves_immediately_its_rest_with_the_tail(world):
    one = followed(world)
    assert step(one).pause_s == 0
    assert chunks_of(world) == [("cold", 40), ("", 20)]
    assert (one.status.cold_end, one.status.lag_bytes, one.status.last_error) == (40, 24, None)
    began = CLOCK.time()
    assert settle(one).lag_s == 0
    assert 90 < CLOCK.time() - began < 130
    assert chunks_of(world) == [("cold", 40), ("cold", 24)]
    assert (one.status.cold_end, one.status.lag_bytes) == (64, 0)
    assert world.content(A) == WHOLE


def test_idle_segments_chunks_move_when_the_policy_allows(world):
    one = followed(world, replace(RULE, chosen=Chosen(after_age_s=1000)))
    calls = 0
    for _ in range(100):
        now = step(one)
        calls += 1
        CLOCK.sleep(now.pause_s)
        if chunks_of(world) == [("cold", 40), ("cold", 20)]:
            break
    assert chunks_of(world) == [("cold", 40), ("cold", 20)]
    assert calls < 10, "it does not poll until then"


def test_unchanged_header_costs_one_conditional_request_without_cache(world):
    one = followed(world)
    settle(one)
    step(one)
    world.client.headers.forget()
    world.backend.prepare()
    for _ in range(10):
        assert (step(one).pause_s, one.poll_s_max) == (math.inf, 25)
    assert [verb for verb, _ in world.backend.trace] == ["read_if_changed"] * 10
    world.append(A, b"x")
    world.backend.prepare()
    step(one)
    assert [verb for verb, _ in world.backend.trace] == ["read_if_changed"]


# -- a tier that fails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "said"), [("fails", "the cold store is away"), ("loses", "nothing is lost")])
def test_failing_tier_is_reported_and_retried_with_longer_pauses(how, said):
    store = Failing()
    world = fill(store)
    one = followed(world)
    store.how = how
    pauses = []
    for _ in range(12):
        pauses.append(step(one).pause_s)
        assert said in str(one.status.last_error)
        assert one.status.cold_end == 0
        CLOCK.sleep(pauses[-1])
    assert pauses[0] <= 1
    assert max(pauses) > 100
    assert max(pauses) <= 300
    assert client(store).content(A) == WHOLE
    assert one.status.lag_s > 100
    store.how = ""
    assert settle(one).last_error is None
    assert (client(store).content(A), is_whole(client(store))) == (WHOLE, True)
    assert {tier for tier, _ in chunks_of(world)} == {"cold"}


def test_the_lag_grows_while_the_tier_is_away():
    store = Failing()
    world = fill(store)
    one = followed(world)
    store.how = "fails"
    step(one)
    for _ in range(3):
        lag_bytes = one.status.lag_bytes
        world.append(A, b"more")
        drive(one.look())
        assert one.status.lag_bytes == lag_bytes + 4
        assert "the cold store is away" in str(one.status.last_error)
    store.fs.store.pop(names.header_path(A))
    step(one)
    assert "the cold store is away" in str(one.status.last_error)


def test_tier_that_is_slow_is_said_while_it_is():
    store, texts = Failing(), []
    one = followed(fill(store))
    store.how, store.slow_s = "slow", 45.0
    store.seen = lambda: texts.append(one.status.last_error)
    step(one)
    assert texts[0] is None
    assert "90 s" in texts[1]
    assert "slow" in texts[1]
    assert one.status == OffloadStatus(40, 24, one.status.lag_s, None)
