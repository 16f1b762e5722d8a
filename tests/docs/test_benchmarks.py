"""The benchmarks run, and judge rightly; no test here looks at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import aws_environment, new_bucket, require_module

require_module("pyarrow")
require_module("s3fs")
require_module("rich")

from s3fs import S3FileSystem

from benchmarks.case import Case, Goal, Sample, figure, ratio
from benchmarks.cases import ALL
from benchmarks.content import TILE_BYTES, check, content
from benchmarks.fabricate import page_counts
from rollingfs.format.header import LARGE_PAGE_CHUNKS, LOOSE_CHUNKS_MAX, PAGE_CHUNKS

REPOSITORY = Path(__file__).parents[2]


def test_content_is_found_wrong_wherever_one_byte_is():
    data = bytearray(content(100, TILE_BYTES + 10))
    assert check(data, 100) == len(data)
    for at in (0, TILE_BYTES - 101, TILE_BYTES - 99, len(data) - 1):
        data[at] ^= 1
        with pytest.raises(AssertionError, match="wrong bytes"):
            check(data, 100)
        data[at] ^= 1


def test_content_misplaced_by_whole_mebibytes_is_found_wrong():
    for mebibytes in (1, 4, 8, 64, 256):
        with pytest.raises(AssertionError):
            check(content(mebibytes * 2**20, 100), 0)


def test_goals_are_judged_by_medians_of_present_contestants():
    from benchmarks.report import judge
    from benchmarks.runner import Outcome

    goals = (Goal("a / b", ratio("wall_s", "a", "b"), at_most=0.5), Goal("c", figure("wall_s", "c"), at_least=1))
    outcome = Outcome(
        Case("X", "x", {}, goals), {"a": [Sample(wall_s=wall) for wall in (1, 9, 2)], "b": [Sample(wall_s=4)]}
    )
    assert [(judged["found"], judged["met"]) for judged in judge(outcome)] == [(0.5, True), (None, None)]


@pytest.mark.parametrize("count", [1, 128, 129, 256, 4224, 4225, 100_000, 1_000_000])
def test_a_fabricated_segment_has_the_chunks_of_appends(count):
    counts = page_counts(count)
    assert set(counts) <= {PAGE_CHUNKS, LARGE_PAGE_CHUNKS}
    assert 0 < count - sum(counts) <= LOOSE_CHUNKS_MAX


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.usefixtures("minio")
@pytest.mark.timeout(900)
def test_a_quick_run_measures_every_contestant(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    works = json.loads((tmp_path / "quick.json").read_text())["works"]
    assert list(works) == [case.id for case in ALL]
    for case in ALL:
        rounds, skipped = works[case.id]["rounds"], works[case.id]["skipped"]
        assert {*rounds, *skipped} == {*case.contestants}
        assert not any(name.startswith("rollingfs") for name in skipped)
    assert works["P1"]["medians"]["rollingfs append"]["requests"] <= 1.02


@pytest.mark.slow
def test_a_store_of_the_environment_is_left_clean(seaweed, tmp_path):
    bucket = new_bucket(seaweed)
    settings = aws_environment(seaweed) | {"AWS_ALLOW_HTTP": "true"}
    store = ["--store", f"s3://{bucket}/some/prefix", "--only", "P8", "--results", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "--quick", *store]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "open to the first byte" in done.stdout
    assert not list(tmp_path.iterdir())
    assert S3FileSystem(**seaweed, skip_instance_cache=True).find(bucket) == []
