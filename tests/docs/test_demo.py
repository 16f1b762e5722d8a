"""The demonstration runs, proves its bytes, and fails where a byte differs; the map shows what is where."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rollingfs import RollingPolicy, demo
from rollingfs.fs.segment_map import picture
from rollingfs.read.ranges import Fetcher
from tests.support.servers import require_module

for module in demo.NEEDED:
    require_module(module)

CHECKS = 10


@pytest.mark.slow
def test_the_demonstration_goes_through_the_whole_life_of_a_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "APPENDS_PER_MONTH", 12)
    monkeypatch.setattr(demo, "PARQUET_APPENDS", 4)
    assert demo.main(["--rows", "1200", "--folder", str(tmp_path / "kept")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("   ok    ") == CHECKS
    assert "FAIL" not in printed
    fs = fsspec.filesystem("rolling", target_protocol="file")
    left = fs.info(f"{tmp_path}/kept/flights-2013.jsonl")
    assert 0 < left["start_offset"] < left["length"]
    # what the truncation freed is no longer on the disk
    assert not list((tmp_path / "kept/months").glob("2013-01$chunks/0*"))
    assert list((tmp_path / "kept/months").glob("2013-04$chunks/0*"))


def test_the_demonstration_fails_if_a_byte_that_is_read_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_many = Fetcher.read_many

    async def flip(self: Fetcher, *args: Any, **kwargs: Any) -> list[Any]:
        found = await read_many(self, *args, **kwargs)
        return [data[:-2] + b" " + data[-1:] if data[-2:] == b"}\n" else data for data in found]

    monkeypatch.setattr(Fetcher, "read_many", flip)
    monkeypatch.setattr(demo, "APPENDS_PER_MONTH", 1)
    monkeypatch.setattr(demo, "read_json", lambda *_: None)
    monkeypatch.setattr(demo, "live_parquet", lambda *_: None)
    assert demo.main(["--rows", "120"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_the_demonstration_keeps_out_of_a_folder_that_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for arguments, why in ((["--folder", str(tmp_path)], "not empty"), (["--rows", "5"], "at least 120")):
        with pytest.raises(SystemExit) as exit_:
            demo.main(arguments)
        assert exit_.value.code == 2
        assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_demonstration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NEEDED", ("rich", "not_there_at_all"))
    assert demo.main([]) == 2
    assert "not_there_at_all: pip install 'rollingfs[demo]'" in capsys.readouterr().err


def test_importing_the_demonstration_needs_none_of_its_packages() -> None:
    assert set(demo.NEEDED).isdisjoint(vars(sys.modules["rollingfs.demo"]))


# -- the map -------------------------------------------------------------------------------------------------


@pytest.fixture
def fs() -> Any:
    return fsspec.filesystem("rolling", target_protocol="memory", skip_instance_cache=True)


def test_the_map_shows_the_truncated_head_the_folders_of_the_chunks_and_the_tail(fs: Any, tmp_path: Path) -> None:
    root = str(tmp_path)
    for name in ("a", "b"):
        fs.create(f"{root}/{name}", RollingPolicy(max_bytes=10, inline_bytes=0))
        fs.append(f"{root}/{name}", bytes(30))
        fs.seal(f"{root}/{name}")
    fs.create(f"{root}/all", RollingPolicy(max_bytes=10))
    fs.concat(f"{root}/all", [f"{root}/a", f"{root}/b"])
    fs.append(f"{root}/all", b"x" * 5)
    fs.truncate(f"{root}/all", 13)
    assert picture(fs.segment(f"{root}/all"), width=13).splitlines() == [
        "all: open, version 4, start 13, length 65: 52 bytes in 5 chunks",
        "[···███▓▓▓▓▓▓░]",
        "  ·               0 to              13  truncated",
        "  █              13 to              30  2 chunks in a$chunks",
        "  ▓              30 to              60  3 chunks in b$chunks",
        "  ░              60 to              65  inline in the header",
    ]


def test_the_map_of_an_empty_segment_and_of_a_plain_file(fs: Any, tmp_path: Path) -> None:
    fs.create(f"{tmp_path}/empty")
    assert picture(fs.segment(f"{tmp_path}/empty")).splitlines() == [
        "empty: open, version 1, start 0, length 0: 0 bytes in 0 chunks",
        "[]",
    ]
    fsspec.filesystem("memory").pipe_file(f"{tmp_path}/plain", b"plain")
    lines = picture(fs.segment(f"{tmp_path}/plain"), width=5).splitlines()
    assert lines[1] == "[█████]"


def test_the_map_leaves_out_the_middle_of_many_runs(fs: Any, tmp_path: Path) -> None:
    policy = RollingPolicy(max_bytes=10, inline_bytes=0)
    fs.create(f"{tmp_path}/all", policy)
    for index in range(40):
        fs.create(f"{tmp_path}/{index}", policy)
        fs.append(f"{tmp_path}/{index}", bytes(10))
        fs.seal(f"{tmp_path}/{index}")
    fs.concat(f"{tmp_path}/all", [f"{tmp_path}/{index}" for index in range(40)])
    lines = picture(fs.segment(f"{tmp_path}/all"), rows_max=6).splitlines()
    assert len(lines) == 2 + 7
    assert "34 more runs" in lines[5]
