"""Ctrl-C anywhere: the reported outcome is true, no committed data is deleted, and no lock stays held."""

import asyncio
import gc
import time
from functools import partial

import pytest

from rollingfs import AppendInterrupted, RollingPolicy
from rollingfs.backend.local import disk, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.fs.upkeep_verbs import consolidate
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.concat import concat
from rollingfs.segment.verbs.create import overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.rename import rename
from rollingfs.segment.verbs.truncate import truncate
from rollingfs.segment.write import ingest
from tests.support.backends import Counting, Scripted, private_memory, raises
from tests.support.descriptors import opened_below
from tests.support.examples import some
from tests.support.schedules import COMMIT, Caller, at_line, beside, eventually, interrupt
from tests.support.segment_verbs import VERBS, append
from tests.support.site import Site

# an interrupt between a call and its `await` leaves a coroutine that was never awaited
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

HEADER = "$header"
WAIT_S = 20.0
LOCAL = ("backend", "folders", "disk", "record_lock", "removing")
DISK = ("/contextlib.py", *(f"rollingfs/backend/local/{name}.py" for name in LOCAL))


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 16)
    yield Site(Scripted(private_memory()), "", RollingPolicy(max_bytes=32, inline_bytes=8))
    gc.collect()  # coroutines that were never awaited, while their warning is ignored


@pytest.fixture
def plain(site):
    drive(site.backend.inner.write(site.path, [b"plain"]))
    return site


def outcome_of(site, call, path=None):
    """What the caller of an interrupted commit is told."""
    with pytest.raises(AppendInterrupted) as caught:
        site.bridge.run(call, commits=path or site.path)
    return caught.value.outcome


# -- commits that serve others -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["append", "seal", "truncate"])
@pytest.mark.parametrize("nth", [0, 1])
def test_ctrl_c_in_adoption_says_that_nothing_is_committed(plain, verb, nth):
    args = {"append": [b"never"], "seal": [], "truncate": [3]}[verb]
    plain.backend.plan(["create", "replace"][nth], plain.path + HEADER, after=interrupt)
    assert outcome_of(plain, VERBS[verb](plain.client, plain.path, *args)) == "not committed"
    assert plain.content() == b"plain"
    plain.append(b"!")
    assert plain.content() == b"plain!"


def sealed(site, path, data):
    drive(overwrite(site.other(), path, [data]))
    drive(seal(site.other(), path))
    return path


def sealed_source(site):
    site.create()
    site.append(b"target;")
    return sealed(site, site.path + "-source", b"source")


