"""Mistakes of newcomers: each is refused, leaves nothing behind, and the error says what the user may have meant."""

import os
from functools import partial

import fsspec
import pytest

from rollingfs import AttributeMismatchError, BadOffsetError, RetentionPolicy
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


def test_what_is_expected_of_a_segment_that_is_to_be_made_is_looked_at(fs):
    from rollingfs.format.transitions import Guard

    extend, run = fs._client.segments.extend, fs._bridge.run
    path = fs._strip("log")
    with pytest.raises(BadOffsetError, match="is not there"):
        run(extend(path, b"data", guard=Guard(expected_offset=1), create=True))
    with pytest.raises(AttributeMismatchError, match="is not there"):
        run(extend(path, b"data", guard=Guard(expected_attrs={"batch": "1"}), create=True))
    assert not fs.exists("log")
    run(extend(path, b"data", guard=Guard(expected_offset=0, expected_attrs={"batch": None}), create=True))
    assert fs.cat_file("log") == b"data"


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("ab", {"expected_offset": 9}, "no option 'expected_offset'; append.. takes it"),
        ("ab", {"expected_attrs": {"a": "1"}}, "no option 'expected_attrs'; append.. takes it"),
        ("a", {"attr": {"a": "1"}}, r"no option 'attr' \(did you mean 'attrs'"),
        ("wb", {"nonsense": 1}, "no option 'nonsense'; nothing was written"),
        ("rb", {"verfy": True}, r"no option 'verfy' \(did you mean 'verify'"),
        ("r", {"folow": True}, r"no option 'folow' \(did you mean 'follow'"),
    ],
)
def test_open_refuses_an_option_that_there_is_not(fs, mode, given, said):
    fs.pipe_file("log", b"data")
    with pytest.raises(TypeError, match=f"log: open has .*{said}"):
        fs.open("log", mode, **given)
    assert fs.cat_file("log") == b"data"


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("rb", {"attrs": {"a": "1"}}),
        ("rb", {"owner": "me"}),
        ("ab", {"absolute": True}),
        ("ab", {"follow": True}),
        ("wb", {"verify": True}),
    ],
)
def test_open_refuses_options_of_another_mode(fs, mode, given):
    fs.pipe_file("log", b"data")
    with pytest.raises(ValueError, match=rf"log: .*{next(iter(given))}.* for mode '{mode}'"):
        fs.open("log", mode, **given)


@pytest.mark.parametrize("given", [{"size": 4}, {"fill_cache": False}, {"encoding": "utf-8"}, {"cache_type": "bytes"}])
def test_open_passes_over_what_users_of_fsspec_give_to_any_filesystem(fs, given):
    fs.pipe_file("log", b"data")
    with fs.open("log", "rb", **given) as file:
        assert file.read() == b"data"


@pytest.mark.parametrize("name", ["single_writer", "sync"])
@pytest.mark.parametrize("value", ["False", "no", 0])
def test_a_switch_that_is_no_switch_does_not_count_as_true(tmp_path, name, value):
    with pytest.raises(TypeError, match=f"{name} is {value!r}: it must be True or False"):
        fsspec.filesystem("rolling", target_protocol="file", **{name: value})
    if value:
        said = failed("append", tmp_path / "log", "--option", f"{name}={value}", stdin=b"data", code=2)
        assert f"{name} is {value!r}: it must be true or false" in said
        assert files_below(tmp_path) == []


@pytest.mark.parametrize("name", ["header_cache_s", "commit_timeout_s"])
@pytest.mark.parametrize("value", ["soon", -1, float("nan"), None])
def test_a_time_that_is_none_is_refused_when_the_filesystem_is_made(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name} is {value!r}: it must be "):
        fsspec.filesystem("rolling", target_protocol="file", **{name: value})


WRONG = ("text", None, {"logs/one": 3})


def test_what_is_no_cut_no_policy_and_no_attributes_is_named_with_the_path(fs):
    fs.pipe_file("logs/one", b"data")
    stream, before = fs.stream("logs"), files_below(".")
    refused = [
        *((stream.trim, [wrong], "logs: the cut is .*it must be a StreamCut") for wrong in WRONG),
        *((stream.publish, ["billing", wrong], "logs: the cut is .*it must be a StreamCut") for wrong in WRONG),
        (stream.publish, [5, stream.cut()], "logs: the subscriber is 5: it must be a str"),
        (
            partial(setattr, stream, "retention"),
            ["1GiB"],
            "logs: the retention is '1GiB': it must be a RetentionPolicy",
        ),
        (partial(fs.append, attrs=[("a", "1")]), ["logs/one", b"x"], r"logs/one: attrs is .*it must be a dictionary"),
        (
            partial(fs.append, expected_attrs="a"),
            ["logs/one", b"x"],
            "one: expected_attrs is 'a': it must be a dictionary",
        ),
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
