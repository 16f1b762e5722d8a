"""A release of before tiers and today's on one set of segments: what it must stop at, and what it must keep.

That Java reads segments in tiers, and skips the line `offload`, is tested in tests/spark/test_hadoop_format.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem
from tests.support.cli import environment
from tests.support.races import BEFORE_ASKS

OLD = """
import json, sys
import rollingfs
from rollingfs import RollingFileSystem

fs = RollingFileSystem("file", sync=False, max_bytes=100, inline_bytes=10)
found = {"code": rollingfs.__file__}
for name, verb, path in json.load(sys.stdin):
    try:
        if verb == "append":
            fs.append(path, b"old" * 10)
        elif verb == "retain":
            fs.stream(path).retain()
        elif verb == "mv":
            fs.mv(path, path + "-moved")
        found[name] = fs.cat_file(path).decode() if verb == "cat" else "done"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def by_the_old_release(*steps: tuple[str, str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", OLD],
        input=json.dumps(steps),
        env=environment() | {"PYTHONPATH": str(BEFORE_ASKS)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert str(BEFORE_ASKS) in found.pop("code")
    return found


@pytest.mark.slow
def test_a_release_of_before_tiers_keeps_policies_and_stops_at_tiers_and_at_policies_of_folders(tmp_path: Path) -> None:
    fs = RollingFileSystem("file", sync=False, max_bytes=100, inline_bytes=10, tiers={"cold": str(tmp_path / "cold")})
    a, b, c = (f"{tmp_path}/stream/{name}" for name in "abc")
    for path in (a, b, c):
        fs.pipe_file(path, b"n" * 250)
    fs.set_policy(a, OffloadPolicy("cold", after_bytes=100), max_bytes=50)
    fs.set_policy(c, OffloadPolicy("cold", after_age="1h"))
    fs.stream(f"{tmp_path}/stream").retention = RetentionPolicy.by_size(10_000)
    old = by_the_old_release(
        ("append", "append", a), ("read", "cat", a), ("mv", "mv", c), ("retain", "retain", f"{tmp_path}/stream")
    )
    assert old == {"append": "done", "read": "n" * 250 + "old" * 10, "mv": "done", "retain": "done"}
    assert fs.get_policy(a).segment == OffloadPolicy("cold", after_bytes=100), "an older release keeps the line"
    assert fs.get_policy(f"{c}-moved").segment == OffloadPolicy("cold", after_age="1h")
    fs.set_policy(f"{tmp_path}/stream", OffloadPolicy(deletion_lag="1h"))
    assert fs.stream(f"{tmp_path}/stream").offload().failed == {}
    old = by_the_old_release(
        ("tiered", "cat", a), ("append", "append", a), ("hot", "cat", b), ("retain", "retain", f"{tmp_path}/stream")
    )
    for what in ("tiered", "append", "retain"):
        assert "too new" in old[what], what
    assert old["hot"] == "n" * 250
    assert fs.cat_file(a) == b"n" * 250 + b"old" * 10
