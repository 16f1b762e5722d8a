"""``rollingfs doctor``: what it prints, for people and for machines, and how it ends."""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs.backend.checkup import RACES, YES, Checkup, Finding
from rollingfs.cli import doctor
from tests.support.backends import raises
from tests.support.careless import CarelessHandler
from tests.support.cli import Run, done, failed, options_of
from tests.support.examples import slowly
from tests.support.proxy import serving
from tests.support.servers import new_bucket

TRIED = ("lock between processes", "rename over an open file", "flush", "four processes at once")
ROWS = {
    *TRIED,
    *("conditional create", "conditional replace", "conditional delete", "copy on the server", "join on the server"),
    *("metadata of files", "delete of several files", "complete listings", "listing of unfinished uploads", "clock"),
    *("whole reads beside a replace", "read of 4 KiB", "write of 4 KiB"),
}


@pytest.fixture(autouse=True)
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.cli.doctor.ROUNDS_A_RACE", 2)


@pytest.mark.parametrize("url", ["{}", *slowly("file://{}", "rolling::file://{}")])
def test_a_folder_of_the_disk_is_safe(tmp_path: Path, url: str) -> None:
    text = done("doctor", url.format(tmp_path)).text
    assert text.startswith(f"file://{tmp_path}: safe to write to\n")
    assert all(any(line.startswith(row) for line in text.splitlines()) for row in ROWS)
    assert "collect deletes tombstones" in text
    assert os.listdir(tmp_path) == []
    assert "safe to write to" in done("doctor", "memory://").text


def test_json_has_all_that_the_table_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "try_disk", lambda folder, rounds: [Finding(what, YES, "well") for what in TRIED])
    found = done("doctor", tmp_path, "--json").json
    assert (found["store"], found["is_safe"], found["refusal"]) == (f"file://{tmp_path}", True, "")
    assert {row["what"] for row in found["findings"]} == ROWS
    assert all(row["answer"] and row["means"] for row in found["findings"])


RACER = """
import sys
for path in sys.argv[3:]:
    with open(path, "ab") as file:
        file.write(f"{sys.argv[1]} 0\\n".encode() * int(sys.argv[2]))
"""
BROKEN = {
    "lock between processes": (
        "_HOLDER",
        "import sys; print('held', flush=True); sys.stdin.read()",
        "two processes hold one",
    ),
    "four processes at once": ("_RACER", RACER, "were lost, or are there twice"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_disk_without_locks_is_not_safe(tmp_path: Path, monkeypatch: Any, what: str) -> None:
    name, program, means = BROKEN[what]
    monkeypatch.setattr(doctor, name, program)
    found = Run("doctor", "--json", "--races", 1, tmp_path)
    rows = {row["what"]: row for row in json.loads(found.out)["findings"]}
    assert (found.code, rows[what]["answer"]) == (3, "no")
    assert means in rows[what]["means"]
    assert means in json.loads(found.out)["refusal"]
    assert os.listdir(tmp_path) == []


def test_a_trial_that_fails_is_unknown(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor, "_RACER", "raise SystemExit('no such module')")
    refusing = {**vars(doctor.system), "rename": raises(PermissionError(13, "held"))}
    monkeypatch.setattr(doctor, "system", SimpleNamespace(**refusing))
    found = done("doctor", "--json", "--races", 1, tmp_path).json
    answers = {row["what"]: (row["answer"], row["means"]) for row in found["findings"]}
    assert answers["four processes at once"] == ("unknown", "it failed: no such module")
    assert answers["rename over an open file"] == ("unknown", "it failed: [Errno 13] held")
    assert found["is_safe"]


def test_more_races_are_run_by_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    async def note(*arguments: Any) -> Checkup:
        asked.append(arguments[3:])
        return Checkup("store", True, ())

    monkeypatch.setattr("rollingfs.cli.doctor.examine", note)
    done("doctor", tmp_path)
    done("doctor", tmp_path, "--races", 20, "--seconds", 1.5)
    assert asked == [(RACES, 0.0), (20, 1.5)]
    assert "--races is at least 1" in failed("doctor", tmp_path, "--races", 0, code=2)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "there is no such folder" in failed("doctor", tmp_path / "nowhere")
    assert os.listdir(tmp_path) == []


def test_a_bucket_must_be_named_and_be_there(moto: dict[str, Any]) -> None:
    assert "the bucket 'no-such-bucket' does not exist" in failed("doctor", *options_of(moto), "s3://no-such-bucket")
    assert "name a bucket" in failed("doctor", *options_of(moto), "s3://", code=2)


@pytest.mark.parametrize("words", [[], *slowly(["--json"])])
def test_look_first_s3_server_ends_with_code_3(moto: dict[str, Any], words: Any) -> None:
    bucket = new_bucket(moto)
    with serving(moto["endpoint_url"], CarelessHandler) as proxy:
        shown = Run("doctor", *words, *options_of({**moto, "endpoint_url": proxy.url}), f"s3://{bucket}")
    assert shown.code == 3
    if words:
        found = json.loads(shown.out)
        assert (found["store"], found["is_safe"]) == (f"{proxy.url}/{bucket}", False)
    else:
        assert shown.text.startswith(f"{proxy.url}/{bucket}: NOT SAFE to write to\n")
    assert re.search("of (16|3|2) concurrent writers win", found["refusal"] if words else shown.err)


@pytest.mark.slow
def test_an_s3_server_that_decides_at_once_is_safe(moto: dict[str, Any]) -> None:
    bucket = new_bucket(moto)
    assert (
        f"{moto['endpoint_url']}/{bucket}: safe to write to" in done("doctor", *options_of(moto), f"s3://{bucket}").text
    )
