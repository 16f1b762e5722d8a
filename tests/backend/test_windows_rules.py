"""Names that Windows would change, and patience with programs that hold a file: rules that any system can try."""

import ntpath
from types import SimpleNamespace

import pytest
from fsspec.implementations import local

from rollingfs.backend.local import folders, looks, windows_rules
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.windows_rules import check_name, patient
from rollingfs.format import names
from rollingfs.runtime import concurrency
from rollingfs.runtime.concurrency import drive

PATH_MAX = 259
HELD, OTHER = 32, 87


class Held(OSError):
    """The error of a call of Windows."""

    def __init__(self, winerror: int) -> None:
        super().__init__(0, "held")
        self.winerror = winerror


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *[(name, "is a device") for name in ("nul", "NUL.csv$header", "nul$chunks/x", "com1.log", "aux .txt$chunks")],
        *[(name, "is a device") for name in ("conin$", "lpt\u00b9$header")],
        *[(name, "dot or a blank") for name in ("log.", "log ", "...", "a. /b", "log.$header", "log $chunks")],
        *[(f"a{sign}b", f"has {sign!r}") for sign in '<>:"|?*\x00\x1f\n'],
        ("x" * 256, "is too long"),
        ("x/" * 130, "the path has 268 characters"),
    ],
)
def test_what_windows_eats_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(OSError, match="no file was made: ") as refusal:
        check_name(f"C:/logs/{name}", PATH_MAX)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    "path",
    [
        *("C:\\logs\\app.log$header", "//server/share/log", "\\\\server\\share\\log", "C:/logs/$header"),
        *("C:/logs/nullable", "C:/logs/com10", "C:/../x", "C:/na\xefve-\u65e5\u672c\u8a9e", "C:/" + "x" * 255, "C:/"),
    ],
)
def test_other_names_are_names(path: str) -> None:
    check_name(path, PATH_MAX)


PLACES = {
    "C:/logs/app": [
        *("C:/logs/app", r"C:\logs\app", r"C:\logs\.\app\\", "file:///C:/logs/app", "file://C:/logs/app"),
        *("/C:/logs/app", "c:/logs/app", r"\\?\C:\logs\app"),
    ],
    "C:": ["C:", "C:/", "C:\\", "file:///C:/"],
    "D:/work/app": ["app", r".\app", "file://app"],
    "D:/app": [r"\app", "/app", "file:///app"],
    "//server/share/app": [
        *(r"\\server\share\app", "//server/share/app", "file:////server/share/app", r"\\server\share\.\app"),
        r"\\?\UNC\server\share\app",
    ],
}


@pytest.mark.parametrize("path", PLACES)
def test_drives_and_shares_keep_their_meaning(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = SimpleNamespace(sep="\\", path=ntpath, getcwd=lambda: "D:\\work")
    for module in (looks, local):
        monkeypatch.setattr(module, "os", windows)
    monkeypatch.setattr(local, "osp", ntpath)
    monkeypatch.setattr(names, "_SHARE", "//")
    if "/" in path:
        assert names.check_segment_name(path) == path
    assert {given: looks.canonical(given) for given in PLACES[path]} == dict.fromkeys(PLACES[path], path)


# -- patience ----------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only pauses move."""
    now = [100.0]
    time = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause_s: now.__setitem__(0, now[0] + pause_s))
    for module in (windows_rules, concurrency):
        monkeypatch.setattr(module, "time", time)
    return now


def test_a_file_that_is_held_is_waited_for(clock: list[float]) -> None:
    def step() -> str:
        if clock[0] < 103:
            raise Held(HELD)
        return "done"

    assert patient(step, {HELD}) == "done"
    assert clock[0] < 103 + 2 * windows_rules._PAUSE_S_MAX


@pytest.mark.parametrize(("deadline_s", "waited_s"), [(None, 10), (102, 2)])
def test_a_wait_ends_with_the_commits_time(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, deadline_s: float | None, waited_s: float
) -> None:
    monkeypatch.setattr(windows_rules, "until_s", lambda: deadline_s)
    with pytest.raises(Held, match=rf"held the file for {waited_s}\.0 s"):
        patient(lambda: _raise(HELD), {HELD})
    assert 0 < clock[0] - 100 - waited_s < 2 * windows_rules._PAUSE_S_MAX


def test_files_that_are_held_are_waited_for_together(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "unlink", lambda path: patient(lambda: _raise(HELD), {HELD}))
    with pytest.raises(OSError, match=r"50 of 50 files could not be deleted"):
        drive(LocalBackend().delete([f"/chunk{number}" for number in range(50)]))
    assert windows_rules.HELD_S_MAX <= clock[0] - 100 < windows_rules.HELD_S_MAX + 1


def test_any_other_error_is_raised_at_once(clock: list[float]) -> None:
    with pytest.raises(Held):
        patient(lambda: _raise(OTHER), {HELD})
    assert clock == [100.0]


def _raise(winerror: int) -> None:
    raise Held(winerror)
