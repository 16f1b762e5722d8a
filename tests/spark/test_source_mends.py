"""A stream beside restores, rotations, listings that miss, and limits: no row twice, none lost in silence."""

import random
import shutil
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from rollingfs import RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.backend.local import looks
from rollingfs.errors import ConflictError
from rollingfs.fs.stream_handle import Stream
from rollingfs.spark.source import rows
from rollingfs.spark.source.options import DataLossError
from rollingfs.spark.source.stream import stream_reader
from rollingfs.spark.source.stream.batch_ends import RecordEnds
from tests.support.backends import raises
from tests.support.examples import slowly
from tests.support.schedules import beside
from tests.support.spark import parquet_file
from tests.support.spark_source import (
    ALL,
    batch_reader,
    blinded,
    drained,
    first_column,
    inferred,
    put,
    reader,
    saved,
    step,
)


def numbered(begin: int, end: int) -> bytes:
    return b"".join(b"row %d\n" % nth for nth in range(begin, end))


# -- an older copy is restored -----------------------------------------------------------------------------------


@pytest.fixture
def restored(fs: RollingFileSystem, tmp_path: Path) -> tuple[Path, Any]:
    """A folder whose one segment was read, and is an older copy again; the offset of the query."""
    folder = tmp_path / "f"
    put(fs, f"{folder}/s", numbered(0, 10))
    shutil.copytree(folder, tmp_path / "copy", symlinks=True)
    put(fs, f"{folder}/s", numbered(10, 18))
    _, at = step(reader(folder))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder, symlinks=True)
    return folder, at


def test_segment_that_is_shorter_than_checkpoint_is_data_loss(fs, restored):
    folder, at = restored
    with pytest.raises(DataLossError, match=r"ends at offset 60.*read up to 116.*restored"):
        step(reader(folder), at)
    lenient = reader(folder, failOnDataLoss="false")
    rows, at = step(lenient, at)
    assert rows == []
    fs.append(f"{folder}/s", numbered(100, 125))
    assert step(lenient, at)[0] == [f"row {nth}" for nth in range(100, 125)]


def test_restored_segment_that_outgrew_the_checkpoint_is_data_loss(fs, restored):
    folder, at = restored
    fs.append(f"{folder}/s", numbered(100, 125))
    with pytest.raises(DataLossError, match="not those that the query has read"):
        step(reader(folder), at)
    rows, _ = step(reader(folder, failOnDataLoss="false"), at)
    assert rows == [f"row {nth}" for nth in range(125 - len(rows), 125)]


def test_planned_batch_of_a_missing_copy_is_data_loss(fs, restored, tmp_path):
    folder, end = restored
    start = {path: {"segment": mark["segment"], "offset": 0} for path, mark in end.items()}
    with pytest.raises(DataLossError, match="of a planned batch are not those"):
        reader(folder).partitions(start, end)
    rows = first_column(lenient := reader(folder, failOnDataLoss="false"), lenient.partitions(start, end))
    assert rows == [f"row {nth}" for nth in range(10)]


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ({"offset": 10_000}, "ends at offset"),
        ({"offset": 8}, "not those that the query has read"),
        ({"offset": 8, "check": None}, "no record begins there"),
        ({"offset": "8"}, "of another type"),
        ({"offset": -1}, "of another type"),
        ({"segment": 5}, "names no segment"),
        ({"sealed": "yes"}, "of another type"),
        ({"check": [1]}, "of another type"),
    ],
)
def test_an_edited_checkpoint_gets_a_sentence(fs, tmp_path, edit, error):
    path = f"{tmp_path}/f/s"
    put(fs, path, numbered(0, 10))
    _, at = step(reader(tmp_path / "f"))
    mark = {key: value for key, value in {**at[path], **edit}.items() if value is not None}
    with pytest.raises((DataLossError, ValueError), match=error):
        step(reader(tmp_path / "f"), {path: mark})


# -- rotation ----------------------------------------------------------------------------------------------------


def test_a_log_that_is_rotated_is_read_once(fs, tmp_path):
    folder = f"{tmp_path}/f"
    fs.makedirs(folder)
    at, rows = saved(reader(folder).initialOffset()), []
    for turn in range(3):
        for part in range(2):
            put(fs, f"{folder}/a", numbered(10 * turn + 5 * part, 10 * turn + 5 * part + 5))
            if part or turn == 1:
                found, at = step(reader(folder), at)
                rows += found
        fs.seal(f"{folder}/a")
        for old in range(turn, 0, -1):
            fs.mv(f"{folder}/a.{old}", f"{folder}/a.{old + 1}")
        fs.mv(f"{folder}/a", f"{folder}/a.1")
    assert [*rows, *(row for batch in drained(folder, at=at) for row in batch)] == [f"row {nth}" for nth in range(30)]


