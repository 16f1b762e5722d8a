"""Stream cuts: a value with a text, and where they lie."""

import json
import pickle

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs.format.header import OFFSET_MAX
from rollingfs.policy import RollingPolicy
from rollingfs.stream.cut import StreamCut
from tests.support.backends import Scripted, private_memory
from tests.support.examples import examples
from tests.support.life import CHUNKS, NOON_S, World

paths = st.text(min_size=1, max_size=3)
offsets = st.dictionaries(paths, st.integers(0, OFFSET_MAX), max_size=5)
incarnations = st.none() | st.dictionaries(paths, st.text(min_size=1), max_size=5)
cuts = st.builds(StreamCut, offsets, st.floats(0, 4e9), st.integers(0, OFFSET_MAX), incarnations)


@settings(max_examples=examples(50), deadline=None)
@given(cuts)
def test_a_cut_is_the_same_after_text_and_pickle(cut):
    assert StreamCut.parse(str(cut)) == cut
    assert pickle.loads(pickle.dumps(cut)) == cut
    assert "\n" not in str(cut)
    assert hash(StreamCut.parse(str(cut))) == hash(cut)


def test_a_cut_is_a_mapping_that_cannot_be_changed():
    cut = StreamCut({"/s/b": 2, "/s/a": 1}, 5.0, 3)
    assert dict(cut) == {"/s/a": 1, "/s/b": 2}
    assert cut == {"/s/a": 1, "/s/b": 2}
    assert cut != StreamCut(cut, 6.0, 3)
    assert cut != StreamCut(cut, 5.0, 3, {"/s/a": "one"})
    with pytest.raises(TypeError):
        cut.incarnations["/s/a"] = "another"
    with pytest.raises(TypeError):
        cut["/s/a"] = 7
    with pytest.raises(AttributeError):
        cut.at = 6.0


WHOLE = {"rollingfs-cut": 1, "at": 1, "size": 0, "segments": {}, "incarnations": {}}
SPOILED = [
    *({"segments": {"a": -1}}, {"segments": {"a": 1.5}}, {"segments": {"a": 1}, "incarnations": {"a": 7}}),
    *({"incarnations": []}, {"at": float("nan")}, {"size": True}, {"more": 1}, {"rollingfs-cut": 2}),
]
LESS = [{}, {name: value for name, value in WHOLE.items() if name != "incarnations"}]


@pytest.mark.parametrize("text", ["", "[]", *map(json.dumps, LESS), *(json.dumps(WHOLE | more) for more in SPOILED)])
def test_what_is_no_cut_is_refused(text):
    with pytest.raises(ValueError, match=r"stream cut|offset|size|incarnation"):
        StreamCut.parse(text)


def test_partial_or_renamed_cut_keeps_its_incarnations():
    cut = StreamCut({"a": 1, "b": 2}, 5.0, 3, {"a": "one", "b": "two", "c": "three"})
    assert dict(cut.incarnations) == {"a": "one", "b": "two"}
    assert cut.only(["b", "c"]) == StreamCut({"b": 2}, 5.0, 3, {"b": "two"})
    assert cut.renamed(str.upper) == StreamCut({"A": 1, "B": 2}, 5.0, 3, {"A": "one", "B": "two"})


@pytest.mark.parametrize("policy", [CHUNKS, RollingPolicy(max_bytes=1, inline_bytes=0), RollingPolicy(64)])
def test_a_cut_at_a_time_keeps_everything_written_later(policy):
    world = World(policy=policy)
    path = world.create("/stream/a")
    lengths = {}
    for minute in range(12):
        world.clock.now_s = NOON_S + 60 * minute
        world.append(path, b"0123456789" * 2)
        lengths[world.clock.now_s] = world.header(path).length
    for at, length in lengths.items():
        offset = world.stream().cut(at=at)[path]
        assert offset <= length
        if policy.inline_bytes == 0 or at == max(lengths):
            assert offset == length
    assert world.stream().cut(at=NOON_S - 1)[path] == 0


def test_cut_between_records_lies_behind_last_whole_one():
    world = World(policy=CHUNKS)
    path = world.create("/stream/a", [b"one\ntwo\nthr", b"ee\nfou"])
    assert world.stream().cut(align=b"\n")[path] == len(b"one\ntwo\nthree\n")
    assert world.stream().cut(align=b"o\nth")[path] == len(b"one\ntwo\nth")
    assert world.stream().cut(align=b"\r\n")[path] == 0
    world.append(path, b"x" * 200_000)
    assert world.stream().cut(align=b"\n")[path] == len(b"one\ntwo\nthree\n")
    world.append(path, b"\n")
    assert world.stream().cut(align=b"\n")[path] == world.header(path).length
    world.truncate(path, 20)
    assert world.stream().cut(at=NOON_S - 1, align=b"\n")[path] == 20


@pytest.mark.parametrize(("start", "expected"), [(5, 8), (10, 10), (11, 11)])
def test_cut_between_records_survives_anothers_trim(start, expected):
    store = Scripted(private_memory())
    world, other = World(store, CHUNKS), World(store, CHUNKS)
    path = world.create("/stream/a", [b"one\n", b"two\n", b"end"])
    store.plan((), lambda file: "a$chunks/" in file, before=lambda: other.truncate(path, start))
    assert world.stream().cut(align=b"\n")[path] == expected
    assert not store.plans
