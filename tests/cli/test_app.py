"""What all commands have in common: paths, options, errors, JSON, completion, what they import."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import fsspec
import pytest
import typer

from rollingfs import cli
from rollingfs.cli import app
from rollingfs.cli.output import INTERRUPTED, WrongUsage
from rollingfs.cli.stores import nest, parse_options, split
from tests.support.cli import COMMAND, Run, done, environment, failed, python, running_program
from tests.support.schedules import beside

DRIVE = os.path.splitdrive(os.path.abspath("/"))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/x", ("s3", "s3://bucket/x")),
        ("rolling::s3://bucket/x", ("s3", "s3://bucket/x")),
        ("rolling+s3://bucket/x", ("s3", "s3://bucket/x")),
        ("file:///data/x", ("file", "file:///data/x")),
        ("/data/a::b", ("file", f"{DRIVE}/data/a::b")),
        ("/data/folder/", ("file", f"{DRIVE}/data/folder/")),
        ("rolling::/data/x", ("file", f"{DRIVE}/data/x")),
    ],
)
def test_paths_name_their_store(text, expected):
    assert split(text) == expected


def test_a_path_without_a_scheme_is_a_local_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert split("x/../log") == ("file", f"{tmp_path}/log")
    done("append", "log", stdin=b"here")
    assert (tmp_path / "log$header").exists()


@pytest.mark.parametrize("text", ["", "rolling://bucket/x", "simplecache::s3://bucket/x", "nosuch://x"])
def test_paths_that_name_no_store_are_wrong_usage(text):
    failed("info", text, code=2)


def test_options_are_json_or_text_and_stand_over_environment():
    options = {"ROLLINGFS_OPTION_KEY": "a", "ROLLINGFS_OPTION_CLIENT_KWARGS__VERIFY": "false"}
    environ = {**options, "ROLLINGFS_REQUIRE": "all"}
    texts = ["key=b=c", "client_kwargs.timeout=3", 'secret="7"', "name=0x"]
    wanted = {"key": "b=c", "client_kwargs": {"verify": False, "timeout": 3}, "secret": "7", "name": "0x"}
    assert nest((one.names, one) for one in parse_options(texts, environ)) == wanted
    for wrong in (["key"], ["=1"], ["a=1", "a.b=2"]):
        with pytest.raises(WrongUsage):
            nest((one.names, one) for one in parse_options(wrong, {}))


def test_options_reach_rolling_from_command_environment_and_fsspecs_config(tmp_path, monkeypatch):
    def max_bytes(name, *words):
        done("append", tmp_path / name, *words, stdin=b"x" * 30)
        return fsspec.filesystem("rolling", target_protocol="file").segment(f"{tmp_path}/{name}").policy.max_bytes

    monkeypatch.setitem(fsspec.config.conf, "rolling", {"max_bytes": 11})
    assert max_bytes("by-config") == 11
    monkeypatch.setenv("ROLLINGFS_OPTION_MAX_BYTES", "12")
    assert max_bytes("by-environment") == 12
    assert max_bytes("by-option", "--option", "max_bytes=13") == 13


def test_errors_are_one_line_and_debug_adds_the_traceback(tmp_path):
    assert failed("info", tmp_path / "nothing") == f"rollingfs: {tmp_path}/nothing: No such segment or file\n"
    found = Run("info", tmp_path / "nothing", "--debug")
    assert found.code == 1
    assert "Traceback" in found.err
    assert Run("truncate", tmp_path / "nothing", "many").code == 2
    assert Run("nosuch").code == 2
    assert "max_bytes" in failed("append", tmp_path / "x", "--option", "max_bytes=0", code=2)


def test_the_shell_completes_commands():
    words = environment(_ROLLINGFS_COMPLETE="complete_bash", COMP_WORDS="rollingfs con", COMP_CWORD="1")
    found = subprocess.run(COMMAND, env=words, capture_output=True, check=True)
    assert found.stdout.split() == [b"concat", b"consolidate"]


def test_the_library_imports_nothing_of_the_command_line():
    script = "import sys, rollingfs.fs.filesystem, rollingfs.cli; print(sorted({'typer', 'rich'} & set(sys.modules)))"
    assert python(script).stdout == "[]\n"


def test_a_missing_extra_is_named_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "NEEDED", ("json", "surely_not_installed"))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    said = "the command line needs surely_not_installed: pip install 'rollingfs[cli]'"
    assert capsys.readouterr().err == f"rollingfs: {said}\n"


def test_an_interrupt_before_the_command_begins_is_no_traceback(monkeypatch):
    beside(monkeypatch, app, "run", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == INTERRUPTED


def test_json_comes_as_one_value_line_from_every_command(stream):
    a, b = f"{stream}/a", f"{stream}/b"
    cut = done("cut", stream).text
    for words in (
        ["ls", stream], ["info", a], ["map", a], ["cat", a], ["head", a], ["tail", a], ["truncate", a, 1],
        ["cut", stream], ["trim", stream, cut], ["retain", stream, "--by-time", "1d"], ["consolidate", a],
        ["collect", a], ["verify", a], ["seal", b], ["concat", a, b], ["mv", a, b], ["append", b], ["rm", b],
    ):  # fmt: skip
        if words[0] == "trim":
            words = ["trim", stream, json.dumps({**json.loads(cut), "segments": {b: 5}})]
        assert len(done(*words, "--json", stdin=b"").lines) == 1, words


def test_each_command_has_a_row_on_the_page():
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    described = {
        word for row in re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE) for word in re.findall(r"`([a-z-]+)", row)
    }
    missing = typer.main.get_command(app.app).commands.keys() - described
    assert not missing, "docs/cli.md: the table has no row for these commands"


EARLY_CTRL_C = """
import sys
from rollingfs.runtime.bridge import Bridge
def run(self, coroutine, **more):
    raise KeyboardInterrupt
Bridge.run = run
sys.argv[1:] = ["cat", "memory://log"]
from rollingfs.cli import main
main()
"""
"""Ctrl-C that comes once a coroutine is made, and before it is begun."""


def test_ctrl_c_before_a_coroutine_begins_shows_no_traceback():
    with running_program(EARLY_CTRL_C) as process:
        assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == INTERRUPTED
