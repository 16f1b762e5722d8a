"""``rollingfs top``: on a pipe and as JSON once, on a terminal until Ctrl-C."""

import io
import json
from pathlib import Path
from unittest.mock import Mock

import fsspec
import pytest
from rich.console import Console

from rollingfs import RollingFileSystem
from rollingfs.cli import output, top
from rollingfs.show.readable import next_text, prices_of, saved_text
from rollingfs.stream.states import Outlook, SegmentState
from tests.support.cli import Run, done, terminal


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Segments of 100, 250 and 400 bytes in chunks of 50 and less; the second is offloaded in part."""
    folder = f"{tmp_path}/logs"
    options = {"max_bytes": 50, "inline_bytes": 0, "sync": False, "skip_instance_cache": True}
    fs = RollingFileSystem("file", tiers={"cold": f"{tmp_path}/archive"}, **options)
    for name, size in (("a", 100), ("b", 250), ("c", 400)):
        fs.pipe_file(f"{folder}/{name}", b"x" * size)
    fs.offload(f"{folder}/b", upto=100)
    return folder


def rows(text: str) -> list[list[str]]:
    """The words of each row."""
    _, *lines = text.partition("\nsegment ")[2].splitlines()
    return [line.split() for line in lines]


SORTED = {"name": "abc", "size": "cba", "cold": "bac", "hot": "cba", "lag": "cba", "drops": "bac"}


@pytest.mark.parametrize(("sort", "expected"), SORTED.items())
def test_piped_output_shows_each_segment_once_in_order(root, sort, expected):
    found = done("top", root, "--sort", sort, "--after-bytes", "0")
    assert "".join(row[0] for row in rows(found.text)) == expected


def test_summary_adds_segments_up_and_says_what_look_cost(root):
    found = done("top", root, "--once", "--after-bytes", "0")
    assert found.text.splitlines()[0] == f"{root}: 3 segments, 650 B hot, 100 B cold, 650 B to offload, 1 request"
    [b] = [row for row in rows(found.text) if row[0] == "b"]
    assert (b[1:4], b[4:9]) == (["open", "0", "250"], ["150", "B", "100", "B", "100"])


def test_sizes_and_the_next_upkeep_equal_the_next_round(root, tmp_path):
    fs = fsspec.filesystem("rolling", target_protocol="file", max_bytes=4096, inline_bytes=0, skip_instance_cache=True)
    fs.create(f"{root}/many")
    for _ in range(50):
        fs.append(f"{root}/many", b"x" * 100)
    tiers = ("--option", f"tiers.cold.root={tmp_path}/archive")
    done("policy", f"{root}/c", "--tier", "cold", "--block-bytes", "100", *tiers)
    found = done("top", root, *tiers)
    assert found.text.splitlines()[1:4] == [
        "64 chunks: 64 < 64 KiB",
        "next: upkeep will move 8 chunks of 400 B to a tier as 4 and join 50 chunks of 4.9 KiB to 2: 52 objects fewer, "
        "and as many requests fewer for each read of everything",
        "so far: 100 B moved to tiers",
    ]
    cells = {row[0]: " ".join(row) for row in rows(found.text)}
    assert "█····" in cells["many"]
    assert "50 → 2" in cells["many"]
    assert "8 → 4" in cells["c"]
    [whole] = [one for one in done("run", root, "--once", "--json", *tiers).lines if one["name"] is None]
    assert (whole["chunks"], whole["joined_chunks"], whole["joined_to"]) == (8, 50, 2)
    assert whole["saved_objects"] == whole["saved_so_far"] == 52
    after = {one["path"].rpartition("/")[2]: one for one in done("top", root, "--json", *tiers).json}
    assert after["many"]["rewritten"] == 5000
    assert after["many"]["outlook"]["joins"] == after["c"]["outlook"]["moves"] == 0


def test_money_uses_list_prices_only_where_they_are_known():
    found = Outlook((1000, 0, 0, 0, 1), joins=1000, joins_to=1, join_bytes=64 * 2**20)
    assert "999 objects fewer" in next_text(found, None)
    assert "$" not in next_text(found, prices_of("file", "/logs"))
    assert "($0.4 for 1,000 such reads on S3 Standard)" in next_text(found, prices_of("s3", "bucket/logs"))
    express = prices_of("s3", "bucket--use1-az4--x-s3/logs")
    assert "S3 Express" in next_text(found, express)
    assert saved_text(100 * 2**30, 0, express) == "100.0 GiB moved to tiers ($8.70 a month, if the tier is S3 Standard)"
    assert saved_text(100 * 2**30, 0, prices_of("s3", "b")) == "100.0 GiB moved to tiers"
    assert next_text(Outlook(), express) == "upkeep has nothing to join or to move"


def test_unreadable_segment_is_row_and_exit_code(root):
    Path(f"{root}/a$header").write_bytes(b"nonsense")
    found = Run("top", root)
    assert found.code == 3
    assert "1 unreadable" in found.text
    assert "unreadable" in " ".join(rows(found.text)[0])


def test_more_rows_than_fit_are_counted():
    states = [SegmentState(f"/r/{number}", "open") for number in range(10)]
    table = top.table(states, "/r", now_s=0.0, rows_max=3)
    assert len(table) == 5
    assert "7 more" in table[-1]


AGES = {-5: "0 s", 0.4: "0 s", 59: "59 s", 61: "1 min 1 s", 7260: "2 h 1 min", 90000: "1 d 1 h"}


@pytest.mark.parametrize(("seconds", "text"), AGES.items())
def test_ages_are_told_in_their_two_greatest_units(seconds, text):
    assert top.age_text(seconds) == text


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
def test_narrow_terminal_shows_fewer_columns_and_whole_numbers(width):
    states = [
        SegmentState("/r/" + "long/name" * 5, "open", 1_234_567_890, 9_876_543_210, 5 * 2**30, 2**32, 0, 7_000_000_000),
        SegmentState("/r/short", "sealed", 0, 12, 12, lag_bytes=12, lag_s=100_000.0, drops=3),
    ]
    first, *lines = top.table(states, "/r", now_s=10.0, width=width)
    assert max(map(len, (first, *lines))) <= width
    assert len(lines) == 2
    titles = [title for title in top.COLUMNS if title in first]
    assert titles[:1] == ["segment"]
    assert "length" in titles
    for row, line in zip([top._row(one, "/r", 10.0) for one in states], lines, strict=True):
        for title in titles[1:]:
            assert row[title] in line
        assert "…" not in line.partition(row["length"])[2]
    assert (len(titles) == len(top.COLUMNS)) == (width >= 200)


def test_failed_look_is_shown_beside_the_last_and_retried(monkeypatch):
    looks = Mock(root="/r", lags=[], logs=list, picture=lambda states: [f"{len(states)} seen"])
    looks.states.side_effect = [
        [SegmentState("/r/a", "open")],
        OSError("the store is away"),
        [SegmentState("/r/b", "open")],
    ]
    waits = iter([b"", b"x", b"q"])
    written = io.StringIO()
    monkeypatch.setattr(output, "screen", lambda: Console(file=written, width=200))
    monkeypatch.setattr(output, "wait", lambda seconds, keys: next(waits))
    shown = []
    monkeypatch.setattr(top.Live, "update", lambda self, group, refresh: shown.extend(group.renderables))
    top._watch(looks, 1.0)
    away = "the store is away; trying again; as of the last look:"
    assert [str(head).partition("\n")[0] for head in shown[::2]] == ["1 seen", away, "1 seen"]
    assert [str(rows).split()[0] for rows in shown[1::2]] == ["a", "a", "b"]


BREAK = r"(\s|\x1b\[\d+m)+"
"""A space, or the end of a line of a terminal, where letters cease and begin to be bold."""


@pytest.mark.slow
def test_terminal_follows_segments_until_q_or_ctrl_c(tmp_path, root, store):
    termios = pytest.importorskip("termios", reason="terminals are for Unix")
    with terminal(tmp_path, f"top {root} --every 0.2s") as shell:
        shell.expect("3" + BREAK + "segments")
        store.pipe_file(f"{root}/new", b"1")
        shell.expect("4" + BREAK + "segments")
        shell.type("\x03")
        shell.ends(130)
    with terminal(tmp_path, f"top {root} --every 1h") as shell:
        shell.expect("4" + BREAK + "segments")
        shell.type("q")
        shell.ends()
        assert termios.tcgetattr(shell.master)[3] & termios.ICANON, "the terminal is as it was"
    assert json.loads(done("top", root, "--json").text)[-1]["path"] == f"{root}/new"
