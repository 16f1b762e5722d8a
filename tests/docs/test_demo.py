"""The demonstration runs, proves its bytes, and fails where a byte differs."""

import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from rollingfs import demo
from rollingfs.segment.read.ranges import Fetcher
from tests.support.backends import raises
from tests.support.cli import python
from tests.support.servers import require_module

for module in demo.NEEDED:
    require_module(module)


CHECKS = 3
LINES_MAX = 40


def test_it_fits_a_screen_and_reports_savings(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert demo.main(["--rows", "1200"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= 120
    assert "the map of the year" in printed
    assert "6 more runs of chunks in other folders" in printed
    assert sum("   ok    " in line for line in lines) == CHECKS
    assert f"not a byte of them was copied: {CHECKS} of {CHECKS} check sums agree" in printed
    assert "The picture of it: rollingfs-demo/map.svg" in printed
    drawn = ElementTree.parse(tmp_path / "rollingfs-demo/map.svg").getroot()
    shown = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert "flights-2013.jsonl" in shown
    months = [text.partition("months/")[2].removesuffix("$chunks") for text in shown if "months/" in text]
    assert sorted(months) == [f"2013-{month:02}" for month in range(4, 13)]  # the others are truncated
    assert lines[lines.index("Try next") + 1 :]


def test_it_fails_if_a_byte_that_is_read_differs(tmp_path, monkeypatch, capsys):
    read_many = Fetcher.read_many

    async def flip(self: Fetcher, *args: Any, **kwargs: Any) -> list[Any]:
        found = await read_many(self, *args, **kwargs)
        return [data[:-2] + b" " + data[-1:] if data[-2:] == b"}\n" else data for data in found]

    monkeypatch.setattr(Fetcher, "read_many", flip)
    monkeypatch.setattr(demo, "APPENDS_PER_MONTH", 1)
    monkeypatch.setattr(demo, "read_json", lambda *_: None)
    assert demo.main(["--rows", "120", "--folder", str(tmp_path / "kept")]) == 1
    printed = capsys.readouterr().out
    assert "FAIL" in printed
    assert "0 of 1 check sums agree" in printed


def test_it_refuses_a_used_folder(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    for arguments, why in ((["--folder", str(tmp_path)], "not empty"), (["--rows", "5"], "at least 120")):
        with pytest.raises(SystemExit) as exit_:
            demo.main(arguments)
        assert exit_.value.code == 2
        assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "NEEDED", ("rich", "not_there_at_all"))
    # the README's first command leaves a folder of the default name in the checkout
    assert demo.main(["--folder", str(tmp_path / "flights")]) == 2
    assert "not_there_at_all: pip install 'rollingfs[demo]'" in capsys.readouterr().err


def test_importing_it_needs_none_of_its_packages() -> None:
    assert set(demo.NEEDED).isdisjoint(vars(sys.modules["rollingfs.demo"]))


# -- the map -------------------------------------------------------------------------------------------------


def test_the_flights_are_read_where_setuptools_is_missing():
    without = "import sys; sys.modules['pkg_resources'] = None\n"
    script = without + "from rollingfs.demo import flights; print(len(flights()))"
    assert python(script, PYTHONWARNINGS="").stdout == "336776\n"


def test_a_folder_on_another_drive_is_named_whole(monkeypatch):
    monkeypatch.setattr(demo.os.path, "relpath", raises(ValueError("path is on mount 'C:'")))
    assert demo._from_here("C:/demo") == "C:/demo"
