"""What a commit returns when its answer is lost and others go on from what it made; commits beside many writers."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs import AppendOutcomeUnknown, CommitTimeoutError, FencedError, RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.record_lock import record_lock
from rollingfs.client import Client
from rollingfs.commit import loop as commit_module
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import COMMITS_MAX
from rollingfs.format.transitions import Guard
from rollingfs.fs.stream_handle import Stream
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import SyncRuntime, drive
from rollingfs.stream.cut import StreamCut
from tests.support.backends import Scripted, fail, private_memory
from tests.support.schedules import at_line
from tests.support.site import Site


@pytest.fixture
def site() -> Site:
    site = Site(Scripted(private_memory()), "")
    site.create()
    return site


def lose_answer(site: Site, then: Callable[[Client], Any], verb: str = "replace") -> None:
    """Let the next header be written and its answer be lost; before the writer looks, another client does `then`."""

    def others_go_on() -> None:
        drive(then(site.other()))
        fail()

    assert isinstance(site.backend, Scripted)
    site.backend.plan(verb, "clicks$header", after=others_go_on)


# -- results come from the header that the commit wrote --------------------------------------------------------


def test_two_that_acquire_never_hold_one_epoch(site: Site) -> None:
    lose_answer(site, lambda other: other.segments.acquire(site.path, "another"))
    mine = site.run(site.client.segments.acquire(site.path, "me"))
    assert (mine.owner, mine.epoch) == ("me", 1)
    with pytest.raises(FencedError):
        site.append(b"mine", guard=Guard(mine.segment, mine.epoch))
    assert site.content() == b""


def test_a_handle_that_has_acquired_is_fenced_by_whoever_acquired_before_it_looked(site: Site) -> None:
    lose_answer(site, lambda other: other.segments.acquire(site.path, "another"))
    held = site.segment().acquire("me")
    with pytest.raises(FencedError):
        held.append(b"mine")


def test_a_file_goes_on_into_its_own_incarnation_alone(site: Site) -> None:
    for mode in ("wb", "ab"):
        file = site.open(mode)
        file.write(b"mine")
        lose_answer(site, lambda other: other.segments.overwrite(site.path, b"another's"))
        file.commit()
        file.write(b" goes on")
        with pytest.raises(FileNotFoundError):
            file.commit()
        file.discard()
        assert site.content() == b"another's"


def test_a_file_that_creates_goes_on_into_its_own_incarnation_alone() -> None:
    site = Site(Scripted(private_memory()), "")
    file = site.open("xb")
    file.write(b"mine")
    lose_answer(site, lambda other: other.segments.overwrite(site.path, b"another's"), "create")
    file.commit()
    file.write(b" goes on")
    with pytest.raises(FileNotFoundError):
        file.commit()
    file.discard()
    assert site.content() == b"another's"


def test_an_append_says_what_its_own_commit_made(site: Site) -> None:
    site.append(b"0123")
    lose_answer(site, lambda other: other.segments.append(site.path, b"more"))
    written = site.run(site.client.segments.extend(site.path, b"45"))
    assert (written.offset, written.header.length) == (4, 6)
    assert site.content() == b"012345more"


def test_a_seal_returns_the_length_that_it_sealed(site: Site) -> None:
    site.append(b"0123")
    lose_answer(site, lambda other: other.segments.overwrite(site.path, b"longer than before"))
    assert site.run(site.client.segments.seal(site.path)) == 4


def test_a_delete_that_took_place_leaves_what_is_created_after_it_alone(site: Site) -> None:
    site.append(b"old")

    async def create_again(other: Client) -> None:
        await other.segments.create(site.path)
        await other.segments.append(site.path, b"new")

    lose_answer(site, create_again)
    site.run(site.client.segments.delete(site.path))
    assert site.content() == b"new"


def test_deleting_a_plain_file_leaves_what_is_created_after_it_alone() -> None:
    site = Site(Scripted(private_memory()), "")
    site.run(site.backend.write(site.path, [b"plain"]))
    site.run(site.client.segments.seal(site.path))
    site.run(site.client.segments.delete(site.path))  # leaves a tombstone
    site.run(site.backend.write(site.path, [b"plain again"]))
    lose_answer(site, lambda other: other.segments.create(site.path))
    site.run(site.client.segments.delete(site.path))
    assert site.is_there()


def test_an_adoption_by_a_lost_claim_begins_again() -> None:
    site = Site(Scripted(private_memory()), "")
    site.run(site.backend.write(site.path, [b"plain"]))

    async def adopt_and_delete(other: Client) -> None:
        await other.segments.append(site.path, b" of another")
        await other.segments.delete(site.path)

    lose_answer(site, adopt_and_delete, "create")
    with pytest.raises(FileNotFoundError):
        site.append(b"mine")
    assert not site.is_there()


@pytest.mark.parametrize("verb", ["append", "seal", "truncate"])
def test_a_handle_on_a_plain_file_is_bound_to_what_its_own_verb_has_adopted(verb: str) -> None:
    site = Site(Scripted(private_memory()), "")
    site.run(site.backend.write(site.path, [b"plain"]))
    handle = site.segment()
    site.run(site.other().segments.adopt(site.path))
    lose_answer(site, lambda other: other.segments.overwrite(site.path, b"another's"))
    getattr(handle, verb)(*{"append": [b"!"], "truncate": [2]}.get(verb, []))
    with pytest.raises(FileNotFoundError):
        handle.append(b"more")
    assert site.content() == b"another's"


def test_a_publication_that_was_acknowledged_is_not_overwritten() -> None:
    backend = Scripted(private_memory())
    client, other = Client(backend), Client(backend.inner)
    drive(client.segments.create("/stream/a"))
    cut = StreamCut({"/stream/a": 0}, 1.0, 0)

    def another_publishes() -> None:
        Stream(other, Listings(other), Bridge(backend.inner), "/stream").publish("another", cut)
        fail()

    backend.plan("create", "$stream$header", after=another_publishes)
    stream = Stream(client, Listings(client), Bridge(backend), "/stream")
    stream.publish("me", cut)
    assert set(stream.subscribers()) == {"another", "me"}


def test_an_overwrite_of_one_incarnation_makes_no_other_where_it_is_gone(site: Site) -> None:
    bound = site.segment()
    site.run(site.client.segments.delete(site.path))
    with pytest.raises(FileNotFoundError):
        site.run(site.client.segments.overwrite(site.path, b"x", guard=bound._guard()))
    assert not site.is_there()


# -- so many writers that no trace is left ---------------------------------------------------------------------


def others_append(site: Site, count: int = COMMITS_MAX + 6) -> None:
    """As many others commit once each."""
    for _ in range(count):
        drive(site.other().segments.append(site.path, b"."))


def meet_others(site: Site) -> None:
    """As many others commit once each, and this client sees it."""
    others_append(site)
    site.run(site.client.headers.load(site.path))


def lose_race(site: Site) -> None:
    """Let another commit before the next attempt of this client arrives."""
    assert isinstance(site.backend, Scripted)
    site.backend.plan("replace", "clicks$header", before=lambda: others_append(site, 1))


def test_a_lost_race_among_many_writers_is_judged_before_the_pause(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    meet_others(site)
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        others_append(site)

    monkeypatch.setattr(site.client.runtime, "sleep", sleep)
    lose_race(site)
    offset = site.append(b"mine")
    assert len(pauses) == 1
    assert site.content()[offset:] == b"mine"
    assert site.content().count(b"mine") == 1


@pytest.mark.parametrize("is_crowded", [True, False])
def test_what_was_seen_long_ago_of_many_writers_is_not_attempted_upon(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    meet_others(site)
    if not is_crowded:
        for _ in range(COMMITS_MAX):
            site.append(b"-")
        monkeypatch.setattr(commit_module, "BELIEVED_S_MAX", 0.0)
    others_append(site)
    assert isinstance(site.backend, Scripted)
    site.backend.calls.clear()
    assert site.append(b"mine") == len(site.content()) - 4
    assert [verb for verb, _ in site.backend.calls] == ["read_if_changed", "replace"]


def test_where_a_conflict_is_final_nothing_is_unknown_however_many_have_committed() -> None:
    site = Site(private_memory(), "")
    site.create()
    others_append(site)
    assert site.append(b"mine") == COMMITS_MAX + 6


def test_where_a_conflict_may_be_of_an_own_request_sent_twice_it_is_unknown_when_no_trace_is_left(site: Site) -> None:
    def many_after_it() -> None:
        others_append(site)
        fail()

    assert isinstance(site.backend, Scripted)
    site.backend.plan("replace", "clicks$header", after=many_after_it)
    with pytest.raises(AppendOutcomeUnknown):
        site.append(b"mine")
    assert site.content().startswith(b"mine")


# -- callbacks under the lock of a segment ---------------------------------------------------------------------


class AppendingHandler(logging.Handler):
    """Writes the log into a segment."""

    def __init__(self, site: Site) -> None:
        super().__init__(logging.DEBUG)
        self.site = site
        self.errors: list[BaseException | None] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.site.append(f"[{record.getMessage()}]".encode())
        except RuntimeError as error:
            self.errors.append(error)


@pytest.fixture
def handler(site: Site) -> Iterator[AppendingHandler]:
    handler = AppendingHandler(site)
    loggers = [logging.getLogger(name) for name in ("rollingfs", "library")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def in_time(call: Callable[[], object]) -> None:
    """Run in a thread, which may be left behind in a deadlock."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for itself"


