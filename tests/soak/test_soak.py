"""Half a minute of soak on a disk and on stores; `.ci/nightly` has a quarter of an hour of each."""

from pathlib import Path

import pytest

from tests.soak.__main__ import place_of, soak
from tests.soak.check import Told, broken, growth
from tests.soak.plan import Place, write_note
from tests.support.records import record

SECONDS = 25
"""More than three times the longest stop; in CI on two places, since eight workers take both processors."""
TEST_S_MAX = 900
TRIED: dict[str, object] = {"path": "log", "number": 7, "at": 3}
EARLIER = TRIED | {"number": 8, "at": 1}
APPENDS_MIN = 5
STORES = {
    "minio": pytest.mark.s3,
    "far": pytest.mark.s3,
    "azurite": pytest.mark.clouds,
    "fake_google": pytest.mark.clouds,
}
PLACES = ["disk", "seaweed", *(pytest.param(name, marks=[mark, pytest.mark.nightly]) for name, mark in STORES.items())]


@pytest.mark.slow
@pytest.mark.timeout(TEST_S_MAX)
@pytest.mark.parametrize("kind", PLACES)
def test_killed_stopped_and_interrupted_processes_break_no_promise(kind: str, request: pytest.FixtureRequest) -> None:
    with place_of(kind, None if kind in ("disk", "far") else request.getfixturevalue(kind)) as place:
        soak(place, SECONDS, seed=1)
        assert not [*broken(place)]
        assert len(Told(place).acked) > APPENDS_MIN


@pytest.mark.parametrize(
    ("notes", "complaint"),
    [
        ([TRIED | {"number": 1}, {"number": 1, "offset": 0, "at": 4}], "is lost"),
        ([TRIED, {"number": 7, "void": "refused"}], "said that nothing was written"),
        ([TRIED, {"number": 7, "offset": 40, "at": 4}], "was acknowledged at 40"),
        ([TRIED | {"expected_offset": 5}, {"number": 7, "offset": 0, "at": 4}], "conditioned on another offset"),
        ([EARLIER, {"number": 8, "offset": 99, "at": 2}, TRIED, {"number": 7, "offset": 0, "at": 4}], "stands before"),
        ([], "nobody has appended it"),
        ([TRIED, {"fault": "a trace"}], "a trace"),
    ],
)
def test_the_check_finds_what_is_wrong(tmp_path: Path, notes: list[dict[str, object]], complaint: str) -> None:
    place = Place("file", f"{tmp_path}/data", {}, str(tmp_path))
    fs = place.open()
    for path in place.logs:
        fs.create(path)
    fs.append(place.logs[0], record("worker", 7))
    for note in notes:
        write_note(place, "worker", **({**note, "path": place.logs[0]} if "path" in note else note))
    assert any(complaint in text for text in broken(place))


@pytest.mark.parametrize(("key", "more"), [("rss", 2**27), ("files", 20), ("rest", 20), ("threads", 20)])
def test_steady_growth_is_found_and_changing_pools_are_not(tmp_path: Path, key: str, more: int) -> None:
    usual = {"rss": 2**27, "files": 9, "sockets": 30, "threads": 5}
    place = Place("file", f"{tmp_path}/data", {}, str(tmp_path))
    for name, grows in (("steady", 0), ("leaking", more)):
        for at in range(40):
            health = usual | {"sockets": 30 + at}
            write_note(place, name, health=health | ({key: usual[key] + grows * at // 10} if key in usual else {}))
        write_note(place, name, rest=2 + (grows if key == "rest" else 0))
    (found,) = growth(place)
    assert "leaking" in found
