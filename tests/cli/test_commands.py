"""Every command does what its verb does, speaks JSON, and ends with its exit code."""

import json
from pathlib import Path
from xml.etree import ElementTree

import fsspec
import pytest
import typer
from rich.text import Text

from rollingfs import RollingPolicy, StreamCut
from rollingfs.cli import output
from rollingfs.cli.app import app
from tests.support.cli import Run, done, failed

# -- looking ---------------------------------------------------------------------------------------------------


def test_info_and_ls_have_the_names_of_fsspec(stream, store):
    path = f"{stream}-with-attributes/a"
    store.create(path, RollingPolicy(1000, None, 100))
    store.append(path, b"", attrs={"by": "me"})
    policy = {"max_bytes": 1000, "max_age": None, "inline_bytes": 100, "consolidate": True}
    details = {"epoch": 0, "owner": None, "rewritten": 0, "write_amplification": 1.0, "attrs": {"by": "me"}}
    assert done("info", path, "--json").json == store.info(path) | {"policy": policy} | details
    assert done("info", stream, "--json").json == store.info(stream)
    assert done("ls", stream, "--json").json == store.ls(stream, detail=True)
    assert done("ls", stream).text == "a\nb\n"
    store.seal(f"{stream}/b")
    store.mkdir(f"{stream}/deeper")
    rows = [line.split() for line in done("ls", "-l", stream).text.splitlines()]
    assert rows[0] == ["state", "chunks", "start", "size", "modified", "name"]
    assert [(row[0], row[-1]) for row in rows[1:]] == [("open", "a"), ("sealed", "b"), ("folder", "deeper/")]
    assert rows[1][1:4] == ["2", "0", "2.0"]
    assert "max_bytes=1,000 max_age=never inline_bytes=100" in done("info", f"{stream}/a").text


@pytest.mark.parametrize("command", ["ls", "cat", "info", "seal", "verify", "roll", "consolidate", "collect"])
def test_patterns_stand_for_what_matches_them(stream, store, command):
    for name in ("run1", "run2", "other", "run[1]"):
        store.pipe_file(f"{stream}/{name}", name.encode())
    found = done(command, f"{stream}/run[0-9]").text
    if command == "cat":
        assert found == "run1run2"
    else:
        assert [name in found for name in ("run1", "run2", "other", "run[")] == [True, True, False, False]
    exact = done(command, f"{stream}/run[1]").text  # a name comes first
    assert ("run[1]" in exact, "run1" in exact) == (True, False)
    assert "matches it as a pattern" in failed(command, f"{stream}/none*")
    if command == "seal":
        assert [store.info(f"{stream}/{name}")["sealed"] for name in ("run2", "other")] == [True, False]


def test_pattern_on_another_store_is_shown_with_its_scheme(stream):
    sealed = [f"file://{stream}/{name}: sealed at length 2,050" for name in "ab"]
    assert done("seal", f"file://{stream}/[ab]").text.splitlines() == sealed


def test_head_and_tail_take_a_number_alone(stream, store):
    path = f"{stream}/lines"
    store.pipe_file(path, b"".join(b"%d\n" % number for number in range(30)))
    assert done("tail", "-2", path).text == done("tail", "-n", 2, path).text == "28\n29\n"
    assert done("head", path, "-3").text == "0\n1\n2\n"
    assert Run("cat", "-3", path).code == 2
    assert Run("tail", "-2", "-c", 3, path).code == 2
    assert Run("tail", "--", "-2").code == 1  # a path


def test_the_help_lists_commands_by_group_and_cuts_nothing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done("--help").text
    assert "..." not in shown.partition("Look at segments:")[2]
    assert [shown.count(f"\n{title}:\n") for title in ("Look at segments", "Write", "Tiers")] == [1, 1, 1]
    commands = typer.main.get_command(app).commands
    assert all(f"\n  {name} " in shown for name in commands)
    for name, command in commands.items():
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} does not say what {parameter.name} is"


