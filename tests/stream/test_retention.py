"""Retention: policies, and the choice of a cut, whatever the cuts are.

Rules of the protocol: P13.10 to P13.15.
"""

import itertools

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs.policy import RollingPolicy
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import Holding, Kept, RetentionPolicy, bytes_left, choose, ended, prune
from tests.support.examples import examples
from tests.support.life import CHUNKS, NOON_S, World

DAY_S = 86_400
HALF_HOUR_S = 1800
FIRST = {"a": "1", "b": "1"}
"""Incarnations."""


# -- policies ------------------------------------------------------------------------------------------------


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


def place_in(extents):
    """Where the extents begin, and where a cut lies in them."""
    nowhere = {name: extent.start for name, extent in extents.items()}
    return nowhere, lambda cut: {name: max(cut[name], start) for name, start in nowhere.items()}


@settings(max_examples=examples(150), deadline=None)
@given(situations())
def test_choice_respects_minimum_unread_bytes_and_maximum(situation):
    policy, cuts, subscribers, extents, now = situation
    target = choose(policy, Kept.of(cuts, extents, now), subscribers, extents)
    nowhere, place = place_in(extents)
    by_size = policy.min_bytes is not None
    least, most = (policy.min_bytes, policy.max_bytes) if by_size else (policy.min_age, policy.max_age)

    def left(kept):
        return bytes_left(place(kept), extents) if by_size else now - kept.at

    allowed = [kept for kept in cuts if left(kept) >= least]
    newest = place(allowed[-1]) if allowed else nowhere
    assert all(nowhere[name] <= target[name] <= newest[name] for name in extents)
    if not subscribers:
        assert target == newest
        return
    unread = {name: min(place(cut)[name] for cut in subscribers) for name in extents}
    if any(target[name] > unread[name] for name in extents):  # unread bytes go
        assert most is not None
        kept_anyway = {name: min(unread[name], newest[name]) for name in extents}
        if by_size:
            assert bytes_left(kept_anyway, extents) > most
        else:
            old = [kept for kept in cuts if now - kept.at > most]
            assert any(place(cut)[name] > kept_anyway[name] for cut in old for name in extents)
    elif most is not None and by_size and bytes_left(target, extents) > most:
        # a step further would leave less than the least, or nothing
        assert target == newest or not any(0 < left(kept) <= most for kept in allowed)


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
def test_larger_demand_and_larger_minimum_count(situation):
    policy, cuts, subscribers, extents, now = situation
    target = choose(policy, Kept.of(cuts, extents, now), subscribers, extents)
    nowhere, place = place_in(extents)

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
    old = [cut for cut in cuts if now - cut.at >= (policy.min_age or 0)]
    allowed = [cut for cut in old if bytes_left(place(cut), extents) >= (policy.min_bytes or 0)]
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


def test_seven_days_are_limited_by_bytes_for_all_subscribers():
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


def test_unread_bytes_stay_up_to_the_maximum():
    extents, read = {"a": Holding(0, 100, ("1",))}, [StreamCut({"a": 40}, 0.0, 0, FIRST)]
    kept = Kept.of([StreamCut({"a": at}, float(at), 0, FIRST) for at in (10, 50, 90)], extents, 100.0)
    for least, most, expected in ((0, 60, 40), (0, 59, 50), (0, 49, 90), (45, 49, 50)):
        assert choose(RetentionPolicy.by_size(least, most), kept, read, extents) == {"a": expected}


def test_empty_sealed_segment_goes_by_a_keeping_cut_only():
    extents = {"a": Holding(10, 10, ("1",), sealed=True), "b": Holding(0, 50, ("1",))}
    for offset, expected in ((20, {"a"}), (21, set())):
        kept = Kept.of([StreamCut({"a": 10, "b": offset}, 5.0, 0, FIRST)], extents, 9.0)
        assert ended(RetentionPolicy.by_size(30), kept, extents) == expected


def test_empty_cuts_are_forgotten_and_many_are_thinned():
    def kept(offset):
        return StreamCut({"a": offset}, float(offset), 0, {"a": "1"})

    extents = {"a": Holding(10, 10**6, ("1",))}
    assert [found["a"] for found in prune(map(kept, (5, 10, 11, 12)), extents)] == [11, 12]
    assert [found["a"] for found in prune(map(kept, (5, 9)), extents)] == [9]
    many = [found["a"] for found in prune(map(kept, range(11, 5011)), extents)]
    assert len(many) <= 2048
    assert many[-900:] == list(range(4111, 5011))
    assert max(after - before for before, after in itertools.pairwise(many)) <= 5000 / 256


def test_cut_keeps_only_offsets_after_some_bytes():
    extents = {"a": Holding(10, 100, ("1",)), "b": Holding(0, 100, ("2",)), "c": Holding(0, 100, ("3",))}
    said = {"a": "1", "b": "2", "c": "replaced", "gone": "4"}
    older = StreamCut({"a": 10, "b": 5, "c": 7, "gone": 9}, 1.0, 7, said)
    newest = StreamCut({"a": 10, "b": 6, "c": 7, "gone": 9}, 2.0, 7, said)
    assert prune([newest, older], extents) == (StreamCut({"b": 5}, 1.0, 7, {"b": "2"}), newest)


# -- runs -----------------------------------------------------------------------------------------------------------


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
