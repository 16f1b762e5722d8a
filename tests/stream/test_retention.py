"""Retention: policies, the choice of a cut, and thirty days of it against a slow reference."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollingfs.policy import RollingPolicy
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import Holding, Kept, RetentionPolicy, bytes_left, choose, prune
from tests.support.examples import examples, nightly
from tests.support.life import CHUNKS, NOON_S, World

DAY_S = 86_400
HALF_HOUR_S = 1800
FIRST = {"a": "1", "b": "1"}
"""Incarnations."""


def least_of(policy):
    """The minimum of a policy by size or by time."""
    return policy.min_age if policy.min_bytes is None else policy.min_bytes


def most_of(policy):
    return policy.max_age if policy.min_bytes is None else policy.max_bytes


# -- policies ------------------------------------------------------------------------------------------------


def test_sizes_and_times_are_numbers_or_text():
    assert RetentionPolicy.by_size("1KiB", "1MB", "30min") == RetentionPolicy.by_size(1024, 10**6, 1800)
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
        lambda: RetentionPolicy(keep_age="1d", min_age="2d"),
    ],
)
def test_policies_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match=r"min|max|every|align|size"):
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
    target = choose(policy, Kept.of(cuts, extents, now), subscribers, extents)
    nowhere = {name: extent.start for name, extent in extents.items()}

    def place(cut):
        return {name: max(cut[name], extents[name].start) for name in extents}

    def left(kept):
        return bytes_left(place(kept), extents) if policy.min_bytes is not None else now - kept.at

    allowed = [kept for kept in cuts if left(kept) >= least_of(policy)]
    newest = place(allowed[-1]) if allowed else nowhere
    assert all(nowhere[name] <= target[name] <= newest[name] for name in extents)
    if not subscribers:
        assert target == newest
        return
    unread = {name: min(place(cut)[name] for cut in subscribers) for name in extents}
    if any(target[name] > unread[name] for name in extents):  # unread bytes go
        assert most_of(policy) is not None
        kept_anyway = {name: min(unread[name], newest[name]) for name in extents}
        if policy.min_bytes is not None:
            assert bytes_left(kept_anyway, extents) > most_of(policy)
        else:
            old = [kept for kept in cuts if now - kept.at > most_of(policy)]
            assert any(place(cut)[name] > kept_anyway[name] for cut in old for name in extents)
    elif most_of(policy) is not None and policy.min_bytes is not None and bytes_left(target, extents) > most_of(policy):
        assert target == newest  # a step further would leave less than the least


@st.composite
def pairs(draw):
    """A policy by time and size together, with the rest of a situation."""
    _, cuts, subscribers, extents, now = draw(situations())
    maybe = st.none() | st.integers(0, 120)
    kept = {"keep_age": draw(maybe), "keep_bytes": draw(maybe)}
    given = {name: value for name, value in kept.items() if value is not None}
    least = {name.replace("keep", "min"): draw(st.none() | st.integers(0, value)) for name, value in given.items()}
    return RetentionPolicy(**kept, **least), cuts, subscribers, extents, now


@settings(max_examples=examples(150), deadline=None)
@given(pairs())
def test_by_time_and_size_whichever_asks_for_more_counts_and_of_the_minima_whichever_keeps_more(situation):
    policy, cuts, subscribers, extents, now = situation
    target = choose(policy, Kept.of(cuts, extents, now), subscribers, extents)
    nowhere = {name: extent.start for name, extent in extents.items()}

    def place(cut):
        return {name: max(cut[name], extents[name].start) for name in extents}

    def is_within(one, other):
        return all(one[name] <= other[name] for name in extents)

    for name in extents:  # nothing that has not been read goes
        assert all(target[name] <= max(cut[name], nowhere[name]) for cut in subscribers)
    if target != nowhere and policy.min_bytes is not None:
        assert bytes_left(target, extents) >= policy.min_bytes
    if target != nowhere and policy.min_age is not None:
        assert any(now - cut.at >= policy.min_age and is_within(target, place(cut)) for cut in cuts)
    if subscribers or (policy.keep_age is None and policy.keep_bytes is None):
        return
    allowed = [
        cut
        for cut in cuts
        if now - cut.at >= (policy.min_age or 0) and bytes_left(place(cut), extents) >= (policy.min_bytes or 0)
    ]
    for cut in allowed:  # what is too old goes
        if policy.keep_age is not None and now - cut.at >= policy.keep_age:
            assert is_within(place(cut), target)
    left = [bytes_left(place(cut), extents) for cut in allowed]
    if policy.keep_bytes is not None and any(0 < size <= policy.keep_bytes for size in left):
        assert bytes_left(target, extents) <= policy.keep_bytes  # and what is too much
    whole = bytes_left(nowhere, extents)
    is_young = policy.keep_age is None or all(now - cut.at < policy.keep_age for cut in cuts)
    if is_young and (policy.keep_bytes is None or whole <= policy.keep_bytes):
        assert target == nowhere  # and nothing else


def test_seven_days_at_most_so_many_bytes_with_and_without_a_lazy_subscriber():
    """Days of 10, 100 and 1 byte: the size asks for more in the loud days, the time in the quiet ones."""
    world = World(policy=RollingPolicy(max_bytes=50, inline_bytes=0))
    stream = world.stream()
    path = world.create("/stream/a")
    stream.retention = RetentionPolicy(keep_age="7d", keep_bytes=300, min_bytes=5, every=0)
    sizes = []
    for day, size in enumerate([10] * 20 + [100] * 10 + [1] * 20):
        world.clock.now_s = NOON_S + day * DAY_S
        world.append(path, bytes(size))
        stream.retain()
        sizes.append(stream.size())
    assert set(sizes[10:20]) == {70}  # 7 days
    assert set(sizes[23:30]) == {300}  # fewer days, no more bytes
    assert set(sizes[40:]) == {7}
    stream.publish("lazy", stream.cut())
    for day in range(50, 60):
        world.clock.now_s = NOON_S + day * DAY_S
        world.append(path, bytes(100))
        stream.retain()
    assert stream.size() == 1000  # it has not been read
    stream.publish("lazy", stream.cut())
    stream.retain()
    assert 200 <= stream.size() <= 300
    stream.retention = RetentionPolicy(keep_age=0, keep_bytes=300, min_bytes=120, every=0)
    stream.retain()
    assert stream.size() == 200  # the minimum keeps more than the time


def test_the_first_run_of_a_policy_by_both_drops_nothing_and_maxima_alone_are_no_minima():
    world = World(policy=RollingPolicy(max_bytes=50, inline_bytes=0))
    stream = world.stream()
    path = world.create("/stream/a", [bytes(100)])
    for policy in (
        RetentionPolicy(keep_age="7d", keep_bytes=10, every=0),
        RetentionPolicy(max_age="7d", max_bytes=1000, every=0),
        RetentionPolicy(every=0),
    ):
        stream.retention = policy
        stream.retain()
        assert stream.size() == 100
    stream.retention = RetentionPolicy(max_age="7d", max_bytes=70, every=0)
    world.append(path, bytes(60))
    stream.retain()
    assert stream.size() == 60


def test_a_cut_of_an_earlier_incarnation_or_of_none_says_nothing_about_what_is_there():
    policy = RetentionPolicy.by_size(0)

    def chosen(kept, read, *incarnations):
        cuts = [StreamCut({"a": offset}, 5.0, 0, said) for offset, said in [kept]]
        readers = [StreamCut({"a": offset}, 5.0, 0, said) for offset, said in [read]] if read else []
        extents = {"a": Holding(0, 20, incarnations)}
        return choose(policy, Kept.of(cuts, extents, 9.0), readers, extents)["a"]

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
        if not self.cuts or now - self.cuts[-1][0] >= policy.every_s:
            self.cuts.append((now, self.ends()))

        def amount(at, cut):
            return self.left(cut) if policy.min_bytes is not None else now - at

        allowed = [(at, cut) for at, cut in self.cuts if amount(at, cut) >= least_of(policy)]
        if not allowed:
            return
        target = allowed[-1][1]
        if readers:
            target = {name: min([offset, *(read.get(name, 0) for read in readers)]) for name, offset in target.items()}
            if most_of(policy) is not None and self.over(now, target):
                within = [cut for at, cut in allowed if amount(at, cut) <= most_of(policy)]
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
        if self.policy.min_bytes is not None:
            return self.left(merged) > most_of(self.policy)
        old = [cut for at, cut in self.cuts if now - at > most_of(self.policy)]
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
    if policy.min_bytes is not None:
        size = stream.size()
        assert not dropped_to or size >= least_of(policy)
        if most_of(policy) is not None:
            assert size <= most_of(policy)
        elif not read:
            assert size <= least_of(policy) + 8 * 360 + 360
    else:
        young = [record for record in slow.records if now - record[0] < least_of(policy)]
        assert all(starts[name] <= start for _, name, start, _ in young)
        if most_of(policy) is not None or not read:
            limit = most_of(policy) if read else least_of(policy)
            oldest = min((at for at, name, _, end in slow.records if end > starts[name]), default=now)
            assert now - oldest <= limit + policy.every_s + 8 * HALF_HOUR_S


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
