"""A short soak on a disk and on each store; `.ci/nightly` has long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import place_of, soak
from tests.soak.check import Told, broken
from tests.soak.plan import Notes, Place
from tests.support.append_worker import record

SECONDS = 15
APPENDS_MIN = 5
STORES = {"seaweed": [], "minio": [pytest.mark.s3], "azurite": [pytest.mark.clouds]}
PLACES = ["disk", *(pytest.param(name, marks=marks) for name, marks in STORES.items())]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_killed_stopped_and_interrupted_processes_break_no_promise(kind: str, request: pytest.FixtureRequest) -> None:
    with place_of(kind, None if kind == "disk" else request.getfixturevalue(kind)) as place:
        soak(place, SECONDS, seed=1)
        assert not [*broken(place)]
        assert len(Told(place).acked) > APPENDS_MIN


@pytest.mark.parametrize(
    ("notes", "complaint"),
    [
        ([{"path": "log", "number": 1}, {"number": 1, "offset": 0}], "is lost"),
        ([{"path": "log", "number": 7}, {"number": 7, "void": "refused"}], "said that nothing was written"),
        ([{"path": "log", "number": 7}, {"number": 7, "offset": 40}], "was acknowledged at 40"),
        ([], "nobody has appended it"),
        ([{"path": "log", "number": 7}, {"fault": "a trace"}], "a trace"),
    ],
)
def test_the_check_finds_what_is_wrong(tmp_path: Path, notes: list[dict[str, object]], complaint: str) -> None:
    place = Place("file", f"{tmp_path}/data", {}, str(tmp_path))
    fs = place.open()
    for path in place.logs:
        fs.create(path)
    fs.append(place.logs[0], record("worker", 7))
    for note in notes:
        Notes(place, "worker").write(**({**note, "path": place.logs[0]} if "path" in note else note))
    assert any(complaint in text for text in broken(place))
