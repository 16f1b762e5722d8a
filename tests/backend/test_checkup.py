"""The examination of a store: it finds what the store can do, says so truly, and leaves nothing behind."""

import asyncio
import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend import checkup, race as race_module
from rollingfs.backend.checkup import NO, UNKNOWN, YES, Checkup, examine
from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.patience import patiently
from rollingfs.backend.probe import PAIRS
from rollingfs.segment.at import At
from rollingfs.testing import run
from tests.support.backends import Counting, Scripted, private_memory, raises
from tests.support.careless import careless

CONDITIONS = ["conditional create", "conditional replace", "conditional delete"]
OTHERS = [
    "copy on the server",
    "join on the server",
    "metadata of files",
    "delete of several files",
    "complete listings",
    "listing of unfinished uploads",
]


def examined(backend: Backend, folder: str = "") -> Checkup:
    return run(backend, examine(backend, At.of(backend).runtime, folder))


def answers(found: Checkup) -> dict[str, str]:
    return {one.what: one.answer for one in found.findings}


def means(found: Checkup, what: str) -> str:
    return next(one.means for one in found.findings if one.what == what)


def test_memory_can_do_everything_except_list_uploads() -> None:
    backend = private_memory()
    found = examined(backend)
    assert found.is_safe
    assert [answers(found)[what] for what in CONDITIONS + OTHERS] == [YES] * 8 + [NO]
    assert "there are none" in means(found, OTHERS[-1])
    assert answers(found)["clock"].endswith(" s")
    assert answers(found)["read of 4 KiB"].endswith(" ms")
    assert backend.fs.store == {}
    assert backend.fs.pseudo_dirs == [""]


def test_disk_is_examined_within_folder_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "of a user").write_bytes(b"left alone")
    backend = Counting(LocalBackend(sync=False))
    found = examined(backend, str(tmp_path))
    assert found.is_safe
    assert [answers(found)[what] for what in CONDITIONS] == [YES] * 3
    assert os.listdir(tmp_path) == ["of a user"]
    assert {path for _, path in backend.calls if path and not path.startswith(str(tmp_path))} == set()


@pytest.mark.parametrize(("verb", "expected"), [("create", [NO, UNKNOWN, UNKNOWN]), ("replace", [YES, NO, UNKNOWN])])
def test_look_first_store_is_unsafe_and_rest_is_answered(verb: str, expected: list[str]) -> None:
    backend = careless(verb)
    found = examined(backend)
    assert not found.is_safe
    assert f"{verb} let" in found.refusal
    assert [answers(found)[what] for what in CONDITIONS] == expected
    assert [answers(found)[what] for what in OTHERS] == [YES] * 5 + [NO]
    assert f"{verb} let" in means(found, f"conditional {verb}")
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("races", "seconds", "probes"), [(1, 0.0, 1), (5, 0.0, 5), (1, 0.5, 2)])
def test_races_are_repeated_as_asked(races: int, seconds: float, probes: int, limits: Any) -> None:
    limits(race_module, ROUNDS_S_MAX=0.0)  # else a single probe may take these seconds
    backend = Counting(private_memory(), suspends=True, must_race=True)
    found = run(backend, examine(backend, At.of(backend).runtime, "", races, seconds))
    assert found.is_safe
    assert backend.count("create") >= 2 * PAIRS * probes


def test_single_writer_filesystem_is_unsafe_until_the_user_asserts() -> None:
    fs = private_memory().fs
    found = examined(GenericBackend(fs))
    assert not found.is_safe
    assert "single_writer=True" in found.refusal
    assert [answers(found)[what] for what in CONDITIONS] == [NO, NO, UNKNOWN]
    found = examined(GenericBackend(fs, single_writer=True))
    assert [answers(found)[what] for what in CONDITIONS] == [YES, YES, NO]


@pytest.mark.parametrize(
    ("what", "verb"),
    [
        ("copy on the server", "copy"),
        ("join on the server", "upload.copy"),
        ("complete listings", "list"),
        ("clock", "now"),
    ],
)
def test_what_fails_is_not_known_and_the_rest_is(what: str, verb: str) -> None:
    backend = Scripted(private_memory())
    backend.plan(verb, before=raises(OSError(errno.EIO, "the network is down")), times=None, probes=True)
    found = examined(backend)
    assert "network is down" in means(found, what)
    assert [name for name, answer in answers(found).items() if answer == UNKNOWN] == [what]


def test_late_listing_undeleted_files_and_changed_copies_are_seen() -> None:
    inner = private_memory()
    empty = run(inner, inner.list(""))
    for what, verb, lie in (
        ("complete listings", "list", {"answers": lambda _: empty, "times": None}),
        ("delete of several files", "delete", {"when": lambda paths: len(paths) == 3, "instead": lambda *_: None}),
        ("copy on the server", "copy", {"instead": lambda _, target, *__: inner.write(target, [b"other"])}),
    ):
        backend = Scripted(inner)
        backend.plan(verb, probes=True, **lie)
        assert answers(examined(backend))[what] == NO


def test_refused_and_dropped_metadata_are_seen() -> None:
    inner = private_memory()
    for lie, means_no in (
        ({"before": raises(OSError(errno.EINVAL, "no such header"))}, "write a chunk fail: .*no such header"),
        ({"instead": lambda path, data, _: inner.write(path, data)}, "only by their names"),
    ):
        backend = Scripted(inner)
        backend.plan("write", when=lambda *arguments: len(arguments) > 2, times=None, probes=True, **lie)
        found = examined(backend)
        assert answers(found)["metadata of files"] == NO
        assert re.search(means_no, means(found, "metadata of files"))


def test_unjudged_store_is_an_error_and_not_a_verdict() -> None:
    backend = Scripted(private_memory())
    backend.plan("create", before=raises(PermissionError(errno.EACCES, "forbidden")), times=None, probes=True)
    with pytest.raises(PermissionError, match="forbidden"):
        examined(backend)
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]


def test_a_store_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "CHECKUP_S_MAX", 0.05)
    monkeypatch.setattr(checkup, "RACE_S_MAX", 0.0)
    backend = Scripted(private_memory(), suspends=True)
    backend.plan("create", before=lambda: asyncio.sleep(3600), times=None, probes=True)
    with pytest.raises(TimeoutError) as raised:
        examined(backend)
    assert "did not answer all questions" in str(raised.value.__cause__)  # fsspec's `sync` hides the error itself


def test_verdict_is_told_where_every_look_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "CHECKUP_S_MAX", 3.0)
    monkeypatch.setattr(checkup, "RACE_S_MAX", 0.0)
    monkeypatch.setattr(checkup, "LOOK_PATIENCE_S", 0.05)

    async def lacks_etag() -> None:
        raise ConnectionError("the answer has no ETag")

    def fails() -> Any:
        return patiently(lacks_etag, lambda _: True)

    backend = Scripted(private_memory(), suspends=True)
    for verb in ("copy", "list"):
        backend.plan(verb, before=fails, times=None, probes=True)
    found = examined(backend)
    assert found.is_safe
    assert "no ETag" in means(found, "copy on the server")
