"""Java reads segments that Python is changing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rollingfs.format import names, transitions
from rollingfs.policy import RollingPolicy

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def started(call: Callable[[], Any]) -> tuple[threading.Event, threading.Thread]:
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return done, thread


def test_java_looks_at_a_segment_while_python_replaces_its_header(place):
    place.segment("log", b"")
    path, count = f"{place.path}/log", 60

    def write() -> None:
        for _ in range(count):
            place.run(place.client.segments.append(path, b"0123456789"))

    done, thread = started(write)
    sizes = []
    while not done.is_set() and thread.is_alive():
        sizes.append(place.fs.getFileStatus(place.hadoop_path("log")).getLen())
        assert set(place.read("log")[::10]) <= {ord("0")}
        sizes.append(place.listed()["log"])
    assert done.is_set()
    assert sizes == sorted(sizes)
    assert all(size % 10 == 0 for size in sizes)
    assert place.read("log") == b"0123456789" * count


def test_a_list_that_meets_renames_and_deletes_shows_each_segment_once(place):
    for index in range(6):
        place.segment(f"in/{index}", b"x" * 70)
    count = 12

    def write() -> None:
        for index in range(count):
            segments = place.client.concats
            place.run(segments.rename(f"{place.path}/in/{index % 6}", f"{place.path}/in/moved"))
            place.run(segments.rename(f"{place.path}/in/moved", f"{place.path}/in/{index % 6}"))

    done, thread = started(write)
    while not done.is_set() and thread.is_alive():
        listed = place.listed("in")
        assert set(listed) <= {*map(str, range(6)), "moved"}
        assert set(listed.values()) == {70}
    assert done.is_set()
    assert place.listed("in") == {str(index): 70 for index in range(6)}


def test_a_reader_goes_on_when_the_map_changes_and_says_so_when_its_bytes_are_gone(place):
    place.segment("log", b"0123456789" * 30, RollingPolicy(max_bytes=50, inline_bytes=0), piece=300)
    path = f"{place.path}/log"
    stream = place.fs.open(place.hadoop_path("log"))
    assert bytes(stream.readNBytes(10)) == b"0123456789"
    old = place.header("log").entries[3].file

    async def step(base: Any, attempt: Any) -> Any:
        chunks = base.header.entries
        moved = await place.client.chunks.write(path, b"0123456789" * 5, 150)
        new = [*chunks[:3], moved.chunk(path, 150), *chunks[4:]]
        return transitions.replace(base.header, entries=tuple(new))

    place.run(place.client.committer.commit(path, step, fresh=True))
    place.run(place.client.backend.delete([names.resolve(path, old)]))
    stream.seek(170)
    assert bytes(stream.readNBytes(20)) == b"0123456789" * 2
    place.run(place.client.segments.truncate(path, 260))
    stream.seek(205)
    with pytest.raises(Exception, match="offset 205 was truncated away; what is left is 260 to 300"):
        stream.readNBytes(20)
    stream.close()
