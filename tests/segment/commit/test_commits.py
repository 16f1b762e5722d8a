"""Commits of one client: what may happen while the slot of a segment is held, and who waits for it how long.

Other modules of the package are tested elsewhere: `recovery` in `tests/segment/test_concat.py`, `chunk_files` in
`tests/segment/write/test_group_commit.py`, `index_pages` in `tests/system/test_scale.py`, `removals` in
`tests/segment` and `tests/system/test_hidden_plain_file.py`, `store` in `tests/backend/test_probe.py`.
"""

import contextlib
import contextvars
import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rollingfs import BadOffsetError, CommitTimeoutError
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.record_lock import record_lock
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.header import AGE_S_MAX, GRACE_S, OFFSET_MAX, Header
from rollingfs.runtime.concurrency import SyncRuntime, drive
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.change import acquire
from tests.support.faults import Store
from tests.support.life import pieces_of
from tests.support.schedules import at_line, in_threads, interrupt
from tests.support.segment_verbs import append
from tests.support.site import Site
from tests.support.small import DATA, client, shrink_pages


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
def handler(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[AppendingHandler]:
    """Of this package's log and another's, for records of all levels."""
    monkeypatch.setattr("rollingfs.segment.write.group_commit.WAKE_S_MAX", 0.01)
    handler, names = AppendingHandler(site), ("rollingfs", "library")
    for name in names:
        logging.getLogger(name).addHandler(handler)
        caplog.set_level(logging.DEBUG, name)
    yield handler
    for name in names:
        logging.getLogger(name).removeHandler(handler)


def in_time(call: Callable[[], object]) -> None:
    """Run in a thread, which may be left behind in a deadlock."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for itself"


@pytest.mark.usefixtures("handler")
def test_a_handler_may_log_a_conflict_to_its_segment(site: Site) -> None:
    site.backend.plan("replace", "clicks$header", before=partial(site.by_another, "append", b"."))
    in_time(lambda: site.append(b"mine"))
    content = site.content()
    assert content.startswith(b".mine[")
    assert content.endswith(b"it did not take place and never will]")
    assert content.count(b"[") == 1


def test_a_log_under_the_lock_fails_in_the_handler(site: Site, handler: AppendingHandler) -> None:
    site.backend.plan("replace", "clicks$header", before=lambda: logging.getLogger("library").info("sending"))
    in_time(lambda: site.append(b"mine"))
    assert site.content() == b"mine"
    assert [site.path in str(error) and "nothing was written" in str(error) for error in handler.errors] == [True]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("nth", range(1, 40))
def test_a_thread_may_lock_again_after_ctrl_c(nth: int) -> None:
    lock = SyncRuntime().lock("clicks")
    held, may_end = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        assert may_end.wait(10)

    async def wait() -> bool:
        return True

    def interrupted_once() -> bool:
        with contextlib.suppress(KeyboardInterrupt), at_line(nth, interrupt, "rollingfs/runtime/concurrency.py"):
            drive(lock.run(wait))
        threading.Thread(target=lambda: drive(lock.run(hold)), daemon=True).start()
        assert held.wait(10)
        threading.Timer(0.02, may_end.set).start()
        return drive(lock.run(wait))

    assert contextvars.copy_context().run(interrupted_once)


@pytest.mark.parametrize("nth", range(1, 40))
def test_a_handler_may_log_an_unclosed_file_under_lock(site: Site, handler: AppendingHandler, nth: int) -> None:
    def forget() -> None:
        file = site.open("ab")
        file.write(b"lost")
        file.itself = file  # type: ignore[attr-defined]

    def append() -> None:
        with at_line(
            nth, gc.collect, "rollingfs/segment/commit/header_cache.py", "rollingfs/segment/write/group_commit.py"
        ):
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


def test_waits_of_commits_do_not_add_up(tmp_path: Path) -> None:
    site = Site(LocalBackend(sync=False), str(tmp_path), commit_timeout_s=0.5)
    site.create()

    def take() -> None:
        drive(acquire(site.client, site.path, "owner"))

    with record_lock(names.lock_path(names.header_path(site.path))):
        errors = in_threads(*[take] * 8)
    assert {type(error) for error in errors} == {CommitTimeoutError}
    assert any("other commits of this client" in str(error) for error in errors)


@pytest.mark.parametrize("index", range(5))
def test_a_lost_race_leaves_no_index_page(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    shrink_pages(monkeypatch, chunks=2, loose_max=2)
    store = Store()
    rival, late = client(store), client(store)
    path = rival.create("/stream/a", pieces_of(DATA[:40], [20, 20]))
    late.backend.prepare(between={index: partial(rival.append, path, DATA[40:60])})
    late.append(path, DATA[60:80])
    named = {names.resolve(path, entry.file) for entry in late.header(path).entries}
    pages = {file for file in store.files() if "/index-" in file}
    assert set() < pages <= named


def test_a_lost_index_page_is_reported_while_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_pages(monkeypatch, chunks=2, loose_max=2)
    store = Store()
    rival, late = client(store), client(store)
    path = rival.create("/stream/a", pieces_of(bytes(120), [20] * 6))
    for page in [file for file in store.files() if "/index-" in file]:
        del store.fs.store[page]
    late.backend.prepare(between={index: partial(rival.truncate, path, index) for index in range(1, 20)})
    with pytest.raises(CorruptHeaderError, match="an index page that a header names is missing"):
        late.append(path, DATA[:30])
    assert rival.header(path).start < 19


@pytest.mark.usefixtures("hurried")
def test_no_header_names_a_collected_index_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_turn(attempt: Attempt, base: Segment) -> Segment:
        if attempt.count == 1:
            store.lapse(GRACE_S + AGE_S_MAX)
            gone.extend(client(store).collect(path, GRACE_S).files)
            attempt.fresh = True
        return await attempt.load() if attempt.count else base

    shrink_pages(monkeypatch, chunks=2, loose_max=2)
    monkeypatch.setattr(Attempt, "in_turn", in_turn)
    gone: list[str] = []
    for index in range(8, 24):
        store = Store()
        rival, late = client(store), client(store)
        path, source = (rival.create(name, pieces_of(DATA[:80], [20] * 4)) for name in ("/stream/a", "/stream/b"))
        late.backend.prepare(between={index: partial(rival.append, path, b"few")})
        late.concat(path, [source])
        assert client(store).content(path).replace(b"few", b"") == DATA[:80] * 2
    assert any(map(names.is_index, gone))


# -- what an older release left ----------------------------------------------------------------------------------


def test_a_commit_voids_asks_of_older_releases(site: Site) -> None:
    """So a client of that release asks again, or appends itself, and knows the offset of what was appended for it."""
    path = "/carried"
    older = (Path(__file__).parents[2] / "fixtures/headers/v1/carried.header").read_bytes()
    drive(site.client.backend.create(names.header_path(path), older))
    drive(append(site.client, path, b"more"))
    header = bytes(drive(site.client.backend.read(names.header_path(path))).data)
    lines = header.split(b"\n")
    assert not [line for line in lines if line.startswith(b"asks")]
    assert {line for line in older.split(b"\n") if line.startswith((b"commit", b"colour"))} <= {*lines}


def test_append_beyond_the_greatest_offset_writes_nothing():
    store, path = Store(), "/long"
    header = Header("7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 1, start=OFFSET_MAX - 2)
    drive(store.create(names.header_path(path), format_header(header)))
    world = client(store)
    with pytest.raises(BadOffsetError, match="nothing was written"):
        world.append(path, b"three")
    world.append(path, b"12")
    assert world.content(path) == b"12"
