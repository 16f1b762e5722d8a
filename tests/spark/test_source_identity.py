"""A stream knows the file that it has read by inode, token and bytes, never by name, date or size alone."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.spark.source.options import DataLossError
from tests.support.spark_source import batch_reader, drained, first_column, put, reader, saved, step

SECOND = 1_790_000_000
OLD, NEW = b"old 1\nold 2\n", b"new 1\nnew 2\n"
OLD_ROWS, NEW_ROWS = ["old 1", "old 2"], ["new 1", "new 2"]


def write(path: Path, data: bytes, at_ms: int = 0) -> None:
    path.write_bytes(data)
    os.utime(path, ns=((SECOND * 1000 + at_ms) * 10**6,) * 2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A plain file in a folder of its own."""
    path = tmp_path / "f" / "app.log"
    path.parent.mkdir()
    write(path, OLD)
    return path


def removed(log: Path, name: str, data: bytes) -> None:
    log.unlink()
    write(log.with_name(name), data, 7)


def rotated(log: Path, more: bytes = b"") -> None:
    log.rename(log.with_name("app.log.1"))
    with log.with_name("app.log.1").open("ab") as old:
        old.write(more)
    write(log, NEW, 9)


def moved(log: Path) -> None:
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    fs.mv(str(log), f"{log}.1")
    fs.append(f"{log}.1", b"more\n")


def moved_and_written(log: Path) -> None:
    moved(log)
    write(log, NEW, 9)


def rotated_by_mv(log: Path) -> None:
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    moved(log)
    put(fs, log, NEW, RollingPolicy(max_bytes=4, inline_bytes=1))


def rotated_twice_by_mv(log: Path) -> None:
    rotated_by_mv(log)
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    fs.mv(f"{log}.1", f"{log}.2")
    fs.mv(str(log), f"{log}.1")


def overwritten(log: Path) -> None:
    """The tombstone names the plain file, and the segment that replaced it."""
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    fs.overwrite(str(log), NEW)
    fs.mv(str(log), f"{log}.1")


def replaced(log: Path, data: bytes) -> None:
    """As editors save: the name goes to another file."""
    write(log.with_name(".swap"), data, 5)
    log.with_name(".swap").replace(log)


LOST = [
    pytest.param(lambda log: removed(log, "b.log", NEW), NEW_ROWS, id="another of the same second and size"),
    pytest.param(lambda log: removed(log, "b.log", OLD), OLD_ROWS, id="another of the same bytes"),
    pytest.param(lambda log: removed(log, "app.log", NEW), NEW_ROWS, id="another of the same name"),
    pytest.param(lambda log: removed(log, "b.log", OLD[:-1] + b"!\n"), ["old 1", "old 2!"], id="almost the same bytes"),
    pytest.param(lambda log: write(log, NEW, 1), NEW_ROWS, id="written in place in the same second"),
    pytest.param(lambda log: write(log, NEW * 2, 1), NEW_ROWS * 2, id="cut off and written past the offset"),
    pytest.param(lambda log: write(log, NEW[:6], 1), NEW_ROWS[:1], id="cut off and written before the offset"),
    pytest.param(lambda log: replaced(log, NEW), NEW_ROWS, id="replaced by another"),
    pytest.param(overwritten, NEW_ROWS, id="overwritten by as many bytes, and renamed by mv"),
]
KEPT = [
    pytest.param(lambda log: log.rename(log.with_name("b")), [], id="renamed"),
    pytest.param(lambda log: rotated(log), NEW_ROWS, id="rotated"),
    pytest.param(lambda log: rotated(log, b"more\n"), [*NEW_ROWS, "more"], id="rotated, the old file grows"),
    pytest.param(moved, ["more"], id="renamed by mv, which makes a segment of it"),
    pytest.param(moved_and_written, [*NEW_ROWS, "more"], id="renamed by mv, and written anew"),
    pytest.param(rotated_by_mv, [*NEW_ROWS, "more"], id="renamed by mv, and a segment has its name"),
    pytest.param(rotated_twice_by_mv, [*NEW_ROWS, "more"], id="renamed by mv, and that segment, too"),
    pytest.param(lambda log: write(log, OLD + NEW, 1), NEW_ROWS, id="grown"),
    pytest.param(lambda log: write(log, OLD + NEW), NEW_ROWS, id="grown within the second"),
    pytest.param(lambda log: replaced(log, OLD + NEW), NEW_ROWS, id="replaced by a longer copy"),
    pytest.param(lambda log: write(log, OLD, 5000), [], id="touched"),
]


@pytest.mark.parametrize(("change", "expected"), LOST)
def test_another_file_is_data_loss_and_optionally_read(log, change, expected):
    _, at = step(reader(log.parent))
    change(log)
    with pytest.raises(DataLossError, match=r"app\.log: (the segment is gone|another segment has this name now)"):
        reader(log.parent).latestOffset(at, reader(log.parent).getDefaultReadLimit())
    source = reader(log.parent, failOnDataLoss="false")
    found, end = step(source, at)
    assert found == expected
    assert drained(log.parent, at=end, failOnDataLoss="false") == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("change", "expected"), KEPT)
