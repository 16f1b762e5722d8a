"""`fs.metrics()`: what a filesystem says that it has done is what a backend below it has seen."""

import json
import pickle

import pytest

from rollingfs import AppendOutcomeUnknown, RollingFileSystem
from rollingfs.show.metrics import Calls, Timing
from tests.support.backends import Counting, Scripted, fail, private_memory

PATH = "/folder/s"


@pytest.fixture
def fs() -> RollingFileSystem:
    return filesystem(Counting(private_memory()))


def filesystem(below: Counting, **options: object) -> RollingFileSystem:
    return RollingFileSystem(backend=below, max_bytes=1000, inline_bytes=100, skip_instance_cache=True, **options)


def test_bytes_and_calls_by_verb(fs):
    fs.pipe_file(PATH, b"x" * 300)
    for size in (10, 20, 1_200_000):
        fs.append(PATH, b"y" * size)
    with fs.open(PATH, "ab") as file:
        file.write(b"z" * 7)
    metrics = fs.metrics()
    assert (metrics.overwrite.count, metrics.overwrite.bytes) == (1, 300)
    assert (metrics.append.count, metrics.append.bytes) == (4, 1_200_037)
    assert metrics.commits.count == 5
    assert metrics.read == Calls()
    fs.cat_file(PATH, 0, 100)
    fs.cat_ranges([PATH] * 2, [0, 5], [10, 20])
    read = fs.metrics().read
    assert (read.count, read.errors, read.bytes) == (2, 0, 125)
    assert fs.cat_ranges([PATH], [0], [1], on_error="return")
    assert metrics.read == Calls()  # a value does not change


def test_a_lost_race_counts_as_a_conflict():
    below = Scripted(private_memory())
    fs, other = filesystem(below), filesystem(below)
    fs.pipe_file(PATH, b"")
    refused = fs.metrics().requests["replace"].refused  # the probe has tried it
    below.plan("replace", before=lambda: other.append(PATH, b"first"))
    fs.append(PATH, b"second")
    assert fs.cat_file(PATH) == b"firstsecond"
    metrics = fs.metrics()
    assert (metrics.conflicts, metrics.commits.count, metrics.commits.errors) == (1, 2, 0)
    assert metrics.requests["replace"].refused == refused + 1
    assert other.metrics().conflicts == 0
    assert other.metrics().commits.count == 1


def test_an_unknown_append_is_counted():
    below = Scripted(private_memory())
    fs = filesystem(below, commit_timeout_s=0.05)
    fs.pipe_file(PATH, b"")
    below.plan("replace", after=fail, times=None)
    below.plan(("read_if_changed", "read"), before=fail, times=None)
    with pytest.raises(AppendOutcomeUnknown):
        fs.append(PATH, b"x")
    metrics = fs.metrics()
    assert (metrics.unknown, metrics.commits.count, metrics.append.errors) == (1, 1, 1)
    assert metrics.append.bytes == 0


def test_reads_that_fail_are_errors(fs):
    fs.pipe_file(PATH, b"x" * 500)
    listing = fs._bridge.run(fs._backend.list(f"{PATH}$chunks"))
    fs._bridge.run(fs._backend.delete([one.path for one in listing.entries if not one.is_folder]))
    assert isinstance(fs.cat_ranges([PATH], [0], [500])[0], Exception)
    assert fs.metrics().read.errors == 1


def test_metrics_can_be_pickled_compared_and_written(fs):
    fs.pipe_file(PATH, b"123")
    metrics = fs.metrics()
    assert pickle.loads(pickle.dumps(metrics)) == metrics
    found = json.loads(json.dumps(metrics.as_dict()))
    assert found["overwrite"]["bytes"] == 3
    assert found["requests"].keys() == metrics.requests.keys()
    assert sum(count for _, count in found["commits"]["timing"]["buckets"]) == found["commits"]["count"] == 1


def test_people_see_a_table(fs):
    fs.pipe_file(PATH, b"x" * 2048)
    text = repr(fs.metrics())
    title, head, *rows = text.splitlines()
    assert title.startswith("Metrics: ")
    assert "0 conflicts" in title
    assert head.split() == ["count", "refused", "errors", "bytes", "median", "p99", "total"]
    assert any(row.startswith("overwrite") and "2.0 KiB" in row for row in rows)
    assert not any(row.startswith("append") for row in rows)
    html = fs.metrics()._repr_html_()
    assert "<td>overwrite</td>" in html
    assert html.count("<table>") == html.count("</table>") == 1


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 0.001), (0.5, 0.001), (0.51, 0.002), (0.99, 0.002), (0.991, 4.0), (1, 4.0)]
)
def test_quantiles_are_the_bounds_of_their_buckets(share, expected):
    assert Timing(1000, 5.0, ((0.001, 500), (0.002, 490), (4.0, 10))).quantile_s(share) == expected


def test_empty_quantiles_are_zero_and_shares_checked():
    assert Timing().median_s == Timing().p99_s == Timing().mean_s == 0.0
    with pytest.raises(ValueError, match="from 0 to 1"):
        Timing().quantile_s(1.5)