@pytest.mark.parametrize(("nth", "outcome"), [(0, "not committed"), (1, "committed"), (2, "committed")])
def test_ctrl_c_in_concat_says_what_became_of_target(site, nth, outcome):
    source = sealed_source(site)
    # its mark, the target, its tombstone
    site.backend.plan("replace", [source, site.path, source][nth] + HEADER, after=interrupt, skips=nth // 2)
    assert outcome_of(site, concat(site.client, site.path, [source])) == outcome
    assert site.content() == (b"target;source" if outcome == "committed" else b"target;")


@pytest.mark.parametrize(("batch", "outcome"), [(0, "unknown"), (1, "committed")])
def test_ctrl_c_in_a_concat_names_all_its_commits(site, monkeypatch, batch, outcome):
    monkeypatch.setattr("rollingfs.segment.verbs.concat.BATCH_PATH_BYTES_MAX", 1)  # a commit for each source
    sources = [sealed_source(site), sealed(site, site.path + "-second", b"+")]
    site.backend.plan("replace", site.path + HEADER, after=interrupt, skips=batch)
    assert outcome_of(site, concat(site.client, site.path, sources)) == outcome
    assert site.content() == b"target;source" + b"+" * batch


def test_ctrl_c_during_anothers_mark_says_nothing_is_committed(site):
    source = sealed_source(site)
    site.backend.plan("replace", site.path + HEADER, before=interrupt)  # leaves a mark in the source
    assert outcome_of(site, concat(site.client, site.path, [source])) == "unknown"
    later = At.of(site.backend, clock=lambda: time.time() + 60)
    site.backend.plan("replace", site.path + HEADER, after=interrupt)  # the line that aborts the concat
    assert outcome_of(site, delete(later, source), source) == "not committed"
    site.path = source
    assert site.is_there()


REFUSED = {"before": raises(PermissionError(13, "so says the store")), "times": 2}


@pytest.mark.parametrize("failure", [{"before": interrupt}, {"after": interrupt}, REFUSED])
def test_an_owner_that_cannot_release_is_told_committed(site, failure):
    site.create()
    site.client.commits.timeout_s = 0.2
    file = site.open("ab", owner="me")
    file.write(b"there")
    site.backend.plan("replace", HEADER)
    site.backend.plan("replace", HEADER, **failure)
    with pytest.raises(PermissionError if failure is REFUSED else AppendInterrupted) as caught:
        file.close()
    assert getattr(caught.value, "outcome", "committed") == "committed"
    assert failure is not REFUSED or any("are committed" in note for note in caught.value.__notes__)
    assert site.content() == b"there"


def test_ctrl_c_while_opening_for_an_owner_names_none(site):
    site.create()
    site.backend.plan("replace", HEADER, after=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        site.open("ab", owner="me")
    assert not isinstance(caught.value, AppendInterrupted)


def test_ctrl_c_after_truncation_says_that_it_is_committed(site):
    site.create()
    site.append(b"x" * 40)
    site.backend.plan("delete", before=interrupt)
    assert outcome_of(site, truncate(site.client, site.path, 33)) == "committed"


# -- every line ----------------------------------------------------------------------------------------------


def interrupted_at(nth, call, files):
    """The outcome of Ctrl-C at the nth line of a call, and whether there is such a line."""
    is_under_way = [True]
    with at_line(nth, interrupt, *files, when=lambda: is_under_way) as met:
        try:
            call()
        except KeyboardInterrupt as outcome:
            return outcome, met
        finally:
            is_under_way.clear()
    return None, met


def checked(count, outcome, met):
    """How often data is there, which must be as the outcome of its append says."""
    if isinstance(outcome, AppendInterrupted):
        assert count in {"committed": [1], "not committed": [0], "unknown": [0, 1]}[outcome.outcome], met
    return count


@pytest.mark.exhaustive
def test_ctrl_c_in_commit_within_deletes_no_committed_chunk(site):
    """The ``with`` block then discards the file."""
    data = b"more than what stays in memory"

    def write():
        with site.open("ab") as file:
            file.write(data)
            file.commit()

    files = (*COMMIT, "rollingfs/segment/verbs/append.py", "rollingfs/segment/write/ingest.py")
    for nth in some(range(1, 1000)):
        site.path = f"/{nth}/clicks"
        site.create()
        outcome, met = interrupted_at(nth, write, files)
        count = checked(site.content().count(data), outcome, met)
        assert isinstance(outcome, AppendInterrupted) or count == 1 or outcome is not None, met
        if not met:
            break
    assert nth > 100


def test_ctrl_c_in_a_write_leaves_no_later_gap(site, monkeypatch):
    monkeypatch.setattr("rollingfs.fs.write_buffer.PIECE_BYTES", 8)

    files = []  # kept: garbage collection must not close them under the trace
    for nth in range(1, 1000):
        site.path = f"/{nth}/clicks"
        file = site.open("ab")
        files.append(file)
        file.write(b"first;")
        outcome, met = interrupted_at(nth, partial(file.write, b"second;"), ("rollingfs/fs/write_file.py", *COMMIT))
        if file._buffer.is_broken:
            with pytest.raises(OSError, match="an earlier write"):
                file.write(b"third;")
            assert outcome is not None
            file.discard()
        else:
            file.write(b"third;")
            file.close()
            assert site.content() in (b"first;second;third;", b"first;third;"), met
        if not met:
            break
    assert nth > 10


@pytest.mark.slow
@pytest.mark.parametrize("files", [DISK, COMMIT], ids=["disk", "core"])
def test_ctrl_c_in_an_append_keeps_no_lock(tmp_path, files):
    site = Site(LocalBackend(sync=False), str(tmp_path), RollingPolicy(max_bytes=32, inline_bytes=8))
    other = site.other()
    for nth in range(1, 2000):
        site.path = f"{tmp_path}/{nth}/clicks"
        site.create()
        site.append(b"1")
        outcome, met = interrupted_at(nth, partial(site.append, b"2"), files)
        for data, client in ((b"3", site.client), (b"4", other)):
            caller = Caller(partial(drive, append(client, site.path, data)))
            caller.start()
            caller.join(WAIT_S)
            assert not caller.is_alive(), ("a lock is kept", met)
            assert not isinstance(caller.outcome, BaseException), (met, caller.outcome)
        checked(site.content().count(b"2"), outcome, met)
        if not met:
            break
    assert nth > 50


def test_ctrl_c_while_opening_leaves_no_file_open(tmp_path, monkeypatch):
    site = Site(LocalBackend(sync=False), f"{tmp_path}/clicks", RollingPolicy(max_bytes=32, inline_bytes=8))
    site.create()
    is_open = {"after": lambda *_: interrupt()}
    in_open_folder = {"before": lambda *_, dir_fd=None, **__: dir_fd is None or interrupt()}
    second = partial(site.append, b"second")
    for call, owner, name, when in (
        (site.content, disk.opened, "_open", is_open),
        (second, disk.opened, "_open", is_open),
        (second, system, "open_file", in_open_folder),
    ):
        with monkeypatch.context() as patch:
            beside(patch, owner, name, **when)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert opened_below(tmp_path) == []


# -- cancelled and forgotten ---------------------------------------------------------------------------------


def cancelled(site, call, plan_pause):
    """Cancel a call once the backend pauses where `plan_pause` says; then let go on what goes on."""
    paused, may_go_on = asyncio.Event(), asyncio.Event()

    async def pause():
        paused.set()
        await may_go_on.wait()

    async def course():
        task = asyncio.ensure_future(call)
        await asyncio.wait_for(paused.wait(), WAIT_S)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        may_go_on.set()
        await asyncio.wait(others, timeout=WAIT_S)

    plan_pause(pause)
    site.run(course())
    site.backend.plans.clear()


def at_the_look_after_the_copy(site, on_written, pause):
    """Pause once the call has written its copy and its commit looks at the header."""

    def written(*_):
        site.backend.plan(("read", "read_if_changed"), before=pause, times=None)
        on_written()

    site.backend.plan(("copy", "upload.finish"), after=written)


def test_cancelled_adoption_keeps_its_commits_copy():
    site = Site(Scripted(private_memory(), suspends=True), "")
    drive(site.backend.inner.write(site.path, [b"plain"]))
    cancelled(site, seal(site.client, site.path), partial(at_the_look_after_the_copy, site, lambda: None))
    assert site.content() == b"plain"


def test_cancelled_consolidation_keeps_its_commits_chunk():
    site = Site(Scripted(private_memory(), suspends=True), "", RollingPolicy(max_bytes=100, inline_bytes=0))
    site.create()
    for _ in range(10):
        site.append(b"0123456789")
    # the cache forgets, as a full one does, so the commit looks first
    pause_at_look = partial(at_the_look_after_the_copy, site, site.client.headers.forget)
    cancelled(site, consolidate(site.segment()._binding, 0), pause_at_look)
    assert site.content() == b"0123456789" * 10


@pytest.mark.parametrize("verb", ["concat", "rename"])
@pytest.mark.parametrize("request_of", ["mark", "target", "tombstone"])
def test_cancelled_concat_or_rename_leaves_no_mark(verb, request_of):
    site = Site(Scripted(private_memory(), suspends=True), "")
    source, target = sealed_source(site), site.path
    call = partial(concat, site.client, target, [source])
    if verb == "rename":
        call = partial(rename, site.client, source, target)
    site.run(site.client.headers.load(target))
    site.run(site.client.headers.load(source))

    def plan_pause(pause):
        if request_of == "tombstone":
            bury = partial(site.backend.plan, "replace", source + HEADER, before=pause)
            site.backend.plan("replace", target + HEADER, after=bury)
        else:
            site.backend.plan("replace", (source if request_of == "mark" else target) + HEADER, before=pause)

    cancelled(site, call(), plan_pause)
    assert site.content() == {"concat": b"target;source", "rename": b"source"}[verb]
    site.path = source
    assert not site.is_there()


def test_file_forgotten_on_the_loops_thread_leaves_no_upload(monkeypatch):
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 16)
    monkeypatch.setattr("rollingfs.fs.write_buffer.PIECE_BYTES", 16)
    site = Site(Counting(private_memory(), suspends=True), "", RollingPolicy(max_bytes=32))
    site.create()
    files = [site.open("ab")]
    files[0].write(b"x" * 100)
    eventually(lambda: len(site.chunk_files()) == 3)

    def forget() -> None:
        site.backend.loop.call_soon_threadsafe(files.clear)
        eventually(lambda: not site.chunk_files())

    with pytest.warns(ResourceWarning, match="100 bytes"):
        forget()
