"""Concat and rename (`concat`, `moves`): bytes in order, none moved, nothing left of the sources, whatever happens."""

import asyncio
import dataclasses
import os
import pickle
import time
import uuid

import pytest

from rollingfs import BadOffsetError, CommitTimeoutError, SegmentNotSealedError
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.cli.output import in_one_line
from rollingfs.format.codec import parse_header
from rollingfs.format.header import MARKS_MAX, Phase
from rollingfs.format.transitions import Guard
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import COMMIT_TIMEOUT_S, At
from rollingfs.segment.commit import turns
from rollingfs.segment.commit.recovery import MARK_AGE_S_MAX
from rollingfs.segment.files.moves import mark_all, sources_of
from rollingfs.segment.verbs import concat as concat_module
from rollingfs.segment.verbs.concat import concat
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.life import Turned, World
from tests.support.segment_verbs import append


def test_marks_and_target_of_concat_have_one_deadline(monkeypatch):
    backend = Scripted(private_memory())
    world = World(backend)
    target, source = world.create("/target", [b"t"]), world.create("/source", [b"s"], sealed=True)
    clock = Turned(time.monotonic())
    monkeypatch.setattr(turns.time, "monotonic", clock)

    def pass_time():
        clock.now_s += COMMIT_TIMEOUT_S

    backend.plan("replace", "source$header", after=pass_time)
    backend.plan("replace", "target$header", before=lambda: World(backend.inner).append(target, b"!"))
    with pytest.raises(CommitTimeoutError):
        drive(concat(world.client, target, [source]))
    assert world.content(target) == b"t!"
    assert world.header(source).phase is Phase.SEALED, "the mark is taken back, whatever the time"


@pytest.mark.parametrize("folder", ["", "/elsewhere"])
def test_a_source_without_files_leaves_no_tombstone(tmp_path, folder):
    backend = Counting(LocalBackend())
    world = World(backend)
    target, source = world.create(f"{tmp_path}/target", [b"t"]), f"{tmp_path}{folder}/source"
    world.create(source, [b"s"], sealed=True)
    backend.clear()
    drive(concat(world.client, target, [source]))
    assert backend.verbs.count("replace") == 2, "the mark, the target"
    assert backend.verbs[-1] == "remove_whole" if not folder else "delete" in backend.verbs
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith("source")]
    assert world.content(target) == b"ts"


def test_a_source_with_files_gets_a_tombstone(tmp_path):
    world = World(LocalBackend())
    target, source = world.create(f"{tmp_path}/target"), world.create(f"{tmp_path}/source", [b"s"], sealed=True)
    (tmp_path / "source$chunks/pin-of-another").write_bytes(b"")
    drive(concat(world.client, target, [source]))
    assert world.header(source).phase is Phase.DELETED
    assert world.content(target) == b"s"


def test_later_commits_error_counts_the_joined_sources(monkeypatch):
    monkeypatch.setattr(concat_module, "MARKS_MAX", 2)
    world = World(private_memory())
    target, opened = world.create("/target"), world.create("/open", [b"open"])
    sources = [world.create(f"/s{n}", [b"%d" % n], sealed=True) for n in range(2)]
    with pytest.raises(SegmentNotSealedError) as caught:
        drive(concat(world.client, target, [*sources, opened]))
    said = in_one_line(caught.value)
    assert said.startswith("/target: the first 2 of 3 sources are joined, the others not: /open is not sealed")
    assert pickle.loads(pickle.dumps(caught.value)).outcome == "partly"
    assert world.content(target) == b"01"


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("verb", ["read_if_changed", "replace", "create"])
def test_target_that_another_makes_meanwhile_keeps_what_it_has(verb, is_refused):
    backend = Scripted(private_memory())
    world, other = World(backend), World(backend.inner)
    source, opened = other.create("/s", [b"joined"], sealed=True), other.create("/open", [b"o"])
    backend.plan(verb, before=lambda: other.create("/target", [b"acknowledged;"]))
    call = concat(world.client, "/target", [source, *[opened] * is_refused], create=True)
    if is_refused and verb == "create":  # no commit of the target is tried
        backend.plans.clear()
        other.create("/target", [b"acknowledged;"])
    if is_refused:
        with pytest.raises(SegmentNotSealedError):
            drive(call)
    else:
        assert drive(call) == len(b"acknowledged;")
    assert other.content("/target") == b"acknowledged;" + b"joined" * (not is_refused)
    assert is_refused == (other.header(source).phase is Phase.SEALED)


def test_a_refused_concat_leaves_no_target():
    world = World(private_memory())
    source, opened = world.create("/s", [b"s"], sealed=True), world.create("/open", [b"o"])
    for given, refusal in (([source, opened], SegmentNotSealedError), ([source, "/missing"], FileNotFoundError)):
        with pytest.raises(refusal):
            drive(concat(world.client, "/target", given, create=True))
        assert drive(world.client.headers.load("/target")).header is None
    for guard, refusal in ((Guard(expected_offset=7), BadOffsetError), (Guard(epoch=1), FileNotFoundError)):
        with pytest.raises(refusal):
            drive(concat(world.client, "/target", [source], create=True, guard=guard))
    assert drive(concat(world.client, "/target", [source], create=True)) == 0
    assert world.content("/target") == b"s"


