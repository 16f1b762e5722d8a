"""Concat and rename (`concat`, `moves`): bytes in order, none moved, nothing left of the sources, whatever happens."""

import asyncio
import dataclasses
import time
import uuid

import pytest

from rollingfs import CommitTimeoutError, RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.client import COMMIT_TIMEOUT_S, Client
from rollingfs.commit import fairness
from rollingfs.commit.recovery import MARK_AGE_S_MAX
from rollingfs.format.codec import parse_header
from rollingfs.format.header import MARKS_MAX, Phase
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.write.moves import Source
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.life import Turned


@pytest.fixture(params=["memory", "local"])
def client(request, tmp_path):
    inner = MemoryBackend() if request.param == "memory" else LocalBackend(sync=False)
    client = Client(Counting(inner), RollingPolicy(max_bytes=100))
    client.root = f"/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path)
    return client


def path(client, name):
    return f"{client.root}/{name}"


def make(client, name, data=b"", *, piece=None, sealed=True, policy=None):
    """A segment with `data`, appended in pieces."""
    where = path(client, name)
    drive(client.segments.create(where, policy))
    for start in range(0, len(data), piece or len(data) or 1):
        drive(client.segments.append(where, [data[start : start + (piece or len(data))]]))
    if sealed:
        drive(client.segments.seal(where))
    return where


def header(client, where):
    return drive(client.lookup.view(where, fresh=True)).header


def content(client, where):
    view = drive(client.lookup.view(where, fresh=True))
    return drive(client.fetcher.read(view, view.start, view.length))


def gone(client, where):
    with pytest.raises(FileNotFoundError):
        drive(client.lookup.view(where, fresh=True))
    return True


def test_the_marks_and_the_target_of_a_concat_have_one_deadline(monkeypatch):
    backend = Scripted(private_memory())
    client = Client(backend)
    client.root = "/folder"
    target, source = make(client, "target", b"t", sealed=False), make(client, "source", b"s")
    clock = Turned(time.monotonic())
    monkeypatch.setattr(fairness.time, "monotonic", clock)

    def pass_time():
        clock.now_s += COMMIT_TIMEOUT_S

    def lose_race():
        drive(Client(backend.inner).segments.append(target, b"!"))

    backend.plan("replace", "source$header", after=pass_time)
    backend.plan("replace", "target$header", before=lose_race)
    with pytest.raises(CommitTimeoutError):
        drive(client.concats.concat(target, [source]))
    assert content(client, target) == b"t!"
    assert header(client, source).phase is Phase.SEALED, "the mark is taken back, whatever the time"


def rival(store):
    """A store on which every request takes a turn of the loop, and who has asked for the next commit of the target."""
    backend, asked = Scripted(store, suspends=True), []

    async def replace(path, data, token):
        asked.append(parse_header(bytes(data), path).turn)
        return await store.replace(path, data, token)

    backend.plan("replace", "target$header", instead=replace, times=None)
    return backend, asked


def test_a_concat_of_many_sources_is_done_beside_one_that_appends_all_the_time():
    store = private_memory()
    maker = Client(store)
    maker.root = "/folder"
    target = make(maker, "target", sealed=False)
    sources = [make(maker, f"s{n:02d}", b"%02d;" % n) for n in range(60)]
    (first, asked_first), (second, asked_second) = rival(store), rival(store)
    mover, appender = (Client(backend, commit_timeout_s=5) for backend in (first, second))
    appended = 0

    async def append_until(moved):
        nonlocal appended
        while not moved.done():
            await appender.segments.append(target, b".")
            appended += 1

    async def race():
        moved = asyncio.ensure_future(mover.concats.concat(target, sources))
        await append_until(moved)
        return await moved

    offset = Bridge(first).run(race())
    data = content(maker, target)
    joined = b"".join(b"%02d;" % n for n in range(60))
    assert data == b"." * offset + joined + b"." * (appended - offset)
    assert asked_first.count(mover.commits.slots.writer.id) >= 1, "it has lost, and asked"
    assert not any(asked_second), "others do not carry the wish on"
    assert header(maker, target).turn is None
    assert all(gone(maker, source) for source in sources)


def test_a_writer_that_has_asked_for_the_next_commit_and_died_is_not_waited_for_long(client, monkeypatch):
    target = make(client, "target", b"t", sealed=False)

    async def ask(base, attempt):
        return dataclasses.replace(base.header, turn="a dead writer")

    drive(Client(client.backend).commits.commit(target, ask))
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        clock.now_s += seconds

    clock = Turned()
    monkeypatch.setattr(client.runtime, "sleep", sleep)
    monkeypatch.setattr(fairness.time, "monotonic", clock)
    client.headers.forget()
    drive(client.segments.append(target, b"!"))
    assert sum(slept) == pytest.approx(fairness.CLAIMED_S_MAX, abs=0.1)
    assert header(client, target).turn is None
    slept.clear()
    drive(client.segments.append(target, b"!"))
    assert slept == []


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("name_bytes", [30, 900, 2000])
def test_any_number_of_dead_movers_with_names_of_any_length_leaves_a_source_free(is_there, name_bytes):
    clock = Turned()
    store = private_memory()
    client = Client(store, clock=clock)
    client.root = "/folder"
    source, target = make(client, "s" * name_bytes, b"data"), path(client, "target")
    if is_there:
        make(client, "target", b"t", sealed=False)
    for _ in range(MARKS_MAX + 10):
        dying = Client(store, clock=clock)
        sources, deadline_s = [Source(source, str(uuid.uuid4()), target)], dying.commits.deadline_s()
        drive(dying.concats.moves.mark_all(sources, str(uuid.uuid4()), deadline_s, sealed=True))
        clock.now_s += MARK_AGE_S_MAX + 1
    drive(client.concats.rename(source, target))
    assert content(client, target) == b"data"