@pytest.mark.usefixtures("handler")
def test_a_handler_may_append_its_log_of_a_conflict_to_the_very_segment(site: Site) -> None:
    lose_race(site)
    in_time(lambda: site.append(b"mine"))
    content = site.content()
    assert content.startswith(b".mine[")
    assert content.endswith(b"it did not take place and never will]")
    assert content.count(b"[") == 1


def test_handlers_of_two_threads_that_append_never_wait_for_each_other(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    inside, logged = threading.Event(), threading.Event()
    assert isinstance(site.backend, Scripted)

    def append_and_lose() -> None:
        others_append(site, 1)
        inside.set()  # this thread has the segment's lock, and will log
        assert logged.wait(10)

    site.backend.plan("replace", "clicks$header", before=append_and_lose)
    first = threading.Thread(target=site.append, args=(b"mine",), daemon=True)
    caplog.set_level(logging.DEBUG, "rollingfs")
    first.start()
    assert inside.wait(10)

    class Waiting(logging.Handler):
        """Its own lock is held while it appends, which waits for the first thread's commit."""

        def emit(self, record: logging.LogRecord) -> None:
            logged.set()
            site.append(b"log")

    logger, waiting = logging.getLogger("rollingfs"), Waiting()
    logger.addHandler(waiting)
    try:
        in_time(lambda: logger.warning("of the second thread"))
        first.join(10)
        assert not first.is_alive()
    finally:
        logger.removeHandler(waiting)
    assert site.content() == b".mine" + b"log" * 2


def test_what_another_library_logs_under_the_lock_fails_in_the_handler_instead_of_waiting_for_ever(
    site: Site, handler: AppendingHandler
) -> None:
    assert isinstance(site.backend, Scripted)
    site.backend.plan("replace", "clicks$header", before=lambda: logging.getLogger("library").info("sending"))
    in_time(lambda: site.append(b"mine"))
    assert site.content() == b"mine"
    assert [site.path in str(error) and "nothing was written" in str(error) for error in handler.errors] == [True]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("nth", range(1, 40))
def test_wherever_ctrl_c_hits_a_lock_its_thread_may_wait_for_it_later(nth: int) -> None:
    lock = SyncRuntime().lock("clicks")
    held, may_end = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        assert may_end.wait(10)

    async def wait() -> bool:
        return True

    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupted_once() -> bool:
        with (
            contextlib.suppress(KeyboardInterrupt),
            at_line(nth, interrupt, "rollingfs/runtime/concurrency.py", "rollingfs/runtime/logs.py"),
        ):
            drive(lock.run(wait))
        holder = threading.Thread(target=lambda: drive(lock.run(hold)), daemon=True)
        holder.start()
        assert held.wait(10)
        threading.Timer(0.02, may_end.set).start()
        return drive(lock.run(wait))

    assert contextvars.copy_context().run(interrupted_once)


def test_a_handler_that_appends_is_never_called_within_itself(site: Site) -> None:
    log = Site(private_memory(), "")
    log.create()

    class Appending(logging.Handler):
        depth = depth_max = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.depth += 1
            self.depth_max = max(self.depth, self.depth_max)
            log.append(record.getMessage().encode())
            self.depth -= 1

    async def tell() -> None:
        for number in range(100):
            logger.warning("%02d", number)

    logger, appending = logging.getLogger("rollingfs"), Appending()
    logger.addHandler(appending)
    try:
        drive(site.client.committer.slot(site.path).lock.run(tell))
    finally:
        logger.removeHandler(appending)
    assert appending.depth_max == 1
    assert log.content() == b"".join(b"%02d" % number for number in range(100))


@pytest.mark.parametrize("nth", range(1, 40))
def test_an_unclosed_file_that_is_found_as_garbage_under_a_lock_may_be_told_of_by_a_handler_that_appends(
    site: Site, handler: AppendingHandler, nth: int
) -> None:
    def forget() -> None:
        file = site.open("ab")
        file.write(b"lost")
        file.itself = file  # type: ignore[attr-defined]

    def append() -> None:
        with at_line(nth, gc.collect, "rollingfs/commit/header_cache.py", "rollingfs/write/gather.py"):
            site.append(b"mine")

    gc.collect()
    gc.disable()
    try:
        forget()
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            in_time(append)
            gc.collect()  # if there is no such line
    finally:
        gc.enable()
    assert site.content().count(b"mine") == 1


def test_commits_that_wait_for_others_of_their_client_do_not_add_up_their_times(tmp_path: Path) -> None:
    site = Site(LocalBackend(sync=False), str(tmp_path), commit_timeout_s=0.5)
    site.create()
    errors: list[BaseException] = []

    def acquire() -> None:
        try:
            drive(site.client.segments.acquire(site.path, "owner"))
        except CommitTimeoutError as error:
            errors.append(error)

    waiting = [threading.Thread(target=acquire, daemon=True) for _ in range(8)]
    with record_lock(names.lock_path(names.header_path(site.path))):
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(20)
    assert len(errors) == len(waiting)
    assert "other commits of this client" in str(errors[-1])


# -- memory ----------------------------------------------------------------------------------------------------


def test_segments_that_are_deleted_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "REMEMBERED_MAX", 3)
    client = Client(private_memory(), RollingPolicy(max_bytes=10, inline_bytes=0))
    for number in range(10):
        drive(client.segments.create(f"/folder/{number}"))
        drive(client.segments.append(f"/folder/{number}", b"x" * 30))
        drive(client.segments.delete(f"/folder/{number}"))
    assert len(client.committer._slots) == 3
    drive(client.segments.create("/folder/9"))
    drive(client.segments.create("/folder/0"))
    assert drive(client.segments.append("/folder/0", b"again")) == 0