def test_target_deleted_after_marks_gets_other_marks():
    """Its incarnation is the one that the marks name, and none that was there before."""
    backend = Scripted(private_memory())
    world, other = World(backend), World(backend.inner)
    source, target = other.create("/s", [b"s"], sealed=True), other.create("/target", [b"t"])
    old, named = other.header(target).segment, []

    def note():
        named.append(other.header(source).merge.target_segment)

    backend.plan("replace", "target$header", before=lambda: (note(), other.delete(target)))
    backend.plan(("replace", "create"), "target$header", before=note, times=None)
    drive(concat(world.client, target, [source], create=True))
    assert world.content(target) == b"s"
    assert (named[0], named[-1]) == (old, other.header(target).segment)
    assert named[-1] != old


def test_later_sources_join_segment_that_first_have_joined(monkeypatch):
    monkeypatch.setattr(concat_module, "MARKS_MAX", 1)
    backend = Scripted(private_memory())
    world, other = World(backend), World(backend.inner)
    sources = [other.create(f"/s{n}", [b"%d" % n], sealed=True) for n in range(2)]

    def replaced():
        other.rename("/target", "/elsewhere")
        other.create("/target", [b"another's"])

    backend.plan("replace", "/s1$header", before=replaced)
    with pytest.raises(FileNotFoundError) as caught:
        drive(concat(world.client, "/target", sources, create=True))
    assert "first 1 of 2 sources are joined" in in_one_line(caught.value)
    found = [other.content(path) for path in ("/target", "/elsewhere", sources[1])]
    assert found == [b"another's", b"0", b"1"]


def rival(store):
    """A store on which every request takes a turn of the loop, and who has asked for the next commit of the target."""
    backend, asked = Scripted(store, suspends=True), []

    async def replace(path, data, token):
        asked.append(parse_header(bytes(data), path).turn)
        return await store.replace(path, data, token)

    backend.plan("replace", "target$header", instead=replace, times=None)
    return backend, asked


def test_large_concat_completes_beside_a_constant_appender():
    store = private_memory()
    maker = World(store)
    target = maker.create("/target")
    sources = [maker.create(f"/s{n:02d}", [b"%02d;" % n], sealed=True) for n in range(60)]
    (first, asked_first), (second, asked_second) = rival(store), rival(store)
    mover, appender = (At.of(backend, commit_timeout_s=5) for backend in (first, second))
    appended = 0

    async def append_until(moved):
        nonlocal appended
        while not moved.done():
            await append(appender, target, b".")
            appended += 1

    async def race():
        moved = asyncio.ensure_future(concat(mover, target, sources))
        await append_until(moved)
        return await moved

    offset = Bridge(first).run(race())
    data = maker.content(target)
    joined = b"".join(b"%02d;" % n for n in range(60))
    assert data == b"." * offset + joined + b"." * (appended - offset)
    assert asked_first.count(mover.slots.writer) >= 1, "it has lost, and asked"
    assert not any(asked_second), "others do not carry the wish on"
    assert maker.header(target).turn is None
    assert not any(drive(maker.client.headers.load(source)).live for source in sources)


@pytest.mark.parametrize("inner", [private_memory, lambda: LocalBackend(sync=False)], ids=["memory", "local"])
def test_dead_claimant_of_the_next_commit_delays_little(inner, tmp_path, monkeypatch):
    world = World(Counting(inner()), clock=time.time)
    target = world.create(f"{tmp_path}/target", [b"t"])

    async def ask(base, attempt):
        return dataclasses.replace(base.header, turn="a dead writer")

    drive(World(world.backend, clock=time.time).client.commits.commit(target, ask))
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        clock.now_s += seconds

    clock = Turned()
    monkeypatch.setattr(world.client.runtime, "sleep", sleep)
    monkeypatch.setattr(turns.time, "monotonic", clock)
    world.append(target, b"!")
    assert sum(slept) == pytest.approx(turns.CLAIMED_S_MAX, abs=0.1)
    assert world.header(target).turn is None
    slept.clear()
    world.append(target, b"!")
    assert slept == []


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("name_bytes", [30, 900, 2000])
def test_dead_movers_of_any_names_leave_a_source_free(is_there, name_bytes):
    clock = Turned()
    store = private_memory()
    world, target = World(store, clock=clock), "/target"
    source = world.create("/" + "s" * name_bytes, [b"data"], sealed=True)
    if is_there:
        world.create(target, [b"t"])
    for _ in range(MARKS_MAX + 10):
        dying = At.of(store, clock=clock)
        sources, deadline_s = sources_of([source], target, {}), dying.commits.deadline_s()
        drive(mark_all(dying, sources, str(uuid.uuid4()), deadline_s, sealed=True))
        clock.now_s += MARK_AGE_S_MAX + 1
    world.rename(source, target)
    assert world.content(target) == b"data"