def test_renamed_or_grown_file_is_read_once(log, change, expected, is_restarted):
    source = reader(log.parent)
    found, at = step(source)
    assert found == OLD_ROWS
    change(log)
    found, end = step(reader(log.parent) if is_restarted else source, at)
    assert found == expected
    assert drained(log.parent, at=end) == []


def test_unread_log_is_found_where_a_segment_follows(log):
    start = saved(reader(log.parent).initialOffset())
    rotated_by_mv(log)
    assert step(reader(log.parent), start)[0] == [*NEW_ROWS, *OLD_ROWS, "more"]
    RollingFileSystem("file").rm(f"{log}.1")
    with pytest.raises(DataLossError, match=r"app\.log: another segment has this name now"):
        step(reader(log.parent), start)


@pytest.mark.parametrize("crash", [False, True])
def test_planned_batch_survives_a_renamed_or_grown_file(log, crash):
    source = reader(log.parent)
    start = saved(source.initialOffset())
    end = saved(source.latestOffset(start, source.getDefaultReadLimit()))
    parts = source.partitions(start, end)
    write(log, OLD + NEW, 1)
    batch = batch_reader(log.parent)
    planned = batch.partitions()
    write(log, OLD + NEW * 2, 2)
    assert first_column(batch, planned) == OLD_ROWS + NEW_ROWS
    if crash:
        log.rename(log.with_name("b"))
        source = reader(log.parent)
        parts = source.partitions(start, end)
    assert first_column(source, parts) == OLD_ROWS


def test_checkpoint_without_inode_and_head_takes_no_rename(log):
    _, at = step(reader(log.parent))
    mark = at[str(log)]
    old = {str(log): {"segment": f"plain {SECOND} {len(OLD)}", "offset": mark["offset"], "check": mark["check"]}}
    assert step(reader(log.parent), old)[0] == []
    write(log, OLD + NEW, 1)
    assert step(reader(log.parent), old)[0] == NEW_ROWS
    write(log, OLD)
    log.rename(log.with_name("b"))
    with pytest.raises(DataLossError, match="the segment is gone"):
        step(reader(log.parent), old)


@pytest.mark.parametrize(
    ("change", "rows", "is_lost"),
    [
        ({"f/a": OLD + NEW}, NEW_ROWS, False),
        ({"f/a": OLD}, [], False),
        ({"f/a": NEW}, NEW_ROWS, True),
        ({"f/b": OLD}, OLD_ROWS, True),
        ({"f/b": OLD + NEW}, OLD_ROWS + NEW_ROWS, True),
    ],
)
def test_an_object_is_known_by_its_name_and_bytes(change, rows, is_lost, request):
    """A store has no renames, so an object under another name is another one, also with the same bytes."""
    store, top = fsspec.filesystem("memory"), f"identity{abs(hash(request.node.name))}"
    store.pipe(f"/{top}/f/a", OLD)
    try:
        _, at = step(reader(f"memory://{top}/f"))
        store.rm(f"/{top}/f/a")
        store.pipe({f"/{top}/{path}": data for path, data in change.items()})
        if is_lost:
            with pytest.raises(DataLossError):
                step(reader(f"memory://{top}/f"), at)
        assert step(reader(f"memory://{top}/f", failOnDataLoss="false"), at)[0] == rows
    finally:
        store.rm(f"/{top}", recursive=True)


# -- another path on the same checkpoint -----------------------------------------------------------------------------


def linked(folder: Path) -> Path:
    folder.with_name("link").symlink_to(folder)
    return folder.with_name("link")


def renamed(folder: Path) -> Path:
    return folder.rename(folder.with_name("renamed"))


def other(folder: Path) -> Path:
    shutil.copytree(folder, folder.with_name("g") / "in")
    fs = RollingFileSystem("file", sync=False, header_cache_s=0)
    put(fs, folder.with_name("g") / "s", b"other\n")
    shutil.rmtree(folder.with_name("g") / "in")
    return folder.with_name("g")


@pytest.mark.parametrize(("change", "expected"), [(linked, []), (renamed, []), (other, ["other"])])
@pytest.mark.parametrize("is_now", [False, True])
def test_query_restarted_with_another_path_reads_once(
    fs: RollingFileSystem, log: Path, change: Callable[[Path], Path], expected: list[str], is_now: bool
) -> None:
    put(fs, log.with_name("segment"), b"segment\n")
    found, at = step(reader(log.parent))
    assert sorted(found) == [*OLD_ROWS, "segment"]
    first = log.parent
    second = change(first)
    source = reader(second)
    if is_now:
        source.prepareForTriggerAvailableNow()
    found, at = step(source, at)
    assert found == expected
    put(fs, (second if change is renamed else first) / "segment", b"more\n")
    assert drained(second, at=at) == ([] if change is other else [["more"]])
    if change is other:  # the place in the first folder is kept
        assert drained(first, at=at) == [["more"]]


def test_plain_files_offset_is_text_that_spark_compares(log: Any) -> None:
    source = reader(log.parent)
    _, at = step(source)
    assert source.latestOffset(at, source.getDefaultReadLimit()) == at
    assert json.dumps(reader(log.parent).latestOffset(at, source.getDefaultReadLimit())) == json.dumps(at)
