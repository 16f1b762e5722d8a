"""Retention: policies, the choice of a cut, and thirty days of it against a slow reference."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollingfs.policy import RollingPolicy
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import Holding, RetentionPolicy, bytes_left, choose, prune
from tests.support.examples import examples, nightly
from tests.support.life import CHUNKS, NOON_S, World

DAY_S = 86_400
HALF_HOUR_S = 1800
FIRST = {"a": "1", "b": "1"}
"""Incarnations."""


# -- policies ------------------------------------------------------------------------------------------------


def test_sizes_and_times_are_numbers_or_text():
    assert RetentionPolicy.by_size("1KiB", "1MB") == RetentionPolicy.by_size(1024, 10**6, 1800)
    assert RetentionPolicy.by_time("1h", "7d", "10min") == RetentionPolicy.by_time(3600, 7 * DAY_S, 600)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetentionPolicy.by_size(-1),
        lambda: RetentionPolicy.by_size(10, 9),
        lambda: RetentionPolicy.by_size("10 apples"),
        lambda: RetentionPolicy.by_time("1h", "30min"),
        lambda: RetentionPolicy.by_time(float("nan")),
        lambda: RetentionPolicy.by_time(1, every=-1),
        lambda: RetentionPolicy.by_time(1, every="99999999d"),
        lambda: RetentionPolicy.by_time("99999999999999999999d"),
        lambda: RetentionPolicy.by_time(1, "99999999999999999999d"),
        lambda: RetentionPolicy.by_size("9" * 400 + "GB"),
        lambda: RetentionPolicy.by_size(1, 2**64),
        lambda: RetentionPolicy.by_size(1, align=b""),
        lambda: RetentionPolicy("luck", 1),
    ],
)
def test_policies_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"min|max|every|align|size|'luck'"):
        make()


# -- the choice, whatever the cuts ---------------------------------------------------------------------------


@st.composite
def situations(draw):
    """Cuts that grow, over two segments, with subscribers somewhere between."""
    steps = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8))
    places, a, b = [], 0, 0
    for more_a, more_b in steps:
        a, b = a + more_a, b + more_b
        places.append((a, b))
    cuts = [StreamCut({"a": x, "b": y}, 10.0 * i, 0, FIRST) for i, (x, y) in enumerate(places)]
    extents = {"a": Holding(draw(st.integers(0, a)), a, ("1",)), "b": Holding(draw(st.integers(0, b)), b, ("1",))}
    reads = draw(st.lists(st.tuples(st.integers(0, a), st.integers(0, b)), max_size=2))
    subscribers = [StreamCut({"a": x, "b": y}, 0.0, 0, FIRST) for x, y in reads]
    least = draw(st.integers(0, 120))
    most = draw(st.none() | st.integers(least, 240))
    make = draw(st.sampled_from([RetentionPolicy.by_size, RetentionPolicy.by_time]))
    now = 10.0 * len(cuts) + draw(st.integers(0, 20))
    return make(least, most), cuts, subscribers, extents, now


@settings(max_examples=examples(150), deadline=None)
@given(situations())
def test_a_choice_keeps_the_least_and_the_unread_and_no_more_than_the_most(situation):
    policy, cuts, subscribers, extents, now = situation
    target = choose(policy, cuts, subscribers, extents, now)
    nowhere = {name: extent.start for name, extent in extents.items()}

    def place(cut):
        return {name: max(cut[name], extents[name].start) for name in extents}

    def left(kept):
        return bytes_left(place(kept), extents) if policy.by == "size" else now - kept.at

    allowed = [kept for kept in cuts if left(kept) >= policy.min]
    newest = place(allowed[-1]) if allowed else nowhere
    assert all(nowhere[name] <= target[name] <= newest[name] for name in extents)
    if not subscribers:
        assert target == newest
        return
    unread = {name: min(place(cut)[name] for cut in subscribers) for name in extents}
    if any(target[name] > unread[name] for name in extents):  # unread bytes go
        assert policy.max is not None
        kept_anyway = {name: min(unread[name], newest[name]) for name in extents}
        if policy.by == "size":
            assert bytes_left(kept_anyway, extents) > policy.max
        else:
            old = [kept for kept in cuts if now - kept.at > policy.max]
            assert any(place(cut)[name] > kept_anyway[name] for cut in old for name in extents)
    elif policy.max is not None and policy.by == "size" and bytes_left(target, extents) > policy.max:
        assert target == newest  # a step further would leave less than the least


def test_a_cut_of_an_earlier_incarnation_or_of_none_says_nothing_about_what_is_there():
    policy = RetentionPolicy.by_size(0)

    def chosen(kept, read, *incarnations):
        cuts = [StreamCut({"a": offset}, 5.0, 0, said) for offset, said in [kept]]
        readers = [StreamCut({"a": offset}, 5.0, 0, said) for offset, said in [read]] if read else []
        return choose(policy, cuts, readers, {"a": Holding(0, 20, incarnations)}, 9.0)["a"]

    assert chosen((10, {"a": "old"}), None, "old") == 10
    assert chosen((10, {"a": "old"}), None, "new") == 0
    assert chosen((10, None), None, "new") == 0
    assert chosen((10, {"a": "plain"}), None, "new", "plain") == 10  # it was adopted since
    assert chosen((10, {"a": "old"}), None) == 0  # the store tells no token of a plain file
    assert chosen((10, None), None) == 0
    assert chosen((20, {"a": "new"}), (15, {"a": "new"}), "new") == 15
    assert chosen((20, {"a": "new"}), (15, {"a": "old"}), "new") == 0
    assert chosen((20, {"a": "new"}), (15, None), "new") == 0


def test_cuts_with_nothing_before_them_are_forgotten_and_many_are_thinned():
    def kept(offset):
        return StreamCut({"a": offset}, float(offset), 0, {"a": "1"})

    extents = {"a": Holding(10, 10**6, ("1",))}
    assert [found["a"] for found in prune(map(kept, (5, 10, 11, 12)), extents)] == [11, 12]
    assert [found["a"] for found in prune(map(kept, (5, 9)), extents)] == [9]
    many = [found["a"] for found in prune(map(kept, range(11, 5011)), extents)]
    assert len(many) <= 2048
    assert many[-900:] == list(range(4111, 5011))
    assert max(after - before for before, after in itertools.pairwise(many)) <= 5000 / 256


def test_of_a_cut_only_the_offsets_before_which_there_are_bytes_are_kept():
    extents = {"a": Holding(10, 100, ("1",)), "b": Holding(0, 100, ("2",)), "c": Holding(0, 100, ("3",))}
    said = {"a": "1", "b": "2", "c": "replaced", "gone": "4"}
    older = StreamCut({"a": 10, "b": 5, "c": 7, "gone": 9}, 1.0, 7, said)
    newest = StreamCut({"a": 10, "b": 6, "c": 7, "gone": 9}, 2.0, 7, said)
    assert prune([newest, older], extents) == (StreamCut({"b": 5}, 1.0, 7, {"b": "2"}), newest)


# -- thirty days ---------------------------------------------------------------------------------------------


@dataclass
class Slow:
    """What a stream should hold, kept record by record: when, where, how long."""

    policy: RetentionPolicy
    records: list[tuple[float, str, int, int]] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    cuts: list[tuple[float, dict[str, int]]] = field(default_factory=list)

    def append(self, at, name, start, size):
        self.records.append((at, name, start, start + size))

    def ends(self):
        found = {}
        for _, name, _, end in self.records:
            found[name] = end
        return found

    def left(self, cut):
        """Bytes of records behind a cut, one by one."""
        return sum(end - max(start, cut.get(name, 0)) for _, name, start, end in self.records if end > cut.get(name, 0))

    def retain(self, now, readers):
        policy = self.policy
        if not self.cuts or now - self.cuts[-1][0] >= policy.every:
            self.cuts.append((now, self.ends()))

        def amount(at, cut):
            return self.left(cut) if policy.by == "size" else now - at

        allowed = [(at, cut) for at, cut in self.cuts if amount(at, cut) >= policy.min]
        if not allowed:
            return
        target = allowed[-1][1]
        if readers:
            target = {name: min([offset, *(read.get(name, 0) for read in readers)]) for name, offset in target.items()}
            if policy.max is not None and self.over(now, target):
                within = [cut for at, cut in allowed if amount(at, cut) <= policy.max]
                bound = within[0] if within else allowed[-1][1]
                target = {name: max(offset, bound.get(name, 0)) for name, offset in target.items()}
        for name, offset in target.items():
            self.starts[name] = max(self.starts.get(name, 0), offset)
        self.records = [record for record in self.records if record[3] > self.starts.get(record[1], 0)]
        self.cuts = [(at, cut) for at, cut in self.cuts[:-1] if self.is_useful(cut)] + self.cuts[-1:]

    def is_useful(self, cut):
        return any(offset > self.starts.get(name, 0) for name, offset in cut.items())

    def over(self, now, target):
        merged = {name: max(target.get(name, 0), self.starts.get(name, 0)) for name in self.ends()}
        if self.policy.by == "size":
            return self.left(merged) > self.policy.max
        old = [cut for at, cut in self.cuts if now - at > self.policy.max]
        return any(offset > merged.get(name, 0) for cut in old for name, offset in cut.items())


POLICIES = {
    "by size": (RetentionPolicy.by_size(5000), 0),
    "by time": (RetentionPolicy.by_time("2d", every="1h"), 0),
    "consumption by size": (RetentionPolicy.by_size(2000, 20_000), 2),
    "consumption by time": (RetentionPolicy.by_time("6h", "3d", every="2h"), 2),
    "consumption without an end": (RetentionPolicy.by_size(0), 1),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("days", [3, *nightly(30)])
def test_thirty_days_hold_what_a_slow_reference_holds(name, days):
    policy, readers = POLICIES[name]
    chance = random.Random(name)
    world = World(policy=RollingPolicy(max_bytes=200, inline_bytes=50))
    slow = Slow(policy)
    stream = world.stream()
    paths = [world.create(f"/stream/{letter}") for letter in "abc"]
    stream.retention = policy
    read = {}
    for step in range(days * 48):
        world.clock.now_s = NOON_S + step * HALF_HOUR_S
        for _ in range(chance.randrange(4)):
            path, size = chance.choice(paths[: 2 + (step > 24)]), chance.randrange(1, 120)
            slow.append(world.clock.now_s, path, world.append(path, bytes(size)), size)
        for reader in range(readers):
            if chance.random() < (0.1, 0.02)[reader]:
                read[f"reader {reader}"] = stream.cut()
                stream.publish(f"reader {reader}", read[f"reader {reader}"])
        if readers and not read:
            read["reader 0"] = stream.cut()
            stream.publish("reader 0", read["reader 0"])
        if chance.random() < 0.9:
            report = stream.retain()
            slow.retain(world.clock.now_s, list(read.values()))
            assert report.size == stream.size()
            check_bounds(world, stream, slow, read)


def check_bounds(world, stream, slow, read):
    policy, now = slow.policy, world.clock.now_s
    starts = {path: info["start_offset"] for path, info in stream.infos().items()}
    assert starts == {path: slow.starts.get(path, 0) for path in starts}
    dropped_to = {path: start for path, start in starts.items() if start}
    if policy.by == "size":
        size = stream.size()
        assert not dropped_to or size >= policy.min
        if policy.max is not None:
            assert size <= policy.max
        elif not read:
            assert size <= policy.min + 8 * 360 + 360
    else:
        young = [record for record in slow.records if now - record[0] < policy.min]
        assert all(starts[name] <= start for _, name, start, _ in young)
        if policy.max is not None or not read:
            limit = policy.max if read else policy.min
            oldest = min((at for at, name, _, end in slow.records if end > starts[name]), default=now)
            assert now - oldest <= limit + policy.every + 8 * HALF_HOUR_S


def test_a_dry_run_says_what_a_run_then_does():
    world = World(policy=CHUNKS)
    path = world.create("/stream/a", [b"x" * 100])
    world.seal(world.create("/stream/b", [b"y" * 10]))
    stream = world.stream()
    stream.retention = RetentionPolicy.by_size(50)
    stream.retain()
    world.clock.now_s += HALF_HOUR_S
    world.append(path, b"x" * 60)
    dry = stream.retain(dry_run=True)
    assert len(stream.cuts()) == 1
    assert world.header(path).start == 0
    report = stream.retain()
    assert (report.bytes, report.deleted, report.size) == (110, ("/stream/b",), 60)
    assert (dry.bytes, dry.deleted, dry.size) == (report.bytes, report.deleted, report.size)
    assert (dry.taken, dry.trimmed) == (report.taken, report.trimmed)
    assert dict(report.trimmed) == {path: 100, "/stream/b": 10}
    assert report.taken == {path: 160, "/stream/b": 10}


def test_an_aligned_policy_cuts_no_record_in_two():
    world = World(policy=RollingPolicy(max_bytes=64, inline_bytes=10))
    path = world.create("/stream/log")
    stream = world.stream()
    stream.retention = RetentionPolicy.by_size(20, align=b"\n")
    for step in range(12):
        world.clock.now_s += HALF_HOUR_S
        world.append(path, b"record %d\nhalf a " % step)
        stream.retain()
        assert world.content(path)[:7] in (b"record ", b"half a ")
    assert world.header(path).start > 0
    assert world.content(path).startswith(b"half a record")