def test_truncate_erase_says_what_is_left(stream, store):
    path = f"{stream}/a"
    orphan = Path(f"{path}$chunks/00000000000000000000-000000000000")
    orphan.write_bytes(b"g" * 300)
    shown = done("truncate", "--erase", path, 500).text
    assert "begins at offset 500; 500 bytes erased, 1 file written anew" in shown
    assert f"{orphan.as_posix()}: 300 bytes, may have erased bytes; younger than the grace" in shown
    found = done("truncate", path, 0, "--erase", "--json").json
    assert (found["start_offset"], found["gone"], found["bytes"], found["versions"]) == (500, False, 0, {"": False})
    assert [row["file"] for row in found["remains"]] == [orphan.as_posix()]
    assert len(store.cat_file(path)) == 1550


def test_rebuild_says_what_returned_and_what_did_not(stream, store):
    path, new = f"{stream}/a", f"{stream}/found"
    Path(f"{path}$header").unlink()
    args = ("rebuild", path, "--to", new, "--start", 0)
    found = done(*args, "--dry-run", "--json").json
    assert (found["end"], found["by_name"], found["gaps"], found["is_dry_run"]) == (2000, 2000, [], True)
    assert not store.exists(new)
    shown = done(*args).text
    assert f"{new} holds bytes 0 to 2,000 of {path}, 2 chunks" in shown
    assert "lost: the inline tail" in shown
    assert len(store.cat_file(new)) == 2000
    assert "is there already" in failed(*args)
    chunks = sorted(Path(f"{path}$chunks").glob("0*"))
    gap = done("rebuild", path, "--to", f"{new}2", "--start", 1000).text
    assert f"left: {chunks[0].as_posix()} (offset 0): it lies before the start" in gap


def test_the_map_shows_all_parts_of_a_segment(stream):
    path = f"{stream}/a"
    done("truncate", path, 500)
    chunks = Path(f"{path}$chunks")
    (chunks / "00000000000000000000-000000000000").write_bytes(b"g" * 300)
    lines = done("map", path).text.splitlines()
    assert "open, version" in lines[0]
    assert "start 500, length 2,050: 1,550 bytes in 2 chunks, 50 inline" in lines[0]
    bar = lines[1].strip("[]")
    assert [bar.count(mark) > 0 for mark in "·█▄░"] == [True, True, True, True]
    assert abs(bar.count("·") - len(bar) * 500 / 2050) <= 1
    shown = "\n".join(lines[2:])
    assert "500 B truncated, up to offset 500" in shown
    assert "2 chunks, 1.5 KiB, age < 1 min" in shown
    assert "1 file, 300 B, that nobody refers to" in shown
    found = done("map", path, "--json").json
    chunks = [(chunk["start"], chunk["end"], chunk["file_size"]) for chunk in found["chunks"]]
    assert chunks == [(500, 1000, 1000), (1000, 2000, 1000)]
    assert found["inline"] == {"start": 2000, "end": 2050}
    assert found["garbage"] == {"files": 1, "bytes": 300}


def test_map_of_empty_segments_and_plain_files_is_drawn(tmp_path):
    done("append", tmp_path / "empty", stdin=b"")
    (tmp_path / "plain").write_bytes(b"x" * 10)
    assert "0 bytes in 0 chunks" in done("map", tmp_path / "empty").text
    assert "10 bytes in 1 chunk" in done("map", tmp_path / "plain").text
    for name in ("empty", "plain"):
        done("map", tmp_path / name, "--output", tmp_path / f"{name}.svg")


