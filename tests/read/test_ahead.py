"""Both ways of fetching ahead, through open files: which of them a file is read by, errors, and a close meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollingfs.read import prefetch
from tests.read.test_column_ahead import GROUPS, SHIFT, Store, spans
from tests.support.backends import raises


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize("columns", [(1, 2), (0, 1, 4)])
def test_columns_side_by_side_that_are_read_one_by_one_are_not_read_in_a_row(store, columns, monkeypatch) -> None:
    monkeypatch.setattr(prefetch, "AHEAD_BYTES_MIN", 10_000)
    monkeypatch.setattr(prefetch, "READ_BYTES_MIN", 1000)
    with store.opened() as file:
        for group in range(GROUPS):
            for column in columns:
                store.read(file, group, column)
                assert file._buffer._ahead._row.is_idle or group == 0  # which shows nothing yet


def test_an_error_from_before_a_read_is_not_that_of_the_read(store) -> None:
    with store.opened() as file:
        store.backend.plan("read_range", before=raises(OSError(errno.EIO, "the store was down")), times=1)
        ahead = file._buffer._ahead._columns
        ahead._fill(ahead.note(*(offset - SHIFT for offset in spans(0, 1))))
        [future] = ahead._ahead.values()
        assert isinstance(future.exception(60), OSError)
        store.read(file, 1, 1)


def test_a_thread_whose_file_another_closes_is_told_so_and_begins_no_more(store) -> None:
    file, gate = store.opened(), asyncio.Event()
    store.read(file, 0, 1)
    ahead = file._buffer._ahead._columns
    [(span, future)] = ahead._ahead.items()
    future.result(60)
    pending: concurrent.futures.Future[bytes] = concurrent.futures.Future()
    ahead._ahead[span] = pending
    with ThreadPoolExecutor(1) as threads:
        store.backend.plan("read_range", before=gate.wait, times=None)
        reading = threads.submit(store.read, file, 1, 1)
        while span in ahead._ahead:
            time.sleep(0.001)
        file.close()
        pending.cancel()
        with pytest.raises(ValueError, match="the file was closed while it was read"):
            reading.result(60)
        store.backend.loop.call_soon_threadsafe(gate.set)
    assert not ahead._ahead


def test_what_is_begun_after_another_thread_s_close_is_given_up(store) -> None:
    file = store.opened()
    columns = file._buffer._ahead._columns
    fill = columns._fill

    def close_first(pattern) -> None:
        file.close()
        fill(pattern)

    columns._fill = close_first
    store.read(file, 0, 1)
    assert file.closed
    assert columns._wasted == 1
    assert not columns._ahead
