"""A pattern reads the headers of what matches it, and of nothing else."""

from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.backends import LOOKS, Scripted, private_memory


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest) -> Any:
    """A store with 60 segments, a plain file and some folders in a folder."""
    store = Scripted(private_memory(), suspends=request.param == "async")
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    fs.pipe({f"/logs/{number:02d}.{'csv' if number < 3 else 'txt'}": b"x" for number in range(60)})
    fs.pipe({"/logs/a/deep.csv": b"deep", "/logs/b/other": b"x", "/logs/c.csv/in": b"x"})
    fs.create("/logs/gone.csv")
    fs.rm("/logs/gone.csv")
    return store


MATCHES = {
    "/logs/*.csv": ["/logs/00.csv", "/logs/01.csv", "/logs/02.csv", "/logs/c.csv"],
    "/logs/0[01]*": ["/logs/00.csv", "/logs/01.csv"],
    "/logs/?": ["/logs/a", "/logs/b"],
    "/logs/*/": ["/logs/a", "/logs/b", "/logs/c.csv"],
    "/logs/**/deep*": ["/logs/a/deep.csv"],
    "/*/*/oth*": ["/logs/b/other"],
    "/none/*": [],
    "/logs/00.csv": ["/logs/00.csv"],
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_reads_the_headers_of_what_matches(store: Any, pattern: str) -> None:
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    store.calls.clear()
    assert fs.glob(pattern) == MATCHES[pattern]
    read = {call[1].removesuffix("$header") for call in store.calls if call[0] in LOOKS}
    files = {path for path in read if not path.endswith("$listing") and fs.isfile(path)}
    to_see_whether_folders_live = {"/logs/c.csv/in", "/logs/a/deep.csv", "/logs/b/other"}
    assert files <= {*MATCHES[pattern]} | to_see_whether_folders_live
    assert fs.glob(pattern, detail=True) == {path: fs.info(path) for path in MATCHES[pattern]}