def test_the_picture_is_a_file_that_others_can_read(stream, tmp_path):
    path = f"{stream}/a"
    done("truncate", path, 500)
    done("map", path, "-o", tmp_path / "map.svg")
    root = ElementTree.parse(tmp_path / "map.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = [box.attrib for box in root.iter(f"{space}rect")]
    gone, *_ = [float(box["width"]) for box in boxes if box["fill"] == "#d0d7de"]
    assert gone == pytest.approx(960 * 500 / 2050, abs=2)
    assert {"#2da44e", "#d4a72c"} <= {box["fill"] for box in boxes}
    assert path in [text.text for text in root.iter(f"{space}text")]
    for suffix in ("png", "gif"):
        assert "--output" in failed("map", path, "-o", tmp_path / f"map.{suffix}", code=2)
        assert not (tmp_path / f"map.{suffix}").exists()


def test_strip_of_less_than_pixel_can_be_drawn(store, tmp_path):
    sources = {f"{tmp_path}/a": b"x", f"{tmp_path}/b": b"x" * 100_000}
    for path, data in sources.items():
        store.pipe_file(path, data)
        store.seal(path)
    store.create(f"{tmp_path}/all")
    store.concat(f"{tmp_path}/all", [*sources])
    done("map", f"{tmp_path}/all", "-o", tmp_path / "map.svg")
    boxes = ElementTree.parse(tmp_path / "map.svg").getroot().iter("{http://www.w3.org/2000/svg}rect")
    assert all(float(box.get("width")) >= 0 for box in boxes)


# -- changing --------------------------------------------------------------------------------------------------


def test_the_life_of_segments(stream, store):
    a, b, year = f"{stream}/a", f"{stream}/b", f"{stream}/year"
    assert done("truncate", a, 1000, "--json").json == {"name": a, "start_offset": 1000, "waiting": 0}
    assert "not sealed" in failed("concat", year, a, b, "--create")
    assert not store.exists(year)
    assert done("seal", a, b, "--json").lines == [{"name": a, "length": 2050}, {"name": b, "length": 2050}]
    assert "sealed" in failed("append", a)
    assert done("concat", year, a, b, "--create", "--json").json == {"name": year, "offset": 0, "sources": 2}
    assert (store.ls(stream, detail=False), store.info(year)["size"]) == ([year], 1050 + 2050)
    done("mv", year, f"{stream}/deep/decade")
    assert done("ls", f"{stream}/deep").text == "decade\n"
    assert "give -r" in failed("rm", f"{stream}/deep")
    done("rm", "-r", f"{stream}/deep")
    assert "No such" in failed("info", f"{stream}/deep/decade")
    assert "No such" in failed("concat", year, a)


def test_several_segments_move_into_a_folder_under_their_names(stream, store):
    done("mv", f"{stream}/a", f"{stream}/b", f"{stream}/in/")
    assert "already" in failed("mv", f"{stream}/in/b", f"{stream}/in/a")
    assert store.ls(f"{stream}/in", detail=False) == [f"{stream}/in/a", f"{stream}/in/b"]
    assert "different stores" in failed("mv", f"{stream}/in/a", "memory://x", code=2)


# -- streams ---------------------------------------------------------------------------------------------------


def test_a_cut_is_a_text_that_trim_takes(stream, store, tmp_path):
    cut = done("cut", stream)
    assert StreamCut.parse(cut.text) == {f"{stream}/a": 2050, f"{stream}/b": 2050}
    assert done("cut", stream, "--json").json["segments"] == StreamCut.parse(cut.text)
    assert StreamCut.parse(done("cut", stream, "--align", r"lines\n").text)[f"{stream}/a"] == 2048
    assert StreamCut.parse(done("cut", stream, "--at", "2001-01-01T00:00:00Z").text)[f"{stream}/a"] == 0
    done("seal", f"{stream}/b")
    (tmp_path / "cut").write_bytes(cut.out)
    found = done("trim", stream, tmp_path / "cut", "--json").json
    assert (found["bytes"], found["deleted"]) == (4100, [f"{stream}/b"])
    assert done("trim", stream, "--json", stdin=cut.out).json["bytes"] == 0
    assert done("trim", stream, cut.text, "--json").json["bytes"] == 0
    assert store.ls(stream, detail=False) == [f"{stream}/a"]
    assert "stream cut" in failed("trim", stream, "{}", code=2)
    assert "--at" in failed("cut", stream, "--at", "yesterday", code=2)


def test_retain_stores_a_policy_and_runs_it(stream, store):
    assert "--by-size" in failed("retain", stream)
    first = done("retain", stream, "--by-size", "1kB", "--every", "0s", "--json").json
    assert first["bytes"] == 0
    assert first["taken"]["segments"] == {f"{stream}/a": 2050, f"{stream}/b": 2050}
    done("append", f"{stream}/a", stdin=b"x" * 1500)
    dry = done("retain", stream, "--dry-run", "--json").json
    assert (dry["bytes"], dry["size"], dry["dry_run"]) == (4100, 1500, True)
    assert store.stream(stream).size() == 5600
    assert "dropped 4,100 bytes, 1,500 left" in done("retain", stream).text
    assert store.stream(stream).size() == 1500
    assert [StreamCut.parse(line) for line in done("cut", stream, "--kept").text.splitlines()]
    for words in (["--max", "1"], ["--by-size", "1", "--by-time", "1"], ["--by-size", "x"]):
        failed("retain", stream, *words, code=2)


def test_trying_a_new_policy_asks_before_large_drops(stream, store):
    dry = done("retain", stream, "--by-size", "0", "--dry-run", "--json").json
    assert (dry["bytes"], dry["size"], dry["dry_run"]) == (4100, 0, True)
    assert store.stream(stream).retention is None
    said = failed("retain", stream, "--by-size", "0", code=2)
    assert "drop 4,100 of 4,100 bytes" in said
    assert "--yes" in said
    assert (store.stream(stream).retention, store.stream(stream).size()) == (None, 4100)
    done("retain", stream, "--by-size", "0", "--yes")
    assert store.stream(stream).size() == 0
    done("append", f"{stream}/a", stdin=b"x" * 1500)
    done("retain", stream, "--by-size", "0")  # it is stored already: a scheduler gives it each time


# -- upkeep ----------------------------------------------------------------------------------------------------


def test_export_writes_one_plain_file_for_other_tools(tmp_path):
    path, target = tmp_path / "log", tmp_path / "out" / "file"
    for letter in b"abcd":
        done("append", path, "--option", "inline_bytes=0", stdin=bytes([letter]) * 100)
    done("truncate", path, 150)
    shown = done("export", path, target).text
    assert "250 bytes written to" in shown
    assert "250 bytes joined by the store, 0 through this client" in shown
    assert target.read_bytes() == done("cat", path).out == b"b" * 50 + b"c" * 100 + b"d" * 100
    assert "--overwrite replaces it" in failed("export", path, target)
    found = done("export", "--overwrite", "--json", path, target).json
    sizes = {"size": 250, "joined_bytes": 250, "copied_bytes": 0, "length": 400}
    assert found == {"path": str(path), "target": str(target), **sizes}
    found = done("export", "--json", path, "memory://cli-export/file").json
    assert (found["target"], found["copied_bytes"]) == ("/cli-export/file", 250)
    fsspec.filesystem("memory").rm("/cli-export", recursive=True)


def test_collect_says_what_it_would_delete_and_deletes_it(stream):
    garbage = Path(f"{stream}/a$chunks/00000000000000000000-000000000000")
    garbage.write_bytes(b"g" * 300)
    assert done("collect", f"{stream}/a", "--json").json["young"] == 1
    shown = done("collect", stream, "-r", "--dry-run", "--grace", "0").text
    assert f"{garbage.as_posix()}: unreferenced chunk" in shown
    assert "1 file, 300 bytes, would be deleted" in shown
    assert garbage.exists()
    found = done("collect", "-r", stream, "--grace", "0s", "--json").json
    assert (found["files"], found["bytes"], found["failures"]) == ([garbage.as_posix()], 300, [])
    assert not garbage.exists()


def test_verify_ends_with_3_where_it_finds_damage(stream):
    assert "2 chunks, all there and whole" in done("verify", f"{stream}/a").text
    assert [found["ok"] for found in done("verify", "-r", stream, "--json").lines] == [True, True]
    chunk = sorted(Path(f"{stream}/a$chunks").glob("0*"))[0]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    Path(f"{stream}/b$header").write_bytes(b"rubbish")
    found = Run("verify", "-r", stream)
    assert (found.code, found.err) == (3, "")
    assert f"{chunk.as_posix()} is too short: 999 bytes rather than 1,000" in found.text
    assert f"{stream}/b" in found.text
    rows = Run("verify", f"{stream}/a", "--json")
    assert rows.code == 3
    assert [chunk["state"] for chunk in rows.lines[0]["chunks"]] == ["too short", "ok"]
    assert Run("verify", f"{stream}/b", "--json").lines[0]["error"]
    assert "No such" in failed("verify", "-r", f"{stream}/nothing")


# -- what cannot be read ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(stream) -> str:
    """The stream with a third segment, whose header is damaged."""
    done("append", f"{stream}/c", stdin=b"c")
    Path(f"{stream}/c$header").write_bytes(b"rubbish")
    return stream


def test_ls_shows_unreadable_segments_and_ends_with_3(damaged):
    found = Run("ls", damaged)
    assert (found.code, found.text) == (3, "a\nb\nc\n")
    assert found.err.startswith(f"rollingfs: {damaged}/c cannot be read: {damaged}/c$header")
    assert found.err.count("\n") == 1
    rows = [line.split() for line in Run("ls", "-l", damaged).text.splitlines()]
    assert [(row[0], row[-1]) for row in rows[1:]] == [("open", "a"), ("open", "b"), ("unreadable", "c")]
    infos = json.loads(Run("ls", damaged, "--json").out)
    assert [info["size"] for info in infos] == [2050, 2050, None]
    assert "c$header" in infos[2]["error"]
    assert "c$header" in failed("info", f"{damaged}/c")


def test_rm_takes_unreadable_segments_only_by_its_option(damaged):
    assert "--damaged" in failed("rm", "-r", damaged)
    assert "--damaged" in failed("rm", f"{damaged}/c")
    assert len(json.loads(Run("ls", damaged, "--json").out)) == 3
    done("rm", "-r", "--damaged", damaged)
    assert "No such" in failed("ls", damaged)


def test_tree_commands_pass_over_and_name_unreadable_segments(damaged):
    found = Run("collect", "-r", damaged, "--json")
    assert found.code == 1
    assert f"{damaged}/c is not collected" in found.err
    assert [failure["path"] for failure in found.lines[0]["failures"]] == [f"{damaged}/c"]
    assert set(StreamCut.parse(done("cut", damaged).text)) == {f"{damaged}/a", f"{damaged}/b"}
    ran = Run("retain", "--by-size", "0", "--yes", damaged)
    assert ran.code == 1
    assert "4,100 bytes" in ran.text
    assert ran.err.startswith(f"rollingfs: {damaged}/c was left as it is: ")
    assert list(json.loads(Run("retain", damaged, "--json").out)["failed"]) == [f"{damaged}/c"]


def test_append_over_a_folder_says_what_is_in_it(stream):
    said = failed("append", stream)
    assert "It is a folder that holds a, b;" in said
    assert stream in said


# -- what others have named or written -----------------------------------------------------------------------


ESCAPE = "\x1b[2J"


def test_tables_and_lines_show_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(*output.columns([(ESCAPE, "x"), ("y", ESCAPE)]), ESCAPE)
    output.show(Text(ESCAPE))
    output.complain(ESCAPE)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert shown.out.count("\\x1b[2J") == 4


def test_date_outside_all_time_zones_is_shown_as_number() -> None:
    assert "since 1970" in output.date_text(-1e15)
