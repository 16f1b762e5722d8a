"""Maintenance of many segments: each gives a row, also if it fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.parquet import append
from rollingfs.spark.maintain import maintain, tasks
from rollingfs.spark.segment_operations import OutcomeRow

SMALL = RollingPolicy(max_bytes=100, inline_bytes=10)


def fill(fs: RollingFileSystem, folder: Path, count: int, lines: int = 20) -> list[str]:
    paths = [f"{folder}/in/s{nth}" for nth in range(count)]
    for path in paths:
        fs.create(path, SMALL)
        for nth in range(lines):
            fs.append(path, b"line %04d\n" % nth)
    return paths


def by_path(rows: list[OutcomeRow]) -> dict[str, OutcomeRow]:
    return {row.path: row for row in rows}


def test_info_says_what_each_segment_is_and_changes_nothing(fs, tmp_path):
    paths = fill(fs, tmp_path, 3)
    fs.seal(paths[1])
    rows = maintain(None, f"file://{tmp_path}", "info")
    found = [(row.path, row.done, row.length, row.sealed) for row in rows]
    assert found == [(path, True, 200, path == paths[1]) for path in paths]
    assert json.loads(rows[0].details)["info"]["size"] == 200
    assert [row.version for row in rows] == [row.version for row in maintain(None, str(tmp_path), "info")]


def test_failed_segment_is_its_row_and_others_continue(fs, tmp_path):
    paths = fill(fs, tmp_path, 4)
    Path(f"{paths[0]}$header").write_text("rubbish")
    next(Path(f"{paths[1]}$chunks").glob("0*")).unlink()
    held = fs.segment(paths[2]).acquire("somebody")
    rows = by_path(maintain(None, str(tmp_path), ["verify", "seal"]))
    assert (rows[paths[0]].done, rows[paths[0]].length) == (False, None)
    assert "CorruptHeaderError" in str(rows[paths[0]].error)
    assert (rows[paths[1]].operation, rows[paths[1]].sealed) == ("verify", False)
    assert "is missing" in str(rows[paths[1]].error)
    assert (rows[paths[2]].operation, rows[paths[2]].done) == ("seal", False)
    assert "FencedError" in str(rows[paths[2]].error)
    assert (rows[paths[3]].done, rows[paths[3]].sealed, rows[paths[3]].error) == (True, True, None)
    held.release()


def test_unreadable_index_page_for_the_count_is_a_row(fs, tmp_path):
    good, bad = fill(fs, tmp_path, 2, lines=1)
    for _ in range(140):
        fs.append(bad, b"x" * 100)
    fs.truncate(bad, 5000)
    for page in Path(f"{bad}$chunks").glob("index-*"):
        page.write_bytes(b"rubbish")
    rows = by_path(maintain(None, str(tmp_path), "info"))
    assert (rows[good].done, rows[good].chunks) == (True, 0)
    assert (rows[bad].done, rows[bad].chunks, rows[bad].length) == (False, None, 14010)
    assert "CorruptHeaderError" in str(rows[bad].error)


def test_truncation_keeps_no_less_than_asked_and_whole_lines(fs, tmp_path):
    [path] = fill(fs, tmp_path, 1)
    [dry] = maintain(None, path, "truncate", keep=55, align="\n", dry_run=True)
    assert (dry.bytes, fs.segment(path).start) == (140, 0)
    [row] = maintain(None, path, "truncate", keep=55, align="\n")
    assert (row.bytes, row.start, fs.cat_file(path)[:10]) == (140, 140, b"line 0014\n")
    [again] = maintain(None, path, "truncate", keep=55, align="\n")
    assert (again.bytes, again.version) == (0, row.version)
    [exact] = maintain(None, path, "truncate", keep="50")
    assert exact.start == 150
    [none] = maintain(None, path, "truncate", keep=7, align="never")
    assert none.start == 150


def test_maintaining_everything_twice_frees_as_stated_and_keeps_bytes(fs, tmp_path):
    paths = fill(fs, tmp_path, 2)
    fs.stage(paths[0], b"nobody commits this")
    operations = ["collect", "consolidate", "seal", "truncate", "verify", "info"]
    rows = maintain(None, str(tmp_path), operations, keep=100, grace=0, readers_grace=0)
    assert [row.error for row in rows] == [None, None]
    first = json.loads(rows[0].details)
    assert list(first) == ["info", "verify", "truncate", "seal", "consolidate", "collect"]
    assert first["collect"]["files"] >= 1
    assert all(fs.cat_file(path) == b"".join(b"line %04d\n" % nth for nth in range(10, 20)) for path in paths)
    again = maintain(None, str(tmp_path), operations, keep=100, grace=0, readers_grace=0)
    assert [json.loads(row.details)["truncate"]["offset"] for row in again] == [100, 100]
    assert [json.loads(row.details)["seal"] for row in again] == [{"sealed_now": False}] * 2


def test_grown_parquet_files_are_rewritten_and_others_reported(fs, tmp_path):
    paths = [f"{tmp_path}/in/a", f"{tmp_path}/in/b"]
    for nth in range(3):
        append(fs, paths[0], {"n": [nth]})
    fs.pipe_file(paths[1], b"text")
    length = fs.segment(paths[0]).length
    rows = maintain(None, str(tmp_path), ["rewrite", "seal"])
    assert [(row.done, row.operation, row.start) for row in rows] == [(True, "seal", length), (False, "rewrite", 0)]
    assert rows[0].bytes > 0
    assert "MalformedFooterError" in str(rows[1].error)
    assert fs.segment(paths[1]).sealed is False


def test_collection_also_visits_what_is_left_of_deleted_segments(fs, tmp_path):
    [path] = fill(fs, tmp_path, 1)
    staged = fs.stage(path, b"left over")
    fs.rm(path)
    assert maintain(None, str(tmp_path), ["info", "seal"]) == []
    [row] = maintain(None, str(tmp_path), ["info", "collect"], grace=0)
    assert (row.operation, row.done, row.length) == ("collect", True, None)
    assert not Path(staged.chunks[0].path).exists()


def test_folder_is_exported_and_a_second_run_finds_it(fs, tmp_path):
    paths = fill(fs, tmp_path, 3)
    fs.pipe_file(f"{tmp_path}/in/deep/er", b"deep")
    out = tmp_path / "out"

    def run(**options: Any) -> dict[str, OutcomeRow]:
        return by_path(maintain(None, f"{tmp_path}/in", "export", target=f"file://{out}", **options))

    rows = run(dry_run=True)
    assert not out.exists()
    rows = run()
    assert [row.error for row in rows.values()] == [None] * 4
    assert [row.bytes for row in rows.values()] == [4, 200, 200, 200]
    assert (out / "deep/er").read_bytes() == b"deep"
    assert all((out / Path(path).name).read_bytes() == fs.cat_file(path) for path in paths)
    assert json.loads(rows[paths[0]].details)["export"] == {"target": f"file://{out}/s0", "size": 200}
    assert [row.bytes for row in run().values()] == [0] * 4
    fs.append(paths[0], b"more")
    assert "FileExistsError" in str(run()[paths[0]].error)
    assert [row.bytes for row in run(overwrite=True).values()] == [0, 204, 0, 0]
    fs.overwrite(paths[0], fs.cat_file(paths[0])[::-1])  # as long, but later
    assert [row.bytes for row in run(overwrite=True).values()] == [0, 204, 0, 0]
    assert (out / "s0").read_bytes() == fs.cat_file(paths[0])


def test_patterns_and_segments_are_exported_to_distinct_names(fs, tmp_path):
    paths = fill(fs, tmp_path, 3)
    for places in (f"{tmp_path}/i*/s0", [f"{tmp_path}/i*/s0", paths[1]]):  # the deepest folder that is named counts
        assert not any(row.error for row in maintain(None, places, "export", target=f"{tmp_path}/out"))
    found = sorted(str(file.relative_to(tmp_path)) for file in (tmp_path / "out").rglob("*"))
    assert found == ["out/in", "out/in/s0", "out/s0", "out/s1"]
    fs.create(f"{tmp_path}/other/s1")
    with pytest.raises(ValueError, match=r"would both be exported to .*/out/s1; nothing was done"):
        maintain(None, [paths[1], f"{tmp_path}/other/s1"], "export", target=f"{tmp_path}/out")


def test_sealed_segments_become_one_for_each_folder_once(fs, tmp_path):
    paths = [path for name in ("a", "b") for path in fill(fs, tmp_path / name, 3)]
    expected = [b"".join(fs.cat_file(path) for path in some) for some in (paths[:3], paths[3:])]
    targets = [f"{tmp_path}/{name}/in/whole" for name in "ab"]
    for path in paths[:3]:
        fs.seal(path)
    rows = by_path(maintain(None, str(tmp_path), "concat", into="whole", dry_run=True))
    assert not fs.exists(targets[0])
    rows = by_path(maintain(None, str(tmp_path), ["concat", "info"], into="whole"))
    assert sorted(rows) == [*paths[:3], targets[0], *paths[3:]]
    assert [rows[path].error for path in (*paths[:3], targets[0])] == [None] * 4
    assert (rows[targets[0]].bytes, json.loads(rows[targets[0]].details)["info"]["size"]) == (600, 600)
    assert json.loads(rows[paths[0]].details) == {"concat": {"bytes": 200, "into": targets[0]}}
    assert all("SegmentNotSealedError" in str(rows[path].error) for path in paths[3:])
    assert fs.find(f"{tmp_path}/b") == paths[3:], "nothing was done in the folder with open segments"
    rows = by_path(maintain(None, str(tmp_path), ["seal", "concat"], into="whole"))
    assert not any(row.error for row in rows.values())
    assert [fs.cat_file(target) for target in targets] == expected
    assert fs.find(str(tmp_path)) == targets
    assert all(row.operation != "concat" for row in maintain(None, targets, ["concat", "info"], into="whole"))


def test_open_last_lines_join_as_lines(fs, tmp_path):
    for folder, contents in (("lines", (b"a,1\nb,2", b"c,3\n", b"d,4")), ("zips", (b"PK\x03\x04 1", b"line\n"))):
        for nth, data in enumerate(contents):
            fs.pipe_file(f"{tmp_path}/{folder}/s{nth}", data)
    rows = by_path(maintain(None, str(tmp_path), ["seal", "concat"], into="whole"))
    assert fs.cat_file(f"{tmp_path}/lines/whole") == b"a,1\nb,2\nc,3\nd,4"
    refused = {path for path, row in rows.items() if "WholeFileError" in str(row.error)}
    assert refused == {f"{tmp_path}/zips/s{nth}" for nth in range(2)}
    assert [fs.segment(path).state for path in sorted(refused)] == ["sealed"] * 2
    assert not fs.exists(f"{tmp_path}/zips/whole")


@pytest.mark.parametrize(
    ("operations", "options", "message"),
    [
        ("polish", {}, "polish; they must be of retain"),
        ([], {}, "none; they must be of retain"),
        ("truncate", {}, "needs keep="),
        ("export", {}, "needs target="),
        ("trim", {}, "needs cut="),
        ("info", {"after_age": "7d"}, "of 'offload'"),
        ("concat", {}, "needs into="),
        ("concat", {"into": "a/b"}, "must be the name of a segment"),
        ("truncate", {"keep": -1}, "cannot keep -1"),
        ("truncate", {"keep": 1, "align": ""}, "aligned by ''"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_touched(tmp_path, operations, options, message):
    with pytest.raises(ValueError, match=message):
        maintain(None, str(tmp_path), operations, **options)


def test_places_on_two_backends_are_refused(tmp_path):
    with pytest.raises(ValueError, match="one backend, but they are on file, s3"):
        maintain(None, [str(tmp_path), "s3://b/x"])
    with pytest.raises(ValueError, match="different hosts"):
        maintain(None, ["webhdfs://a:1/x", "webhdfs://b:1/x"])


@pytest.mark.parametrize(("paths", "expected"), [(0, 1), (5, 5), (100, 64), (6400, 100)])
def test_job_has_many_tasks_with_limited_paths_each(paths, expected):
    assert tasks(paths) == expected


# -- streams and tiers ---------------------------------------------------------------------------------------------


def tiered(folder: Path) -> tuple[RollingFileSystem, dict[str, Any]]:
    options = {"sync": False, "tiers": {"cold": f"{folder}/cold"}}
    return RollingFileSystem("file", **options, skip_instance_cache=True), {"rolling": options}


def test_retention_gives_rows_and_keeps_the_streams_memory(fs, tmp_path):
    paths = fill(fs, tmp_path, 3)
    fs.seal(paths[2])
    stream = fs.stream(f"{tmp_path}/in")
    stream.retention = RetentionPolicy.by_size(0, every=0)
    fs.create(f"{tmp_path}/alone")
    dry = by_path(maintain(None, str(tmp_path), "retain", dry_run=True))
    assert [(dry[path].bytes, dry[path].start) for path in paths] == [(200, 0)] * 3
    rows = by_path(maintain(None, str(tmp_path), ["retain", "truncate", "seal"], keep=10))
    did = [(rows[path].done, rows[path].operation, rows[path].bytes) for path in paths]
    assert did == [(True, "seal", 200), (True, "seal", 200), (True, "retain", 200)]
    assert [rows[path].start for path in paths] == [200, 200, None]
    assert json.loads(rows[paths[2]].details) == {"retain": {"bytes": 200, "deleted": True}}
    assert rows[f"{tmp_path}/alone"].sealed is True
    again = maintain(None, str(tmp_path), "retain")
    assert {(row.operation, row.done, row.bytes) for row in again} == {("retain", True, 0)}
    assert stream.retention is not None, "truncate and seal leave the memory of the stream alone"
    assert fs.segment(f"{tmp_path}/in/$stream").sealed is False


def test_failed_stream_gives_rows_and_other_streams_continue(fs, tmp_path):
    paths = [*fill(fs, tmp_path, 2), f"{tmp_path}/in/low/x"]
    other = f"{tmp_path}/other/x"
    for path in (other, paths[2]):
        fs.create(path, SMALL)
        fs.append(path, b"x" * 100)
    for folder in ("in", "other"):
        fs.stream(f"{tmp_path}/{folder}").retention = RetentionPolicy.by_size(0, every=0)
    Path(f"{tmp_path}/in/$stream$header").write_text("rubbish")
    rows = by_path(maintain(None, str(tmp_path), ["retain", "seal"]))
    for path in paths:
        assert (rows[path].done, rows[path].operation) == (False, "retain")
        assert "CorruptHeaderError" in str(rows[path].error)
        assert fs.segment(path).sealed is False
    assert (rows[other].done, rows[other].bytes, rows[other].sealed) == (True, 100, True)
    with pytest.raises(ValueError, match="no stream"):
        maintain(None, paths[0], "retain")


def test_trim_to_cut_gives_rows_and_refuses_foreign_cuts(fs, tmp_path):
    paths = fill(fs, tmp_path, 2)
    cut = fs.stream(f"{tmp_path}/in").cut()
    for path in paths:
        fs.append(path, b"more\n")
    expected = maintain(None, str(tmp_path), "trim", cut=cut, dry_run=True)
    assert [(row.bytes, row.start) for row in expected if row.path in paths] == [(200, 0)] * 2
    rows = by_path(maintain(None, str(tmp_path), "trim", cut=str(cut)))
    assert [(rows[path].done, rows[path].bytes, rows[path].start) for path in paths] == [(True, 200, 200)] * 2
    again = maintain(None, str(tmp_path), "trim", cut=cut)
    assert {(row.operation, row.done, row.bytes) for row in again} == {("trim", True, 0)}
    with pytest.raises(ValueError, match="not at the URLs; nothing was trimmed"):
        maintain(None, paths[0], "trim", cut=cut)


def test_segments_are_offloaded_by_policy_and_failures_are_rows(tmp_path):
    fs, options = tiered(tmp_path)
    paths = fill(fs, tmp_path, 3)
    fs.set_policy(f"{tmp_path}/in", OffloadPolicy("cold", after_bytes=100))
    fs.set_policy(paths[1], OffloadPolicy(""))
    fs.set_policy(paths[2], OffloadPolicy(after_bytes=0))
    next(Path(f"{paths[2]}$chunks").glob("0*")).write_bytes(b"damaged")
    urls = f"{tmp_path}/in"
    assert [row.bytes for row in maintain(None, urls, "offload", storage_options=options, dry_run=True)] == [0] * 4
    rows = by_path(maintain(None, urls, "offload", storage_options=options))
    assert [(rows[path].done, rows[path].bytes) for path in paths] == [(True, 100), (True, 0), (False, 0)]
    assert "damaged" in str(rows[paths[2]].error)
    assert json.loads(rows[paths[0]].details)["offload"]["bytes"] == 100
    rows = by_path(maintain(None, paths[1], "offload", storage_options=options, tier="cold", after_bytes=0))
    assert rows[paths[1]].bytes > 0
    rows = by_path(maintain(None, paths[0], "offload", storage_options=options, tier="cold", block_bytes=50))
    assert json.loads(rows[paths[0]].details)["offload"]["files"] == 3
    rows = by_path(maintain(None, paths[1], "offload", storage_options=options, tier="warm"))
    assert "UnknownTierError" in str(rows[paths[1]].error)
    assert fs.cat_file(paths[0]) == b"".join(b"line %04d\n" % nth for nth in range(20))
    with pytest.raises(ValueError, match="of 'offload'"):
        maintain(None, urls, "info", storage_options=options, tier="cold")


@pytest.mark.slow
def test_a_spark_job_retains_and_offloads_as_threads_do(tmp_path, source: Any):
    fs, options = tiered(tmp_path)

    def found(spark: Any, run: str) -> list[Any]:
        fill(fs, tmp_path / run, 4)
        fs.set_policy(f"{tmp_path}/{run}/in", OffloadPolicy("cold", after_bytes=50))
        fs.stream(f"{tmp_path}/{run}/in").retention = RetentionPolicy.by_size(100, every=0)
        Path(f"{tmp_path}/{run}/in/s1$header").write_text("rubbish")
        frame = maintain(spark, f"{tmp_path}/{run}", ["retain", "offload"], storage_options=options)
        rows = frame if spark is None else [OutcomeRow(**row.asDict()) for row in frame.collect()]
        told = [(row.path, row.operation, row.done, row.bytes, row.details, row.start, row.error) for row in rows]
        return json.loads(json.dumps(told).replace(f"{tmp_path}/{run}/", ""))

    by_threads = found(None, "threads")
    assert found(source, "job") == by_threads
    assert sum(row[3] for row in by_threads) > 0
    assert [row[0] for row in by_threads if not row[2]] == ["in/s1"]


def test_upkeep_does_what_a_round_of_run_does(fs, tmp_path):
    paths = fill(fs, tmp_path, 2, lines=40)
    fs.seal(paths[1])
    plan = by_path(maintain(None, str(tmp_path), "upkeep", dry_run=True))
    assert json.loads(plan[paths[1]].details)["upkeep"] == {"files": 0, "young": 0}
    rows = by_path(maintain(None, str(tmp_path), "upkeep", readers_grace=0))
    assert [rows[path].error for path in paths] == [None, None]
    assert (rows[paths[0]].chunks, rows[paths[1]].chunks) == (20, 4)
    did = json.loads(rows[paths[1]].details)["upkeep"]
    assert (did["joined_chunks"], did["joined_to"], did["write_amplification"]) == (20, 4, 2.0)
    assert rows[paths[1]].bytes == 400
