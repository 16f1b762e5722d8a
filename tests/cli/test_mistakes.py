"""A command that is given the wrong path or value says what is there, and what to do."""

import os
from pathlib import Path
from typing import Any

import pytest

from rollingfs.cli.output import as_typed
from rollingfs.errors import worded, worded_by
from tests.support.cli import done, failed, options_of

ON_SEGMENTS = ("cat", "head", "tail", "seal", "truncate {} 3", "map", "consolidate")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    done("append", tmp_path / "folder" / "log", stdin=b"line\n")
    return f"{tmp_path}/folder"


def refused(words: str, path: str, code: int = 1) -> str:
    """Run a command that must fail with one line on standard error; returns that line."""
    return failed(*(words if "{}" in words else words + " {}").format(path).split(), code=code)


@pytest.mark.parametrize("words", [*ON_SEGMENTS, "verify", "collect"])
def test_folder_is_named_as_one_where_segment_is_wanted(folder: str, words: str) -> None:
    said = "this command takes segments" if words in ON_SEGMENTS else "give -r for all segments in it"
    assert refused(words, folder) == f"rollingfs: {folder}: It is a folder, not a segment: {said}\n"


@pytest.mark.parametrize("words", ["cat", "tail", "verify"])
def test_url_without_bucket_is_named_as_a_whole_store(moto: dict[str, Any], words: str) -> None:
    for url, options in (("s3://", options_of(moto)), ("memory://", [])):
        said = failed(words, url, *options)
        assert said.startswith(f"rollingfs: {url}: It is a whole store, without a bucket or a folder, not a segment: ")


def test_concat_makes_no_target_for_a_folder(folder: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert "It is a folder, not a segment" in refused(f"concat --create {target}", folder)
    assert "It is a folder, not a segment" in refused(f"concat {folder}/log", folder)
    assert "concat" in refused(f"concat {folder}/log", f"{folder}/log")
    assert not list(tmp_path.glob("target*"))


def test_a_missing_path_is_no_folder(folder: str) -> None:
    for words in ("cat", "ls", "verify"):
        assert refused(words, f"{folder}/none") == f"rollingfs: {folder}/none: No such segment or file\n"


def test_a_missing_bucket_is_named(moto: dict[str, Any]) -> None:
    said = failed("cat", *options_of(moto), "s3://not-made-by-anybody/x")
    assert "the bucket 'not-made-by-anybody' does not exist" in said
    for words in (["collect", "-r"], ["run", "--once"], ["verify", "-r"]):
        said = failed(*words, *options_of(moto), "s3://not-made-by-anybody")
        assert "the bucket 'not-made-by-anybody' does not exist" in said
        assert "make it first" in said


def test_a_url_with_a_single_slash_is_refused() -> None:
    for url in ("s3:/bucket/log", "file:/log", "rolling+s3:/bucket/log"):
        said = failed("append", url, code=2)
        assert (
            said == f"rollingfs: {url}: write {url.partition(':')[0]}://... for a store, or ./{url} for a local path\n"
        )


def test_bad_value_of_variable_is_wrong_usage_and_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLINGFS_OPTION_MAX_BYTES", "abc")
    assert "ROLLINGFS_OPTION_MAX_BYTES: 'abc' is not a size" in refused("cat", f"{folder}/log", code=2)


def test_misunderstood_option_is_hidden_because_of_secrets(folder: str) -> None:
    assert "hunter2" not in refused("cat --option max_bytes=1KiB --option hunter2", f"{folder}/log", code=2)


@pytest.mark.parametrize("option", ["by-time", "by-size"])
def test_a_retention_beyond_all_bounds_is_wrong_usage(folder: str, option: str) -> None:
    unit = {"by-time": "d", "by-size": "GB"}[option]
    assert "at most" in failed("retain", folder, f"--{option}", "9" * 20 + unit, code=2)
    assert "at most" in failed("retain", folder, f"--{option}", "1" + unit, "--every", "99999999d", code=2)


DURATIONS = (
    *("retain {0} --by-time", "retain {0} --by-time 7d --max", "retain {0} --by-time 7d --every"),
    *("run {0} --once --every", "run {0} --once --grace", "collect -r {0} --grace", "consolidate {0}/log --grace"),
    *("offload {0}/log --after-age", "offload {0}/log --lag", "onload {0}/log --lag"),
    *("policy {0}/log --max-age", "policy {0}/log --after-age", "policy {0} --lag"),
    *("top {0} --once --every", "top {0} --once --after-age"),
)
SIZES = ("policy {0} --max-bytes", "offload {0}/log --after-bytes", "offload --follow {0}/log --block")
SIZES += ("top {0} --after-bytes",)
OTHERS = {
    "offload --follow {0}/log --max-delay soon": "--max-delay: 'soon' is not a duration",
    "offload --follow {0}/log --block 0": "--block is 0",
    "offload --follow {0}/log --upto 5": "--upto: --follow moves all",
    "offload {0}/log --max-delay 5s": "--max-delay: only --follow takes it",
    "policy --max-bytes 0 {0}": "max_bytes is 0",
    "cut {0} --at soon": "--at",
    "top {0} --every 0s": "at least 0.1 s",
    "trim {0}": "standard input is empty",
    "trim {0} {{": "CUT: ",
    "cat --option max_bytes=abc {0}/log": "rollingfs: --option max_bytes: 'abc' is not a size",
    "cat --option sync=7 {0}/log": "rollingfs: --option sync: sync is 7: it must be true or false",
}
NAMELESS = [f"cat --option {option} {{0}}/log" for option in ("s3.=3", ".key=3", "=3", "key")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((f"{words} 30", "'30' has no unit") for words in DURATIONS),
        *((f"{words} soon", "'soon' is not a duration") for words in DURATIONS),
        *((f"{words} much", "'much' is not a size") for words in SIZES),
        *OTHERS.items(),
        *((words, "--option number 1 is not of the form name=value") for words in NAMELESS),
    ],
)
def test_bad_value_is_wrong_usage_and_changes_nothing(folder: str, words: str, said: str) -> None:
    before = sorted(os.listdir(folder))
    found = failed(*words.format(folder).split(), code=2)
    assert said in found
    assert words.split()[-2] in found or not words.endswith(("30", "soon", "much"))
    assert before == sorted(os.listdir(folder))


@pytest.mark.parametrize(
    ("verb", "given", "python", "typed"),
    [
        ("", {"overwrite": True}, "overwrite=True", "--overwrite"),
        ("", {"deletion_lag": ...}, "deletion_lag", "--lag"),
        ("", {"as_format": "parquet"}, "as_format='parquet'", "--as-format parquet"),
        ("", {"newline": True}, "newline=True", "--newline"),
        ("", {"single_writer": True}, "single_writer=True", "--option single_writer=true"),
        ("fs.mkdir", {}, "fs.mkdir()", "a tool of the store"),
        ("collect", {"recursive": True}, "collect(recursive=True)", "rollingfs collect -r"),
        ("rm", {"path": ..., "damaged": True}, "rm(path, damaged=True)", "rollingfs rm --damaged"),
    ],
)
def test_each_face_words_a_parameter_or_a_verb(verb: str, given: dict[str, Any], python: str, typed: str) -> None:
    assert worded(verb, **given) == python
    with worded_by(as_typed):
        assert worded(verb, **given) == typed
    assert worded(verb, **given) == python


def test_path_with_words_of_python_is_shown_unchanged(tmp_path: Path) -> None:
    path = f"{tmp_path}/as_bytes=True deletion_lag collect()"
    assert path in failed("cat", path)
