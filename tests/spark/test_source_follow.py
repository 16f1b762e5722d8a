"""What a stream asks of the store, what it publishes, and how its offsets grow. Without a session of Spark."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown
from rollingfs.fs.stream_handle import Stream
from rollingfs.spark.source import places
from rollingfs.spark.source.stream import stream_reader
from tests.spark.test_source_batch import NAMES, PATTERNS
from tests.support.backends import Counting, raises
from tests.support.examples import slowly
from tests.support.spark_source import ALL, first_column, read, reader, saved, step


class Query:
    """A streaming query as Spark runs it: it calls a batch finished when the next one is in the checkpoint."""

    def __init__(self, path: Any, **options: Any) -> None:
        self.path, self.options = path, options
        self.source = reader(path, **options)
        self.log = [saved(self.source.initialOffset())]
        self.rows: list[str] = []

    def restart(self) -> None:
        """The process dies behind a batch, and another goes on with the checkpoint."""
        self.source = reader(self.path, **self.options)

    def step(self, crash: Callable[[], object] | None = None) -> bool:
        """A trigger; whether it made a batch. At `crash`, the batch is in the checkpoint, and no task has begun."""
        end = saved(self.source.latestOffset(self.log[-1], ALL))
        if end == self.log[-1]:
            return False
        self.log.append(end)
        if len(self.log) > 2:
            self.source.commit(self.log[-2])
        if crash is not None:
            crash()
            self.restart()
        self.rows += first_column(self.source, self.source.partitions(*self.log[-2:]))
        return True

    def run(self) -> None:
        while self.step():
            pass


# -- looks at the store ------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The store of all filesystems that the data source makes."""
    found = Counting(LocalBackend(sync=False))
    fs = RollingFileSystem(backend=found, header_cache_s=0)
    monkeypatch.setattr(places, "filesystem", lambda options: fs)
    return found


@pytest.mark.parametrize(
    ("place", "listings"), [("", 3), ("/*", 3), ("/d*", 3), ("/d*/*", 3), ("/d1/s*", 1), ("/{s,d}*", 3), ("/*/s1", 3)]
)
def test_poll_of_nested_folders_or_patterns_is_one_listing(fs, tmp_path, store, place, listings):
    for name in ("s0", *(f"d1/s{nth}" for nth in range(1, 20)), "d2/s1"):
        fs.overwrite(f"{tmp_path}/f/{name}", b"x\n")
    (tmp_path / "f" / "d1" / "plain").write_bytes(b"x\n")
    source = reader(f"{tmp_path}/f{place}")
    _, end = step(source)
    store.clear()
    assert source.latestOffset(end, ALL) is end
    assert store.verbs == ["list"] * listings