def test_log_rotated_twice_and_not_written_is_whole(fs, tmp_path):
    """The newest old file came from the name of a log that was read, and is another log."""
    folder, small = f"{tmp_path}/f", RollingPolicy(max_bytes=4, inline_bytes=1)
    put(fs, f"{folder}/a", b"one\n", small)
    _, at = step(reader(folder))
    fs.mv(f"{folder}/a", f"{folder}/a.1")
    put(fs, f"{folder}/a", b"two\n", small)
    fs.mv(f"{folder}/a.1", f"{folder}/a.2")
    fs.mv(f"{folder}/a", f"{folder}/a.1")
    assert step(reader(folder), at)[0] == ["two"]


def test_rename_of_a_later_segment_is_no_part(fs, tmp_path):
    """Its lineage tells it from a concat of what was read under the name."""
    folder = f"{tmp_path}/f"
    fs.seal(put(fs, f"{folder}/a", b"one\n"))
    _, at = step(reader(folder))
    fs.rm(f"{folder}/a")
    put(fs, f"{folder}/a", b"two\n", RollingPolicy(max_bytes=4, inline_bytes=1))
    fs.mv(f"{folder}/a", f"{folder}/b")
    assert step(reader(folder), at)[0] == ["two"]


def test_planned_batch_is_read_under_the_new_name(fs, tmp_path):
    put(fs, f"{tmp_path}/f/a", numbered(0, 5))
    start = saved(reader(tmp_path / "f").initialOffset())
    _, end = step(reader(tmp_path / "f"), start)
    fs.mv(f"{tmp_path}/f/a", f"{tmp_path}/f/a.1")
    again = reader(tmp_path / "f")
    assert first_column(again, again.partitions(start, end)) == [f"row {nth}" for nth in range(5)]
    assert step(again, end)[0] == []


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("is_stream", [True, False])
def test_task_reads_a_segment_that_was_renamed_since(fs, tmp_path, is_stream, is_plain):
    """Nothing is gone, so no option makes the batch go on without it; another segment may have the name by now."""
    path, wanted = tmp_path / "f" / "a", [f"row {nth}" for nth in range(5)]
    path.parent.mkdir()
    if is_plain:
        path.write_bytes(numbered(0, 5))
    else:
        put(fs, path, numbered(0, 5))
    fs.stream(str(path.parent)).retention = RetentionPolicy.by_size(0, every=0)
    source = (reader if is_stream else batch_reader)(path.parent, failOnDataLoss="false")
    start = saved(source.initialOffset()) if is_stream else None
    plan = source.partitions(start, saved(source.latestOffset(start, ALL))) if is_stream else source.partitions()
    fs.mv(str(path), f"{path}.1") if not is_plain else path.rename(f"{path}.1")
    assert first_column(source, plan) == wanted
    put(fs, path, b"another\n")
    assert first_column(source, plan) == wanted


def test_segment_is_missed_where_another_has_its_name(fs, tmp_path):
    put(fs, f"{tmp_path}/f/a", b"one\n")
    put(fs, f"{tmp_path}/f/b", b"two\n")
    _, at = step(reader(tmp_path / "f"))
    put(fs, f"{tmp_path}/f/a", b"unread\n")
    fs.rm(f"{tmp_path}/f/a")
    fs.mv(f"{tmp_path}/f/b", f"{tmp_path}/f/a")
    with pytest.raises(DataLossError, match="/a: the segment is gone, and it was not sealed"):
        step(reader(tmp_path / "f"), at)


def test_segment_that_became_a_part_is_refused(fs, tmp_path, caplog):
    folder = f"{tmp_path}/f"
    for name in ("all", "a"):
        put(fs, f"{folder}/{name}", f"{name}\n".encode())
    fs.seal(f"{folder}/a")
    _, at = step(reader(folder))
    fs.concat(f"{folder}/all", [f"{folder}/a"])
    with pytest.raises(DataLossError, match=r"/a: it was read up to offset 2, and is a part of .*/all now"):
        step(reader(folder), at)
    rows, at = step(reader(folder, failOnDataLoss="false"), at)
    assert rows == ["a"]
    assert step(reader(folder), at)[0] == []


# -- what is missing for a moment, or for good -------------------------------------------------------------------


