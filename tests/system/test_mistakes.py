"""Mistakes of newcomers: each is refused, leaves nothing behind, and the error says what the user may have meant."""

import os
from functools import partial

import fsspec
import pytest

from rollingfs import AttributeMismatchError, BadOffsetError, RetentionPolicy
from rollingfs.segment.verbs.append import append as extend
from tests.support.cli import failed
from tests.support.servers import require_module

require_module("s3fs")


@pytest.fixture
def fs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return fsspec.filesystem("rolling", target_protocol="file", skip_instance_cache=True)


def files_below(folder):
    return sorted(os.path.join(above, name) for above, folders, files in os.walk(folder) for name in folders + files)


# -- conditions ------------------------------------------------------------------------------------------------


def test_expectations_of_a_new_segment_are_checked(fs):
    from rollingfs.format.transitions import Guard

    append, run = partial(extend, fs._client), fs._bridge.run
    path = fs._strip("log")
    with pytest.raises(BadOffsetError, match="is not there"):
        run(append(path, b"data", guard=Guard(expected_offset=1), create=True))
    with pytest.raises(AttributeMismatchError, match="is not there"):
        run(append(path, b"data", guard=Guard(expected_attrs={"batch": "1"}), create=True))
    assert not fs.exists("log")
    run(append(path, b"data", guard=Guard(expected_offset=0, expected_attrs={"batch": None}), create=True))
    assert fs.cat_file("log") == b"data"


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("ab", {"expected_offset": 9}, "'expected_offset'; append.. takes it"),
        ("ab", {"expected_attrs": {"a": "1"}}, "'expected_attrs'; append.. takes it"),
        ("a", {"attr": {"a": "1"}}, r"'attr' \(did you mean 'attrs'"),
        ("wb", {"nonsense": 1}, "'nonsense'; nothing was written"),
        ("rb", {"verfy": True}, r"'verfy' \(did you mean 'verify'"),
        ("r", {"folow": True}, r"'folow' \(did you mean 'follow'"),
        *(("rb", given, "") for given in ({"attrs": {"a": "1"}}, {"owner": "me"})),
        *(("ab", given, "") for given in ({"verify": True}, {"follow": True})),
        ("wb", {"verify": True}, ""),
    ],
)
def test_open_refuses_unknown_options_and_those_of_other_modes(fs, mode, given, said):
    of_other_mode = f"{next(iter(given))}.* for mode '{mode}'"
    error, said = (TypeError, f"open has .*no option {said}") if said else (ValueError, f".*{of_other_mode}")
    fs.pipe_file("log", b"data")
    with pytest.raises(error, match=f"log: {said}"):
        fs.open("log", mode, **given)
    assert fs.cat_file("log") == b"data"


@pytest.mark.parametrize("given", [{"size": 4}, {"fill_cache": False}, {"encoding": "utf-8"}, {"cache_type": "bytes"}])
def test_open_ignores_options_that_fsspec_gives_every_filesystem(fs, given):
    fs.pipe_file("log", b"data")
    with fs.open("log", "rb", **given) as file:
        assert file.read() == b"data"


@pytest.mark.parametrize("name", ["single_writer", "sync"])
@pytest.mark.parametrize("value", ["False", "no", 0])
def test_invalid_switch_does_not_count_as_true(tmp_path, name, value):
    with pytest.raises(TypeError, match=f"{name} is {value!r}: it must be true or false"):
        fsspec.filesystem("rolling", target_protocol="file", **{name: value})
    if value:
        said = failed("append", tmp_path / "log", "--option", f"{name}={value}", stdin=b"data", code=2)
        assert f"{name} is {value!r}: it must be true or false" in said
        assert files_below(tmp_path) == []


@pytest.mark.parametrize("name", ["header_cache_s", "commit_timeout_s"])
@pytest.mark.parametrize("value", ["soon", -1, float("nan"), None])
def test_invalid_time_is_refused_when_the_filesystem_is_made(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name} is {value!r}: it must be "):
        fsspec.filesystem("rolling", target_protocol="file", **{name: value})


WRONG = ("text", None, {"logs/one": 3})


def test_invalid_cut_policy_and_attributes_name_the_path(fs):
    fs.pipe_file("logs/one", b"data")
    stream, before = fs.stream("logs"), files_below(".")
    retain, one = partial(setattr, stream, "retention"), ["logs/one", b"x"]
    refused = [
        *((stream.trim, [wrong], "logs: the cut is .*it must be a StreamCut") for wrong in WRONG),
        *((stream.publish, ["billing", wrong], "logs: the cut is .*it must be a StreamCut") for wrong in WRONG),
        (stream.publish, [5, stream.cut()], "logs: the subscriber is 5: it must be a str"),
        (retain, ["1GiB"], "logs: the retention is '1GiB': it must be a RetentionPolicy"),
        (partial(fs.append, attrs=[("a", "1")]), one, r"logs/one: attrs is .*it must be a dictionary"),
        (partial(fs.append, expected_attrs="a"), one, "one: expected_attrs is 'a': it must be a dictionary"),
    ]
    for verb, args, said in refused:
        with pytest.raises(TypeError, match=said):
            verb(*args)
    assert files_below(".") == before
    stream.retention = RetentionPolicy.by_size("1GiB")
    stream.retention = None


# -- what is not there -----------------------------------------------------------------------------------------


VERBS = {"append": [b"x"], "seal": [], "truncate": [1], "rm": [], "rm_file": [], "mv": ["other/log"]}
VERBS["concat"] = [["other/log"]]


@pytest.mark.parametrize("verb", VERBS)
def test_a_mistyped_path_makes_no_folder(fs, tmp_path, verb):
    with pytest.raises(FileNotFoundError):
        getattr(fs, verb)("typo/log", *VERBS[verb])
    assert files_below(tmp_path) == []