@pytest.mark.parametrize("pattern", PATTERNS)
def test_spark_rules_say_which_names_folder_and_pattern_show(fs, tmp_path, pattern):
    for name in NAMES:
        fs.overwrite(f"{tmp_path}/f/{name}", b"x\n")
    fs.stream(f"{tmp_path}/f/p=1").retention = RetentionPolicy.by_size(1)  # its ledger is a hidden segment
    options = {"partitionColumns": "false"}
    found = reader(f"{tmp_path}/f{pattern}", **options).initialOffset()
    assert {path.removeprefix(f"{tmp_path}/f/") for path in found} == PATTERNS[pattern]
    assert len(read(f"{tmp_path}/f{pattern}", **options)) == len(found)


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("[_", "not closed"),
        ("{a", "not closed"),
        ("**/t", "means [*] and"),
        ("a\\", "nothing follows"),
        ("[b-a]", "range"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(fs, tmp_path, pattern, error):
    fs.overwrite(f"{tmp_path}/f/a", b"x\n")
    with pytest.raises(ValueError, match=error):
        read(f"{tmp_path}/f/{pattern}")


@pytest.mark.parametrize("pattern", ["x*", "a/*", "{b,c}", "no/*"])
def test_unmatched_pattern_fails_a_batch_and_a_stream_waits(fs, tmp_path, pattern):
    fs.overwrite(f"{tmp_path}/f/a", b"x\n")
    with pytest.raises(FileNotFoundError, match="matches this pattern"):
        read(f"{tmp_path}/f/{pattern}")
    assert reader(f"{tmp_path}/f/{pattern}").initialOffset() == {}


def test_poll_interval_says_how_often_store_is_asked(fs, tmp_path, monkeypatch, store):
    fs.overwrite(f"{tmp_path}/f/s", b"one\n")
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    source = reader(tmp_path / "f", pollInterval="5s")
    end = source.latestOffset(source.initialOffset(), ALL)
    store.clear()
    for _ in range(1000):  # ten seconds of Spark's questions
        assert source.latestOffset(end, ALL) is end
        clock.now += 0.01
    assert store.verbs == ["list"]
    clock.now += 0.01
    source.latestOffset(end, ALL)
    assert store.verbs == ["list"] * 2
    fs.append(f"{tmp_path}/f/s", b"two\n")
    assert source.latestOffset(end, ALL) is end
    source.prepareForTriggerAvailableNow()  # which looks at once
    assert first_column(source, source.partitions(end, source.latestOffset(end, ALL))) == ["two"]


def test_lag_is_that_of_the_last_look(fs, tmp_path, store):
    for name in ("a", "b"):
        fs.overwrite(f"{tmp_path}/f/{name}", b"one\n")
    source, path = reader(tmp_path / "f"), f"{tmp_path}/f/b"
    assert source.reportLatestOffset()["lagBytes"] == 8  # before the first batch
    start = saved(source.initialOffset())
    assert source.reportLatestOffset()["lagBytes"] == 8
    again, (_, end) = reader(tmp_path / "f"), step(source, start)
    again.partitions(start, end)  # a restart repeats the planned batch first
    assert again.reportLatestOffset()["lagBytes"] == 0
    assert source.reportLatestOffset() == {"lagBytes": 0, "lagSeconds": 0.0, "segments": {}}
    fs.append(path, b"two\nno end")
    end = source.latestOffset(end, ALL)
    store.clear()
    lag = source.reportLatestOffset()
    assert store.verbs == []
    assert lag["segments"][path].pop("lagSeconds") == lag.pop("lagSeconds") >= 0
    behind = {path: {"segment": end[path]["segment"], "offset": 14, "lagBytes": 6}}
    assert lag == {"lagBytes": 6, "segments": behind}


# -- subscribers -------------------------------------------------------------------------------------------------


def kept(fs: RollingFileSystem, folder: Path) -> dict[str, int]:
    """What is left in a folder after retention by consumption: the first retained byte of each segment."""
    stream = fs.stream(str(folder))
    stream.retention = RetentionPolicy.by_size(0, every="0s")
    stream.retain()
    return {path.rpartition("/")[2]: int(info["start_offset"]) for path, info in stream.infos().items()}


def test_last_batch_of_sealed_segment_is_published_without_another(fs, tmp_path):
    fs.overwrite(f"{tmp_path}/f/a", b"one\n")
    fs.seal(f"{tmp_path}/f/a")
    query = Query(tmp_path / "f", subscriber="me")
    query.run()
    assert kept(fs, tmp_path / "f") == {}
    assert query.rows == ["one"]
    query.restart()
    assert not query.step()


def test_run_up_to_present_ends_publishes_its_last_batch(fs, tmp_path):
    fs.create(f"{tmp_path}/f/a")
    query = Query(tmp_path / "f", subscriber="me")
    for nth in range(4):
        fs.append(f"{tmp_path}/f/a", b"line %d\n" % nth)
        query.restart()
        query.source.prepareForTriggerAvailableNow()
        query.run()
        # the batch of the run before this one is published: the segment may still grow
        assert kept(fs, tmp_path / "f") == {"a": 7 * nth}
    assert query.rows == [f"line {nth}" for nth in range(4)]


def test_each_folder_of_a_query_is_its_own_stream(fs, tmp_path):
    for name in ("d1/a", "d2/b"):
        fs.overwrite(f"{tmp_path}/f/{name}", b"one\n")
    query = Query(tmp_path / "f", subscriber="me")
    query.run()
    fs.overwrite(f"{tmp_path}/f/d3/c", b"one\n")
    assert query.step()
    for name in ("d3/c", "d1/a"):
        fs.append(f"{tmp_path}/f/{name}", b"two\n")
    assert kept(fs, tmp_path / "f" / "d3") == {"c": 0}
    query.run()
    fs.append(f"{tmp_path}/f/d3/c", b"three\n")
    query.run()
    for folder, offsets in (("d1", {"a": 4}), ("d2", {"b": 0}), ("d3", {"c": 4})):
        assert kept(fs, tmp_path / "f" / folder) == offsets


@pytest.mark.parametrize("is_seen", [True, False])
def test_folder_that_is_made_again_is_joined_again(fs, tmp_path, is_seen):
    """Its ledger went with it, and the names in it may be those of before."""
    folder = f"{tmp_path}/f/day"
    fs.overwrite(f"{folder}/a", b"one\n")
    fs.seal(f"{folder}/a")
    query = Query(tmp_path / "f", subscriber="me")
    query.run()
    fs.rm(folder, recursive=True)
    if is_seen:
        query.run()
    fs.overwrite(f"{folder}/a", b"two\n")
    assert query.step(crash=lambda: kept(fs, tmp_path / "f" / "day"))
    assert query.rows == ["one", "two"]


SEEDS = [8, *slowly(1, *range(9, 47))]


@pytest.mark.parametrize("seed", SEEDS)
def test_retention_and_restarts_lose_and_repeat_no_row(fs, tmp_path, seed):
    """Appends, seals, new segments, retention, restarts and runs to the present ends, in any order."""
    chooser, names, sent = random.Random(seed), [0], []
    folder = tmp_path / "f"
    fs.overwrite(f"{folder}/0", b"")
    query = Query(folder, subscriber="me")
    for nth in range(1, 81):
        what = chooser.choice([*["append"] * 3, "step", "crash", "retain", "seal", "new", "restart", "end"])
        if what == "append" and names:
            sent.append(f"row {nth}")
            fs.append(f"{folder}/{chooser.choice(names)}", b"row %d\n" % nth)
        elif what == "seal" and len(names) > 1:
            fs.seal(f"{folder}/{names.pop(chooser.randrange(len(names)))}")
        elif what == "new":
            names.append(nth)
            fs.overwrite(f"{folder}/{nth}", b"")
        elif what == "step":
            query.step()
        elif what == "crash":
            query.step(crash=lambda: kept(fs, folder))
        elif what == "retain":
            kept(fs, folder)
        elif what == "restart":
            query.restart()
        elif what == "end":
            query.restart()
            query.source.prepareForTriggerAvailableNow()
            query.run()
            query.restart()
    query.run()
    assert sorted(query.rows) == sorted(sent)
    assert fs.stream(str(folder)).size() < sum(len(row) + 1 for row in sent)  # it trimmed


def test_a_subscriber_reads_whole_folders(fs, tmp_path):
    fs.overwrite(f"{tmp_path}/f/a", b"one\n")
    for place in ("a", "*"):
        with pytest.raises(ValueError, match=r"option subscriber: .* is not a folder"):
            Query(tmp_path / "f" / place, subscriber="me")
    assert fs.stream(f"{tmp_path}/f").subscribers() == {}


def test_unknown_publication_is_repeated_and_a_refused_one_raises(fs, tmp_path, monkeypatch, caplog):
    fs.overwrite(f"{tmp_path}/f/a", b"one\n")
    query = Query(tmp_path / "f", subscriber="me")

    def append_and_run(line: bytes, error: OSError | None = None) -> None:
        fs.append(f"{tmp_path}/f/a", line)
        with monkeypatch.context() as patch:
            if error is not None:
                patch.setattr(Stream, "publish", raises(error))
            query.run()

    query.run()
    append_and_run(b"two\n")
    append_and_run(b"three\n", AppendOutcomeUnknown("the answer was lost"))
    assert "subscriber me is published with the next batch: the answer was lost" in caplog.text
    assert kept(fs, tmp_path / "f") == {"a": 0}
    append_and_run(b"four\n")
    assert kept(fs, tmp_path / "f") == {"a": 8}
    with pytest.raises(PermissionError):
        append_and_run(b"five\n", PermissionError(13, "no"))