@pytest.mark.parametrize("is_sealed", [True, False])
def test_segment_that_listing_misses_is_looked_at_by_name(fs, tmp_path, monkeypatch, is_sealed):
    for name in ("a", "b"):
        put(fs, f"{tmp_path}/f/{name}", b"one\n")
    if is_sealed:
        fs.seal(f"{tmp_path}/f/a")
    _, at = step(reader(tmp_path / "f"))
    put(fs, f"{tmp_path}/f/b", b"two\n")
    with monkeypatch.context() as patch:
        blinded(patch, f"{tmp_path}/f/a")
        rows, at = step(reader(tmp_path / "f"), at)
    assert rows == ["two"]
    assert step(reader(tmp_path / "f"), at)[0] == []


def test_folder_that_changes_during_listing_is_relisted(tmp_path, monkeypatch):
    for nth in range(5):
        (tmp_path / str(nth)).write_bytes(b"x")
    listed, new = looks._listed, tmp_path / "5"

    def missing(folder: str, roots: Sequence[str]) -> dict[str, Any]:
        """The first listing misses a name, and meanwhile another file is renamed in the folder."""
        found = listed(folder, roots)
        if not new.exists():
            del found[f"{folder}/2"]
            (tmp_path / "4").rename(new)
        return found

    monkeypatch.setattr(looks, "_listed", missing)
    names = [entry.path.rpartition("/")[2] for entry in looks.list_folder(str(tmp_path), "").entries]
    assert names == ["0", "1", "2", "3", "5"]


@pytest.mark.parametrize(("place", "later"), [("f", "f/s"), ("f/s", "f/s"), ("f", "f")])
def test_stream_continues_after_an_emptied_folder_or_sealed_removal(fs, tmp_path, place, later):
    put(fs, f"{tmp_path}/f/s", b"one\n")
    fs.seal(f"{tmp_path}/f/s")
    _, at = step(reader(tmp_path / place))
    fs.rm(f"{tmp_path}/f", recursive=True)
    with pytest.raises(FileNotFoundError):
        reader(tmp_path / "f").initialOffset()
    rows, at = step(reader(tmp_path / place), at)
    assert rows == []
    put(fs, f"{tmp_path}/{later}", b"two\n")
    assert step(reader(tmp_path / place), at)[0] == ["two"]


def test_a_cut_inside_a_record_gives_no_half_row(fs, tmp_path):
    put(fs, f"{tmp_path}/s", numbered(0, 10))
    at = saved(reader(f"{tmp_path}/s").initialOffset())
    fs.truncate(f"{tmp_path}/s", 14)
    rows, _ = step(reader(f"{tmp_path}/s", failOnDataLoss="false"), at)
    assert rows == [f"row {nth}" for nth in range(3, 10)]


# -- subscribers -------------------------------------------------------------------------------------------------


def test_a_query_that_cannot_become_a_subscriber_reads_nothing(fs, tmp_path, monkeypatch):
    put(fs, f"{tmp_path}/f/s", b"one\n")
    at = saved(reader(tmp_path / "f").initialOffset())

    monkeypatch.setattr(Stream, "publish", raises(ConflictError("busy")))
    for start in (None, at):
        with pytest.raises(ConflictError, match="not subscriber 'me' yet"):
            step(reader(tmp_path / "f", subscriber="me"), start)


# -- limits ------------------------------------------------------------------------------------------------------


def late(batches: list[list[str]], delay: int) -> int:
    """How many rows, which are their event times, a watermark drops that moves between batches."""
    watermark, dropped = 0, 0
    for batch in batches:
        dropped += sum(int(row) < watermark for row in batch)
        watermark = max([watermark, *(int(row) - delay for row in batch)])
    return dropped


LIMITS = ({"maxBytesPerTrigger": "3000"}, {"maxRecordsPerTrigger": "300"}, {})


@pytest.mark.parametrize(
    ("limit", "is_sealed"),
    [
        (LIMITS[0], True),
        (LIMITS[1], False),
        *slowly((LIMITS[0], False), (LIMITS[1], True), *product(LIMITS[2:], (True, False))),
    ],
)
def test_catch_up_of_many_segments_drops_nothing_as_late(fs, tmp_path, is_sealed, limit):
    """Names are in no order: the age of the bytes counts."""
    order = random.Random(7).sample(range(60), 60)
    for nth, name in enumerate(order):
        path = f"{tmp_path}/f/{name:03}"
        put(fs, path, b"".join(b"%06d\n" % (nth * 100 + row) for row in range(50)))
        if is_sealed:
            fs.seal(path)
        time.sleep(0.002)  # what was committed in one millisecond has one age
    batches = drained(tmp_path / "f", **limit)
    assert sum(map(len, batches)) == 3000
    assert limit or len(batches) == 1
    assert late(batches, 100) == 0
    if "maxRecordsPerTrigger" in limit:
        assert max(map(len, batches)) <= 300


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_limit_of_records_is_kept_to_the_record(fs, tmp_path, most):
    for name in "ab":
        put(fs, f"{tmp_path}/f/{name}", numbered(0, 20))
    counts = [len(rows) for rows in drained(tmp_path / "f", maxRecordsPerTrigger=str(most))]
    assert (sum(counts), max(counts)) == (40, min(most, 40))


def test_short_records_fit_their_limit_at_the_second_guess(fs, tmp_path, monkeypatch):
    """A first guess reads too much of them; a second one knows their size."""
    put(fs, f"{tmp_path}/f/a", numbered(0, 1000))
    counts: list[Any] = []
    beside(monkeypatch, RecordEnds, "count", lambda *_: counts.append(None))
    batches = drained(tmp_path / "f", maxRecordsPerTrigger="100")
    assert [len(rows) for rows in batches][:9] == [100] * 9
    assert len(counts) <= 2 * len(batches)


def test_small_batch_waits_for_more_or_for_longest_delay(fs, tmp_path, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 0.0))
    source, at = reader(tmp_path / "f", minBytesPerTrigger="10", maxTriggerDelay="60s"), None
    for data, waited_s, expected in (
        (b"one\n", 0, ["one"]),  # nobody knows how long it waits already
        (b"two\n", 0, []),
        (b"", 61, ["two"]),
        (b"three\nfour\n", 0, ["three", "four"]),
    ):
        put(fs, f"{tmp_path}/f/s", data)
        clock.now += waited_s
        rows, at = step(source, at)
        assert rows == expected


@pytest.mark.parametrize("more", [{"maxBytesPerTrigger": "5"}, {"format": "arrow"}])
def test_record_limit_is_refused_with_bytes_or_binary_formats(tmp_path, more):
    with pytest.raises(ValueError, match="maxRecordsPerTrigger"):
        reader(tmp_path, maxRecordsPerTrigger="5", **more)


# -- long-lived views ----------------------------------------------------------------------------------------------


def test_plan_outlives_only_segments_deleted_by_retention(fs, tmp_path, caplog):
    for name in "ab":
        put(fs, f"{tmp_path}/f/{name}", b"row %s\n" % name.encode())
        fs.seal(f"{tmp_path}/f/{name}")
    source = batch_reader(tmp_path / "f")
    plan = source.partitions()
    assert first_column(source, plan) == ["row a", "row b"]
    fs.truncate(f"{tmp_path}/f/b", 4)  # what retention leaves is what a query reads
    assert first_column(source, plan) == ["row a", "b"]
    fs.rm(f"{tmp_path}/f/a")
    with pytest.raises(FileNotFoundError, match=r"deleted since.*make it again"):
        first_column(source, plan)
    fs.stream(f"{tmp_path}/f").retention = RetentionPolicy.by_size(0, every=0)
    assert first_column(source, plan) == ["b"]
    assert "was deleted since this query was planned" in caplog.text
    put(fs, f"{tmp_path}/f/a", b"another\n")
    with pytest.raises(FileNotFoundError, match="replaced since"):
        first_column(source, plan)


@pytest.mark.parametrize("count", [1, 2])
def test_columns_that_are_inferred_of_part_are_told_so(fs, tmp_path, caplog, count):
    for name in "ab"[:count]:
        put(fs, f"{tmp_path}/f/{name}", parquet_file(pa.table({name: [1]})))
    assert inferred(tmp_path / "f", format="parquet").names == ["a"]
    assert ("/f/a: the columns are those of its beginning; 1 other segments" in caplog.text) == (count == 2)


# -- rows and columns ----------------------------------------------------------------------------------------------


VARIANT = types.VariantType()
NESTED = (types.StructType().add("v", VARIANT), types.ArrayType(VARIANT), types.MapType(types.StringType(), VARIANT))


@pytest.mark.parametrize("kind", [VARIANT, *NESTED], ids=types.DataType.simpleString)
def test_variants_are_refused_by_the_name_of_their_column(kind):
    with pytest.raises(ValueError, match=r"column odd is .*variant"):
        rows.arrow_schema(types.StructType().add("odd", kind))
