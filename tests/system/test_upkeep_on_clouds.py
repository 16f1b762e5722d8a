"""`rollingfs run` and `maintain` on Azure (azurite) and Google (fake-gcs-server), with a tier on the same store."""

import json
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.fs.core import core
from rollingfs.spark.maintain import maintain
from tests.soak.__main__ import STORES
from tests.support.cli import done

DATA = b"".join(b"%09d\n" % number for number in range(400))
NAMES = ("a", "b", "c")

pytestmark = [pytest.mark.clouds, pytest.mark.slow]


class Place:
    """A folder in a new container, with three segments of forty small chunks."""

    def __init__(self, protocol: str, options: dict[str, Any], container: str) -> None:
        own = {"tiers": {"cold": {"root": f"{container}/cold"}}}
        self.url = f"{protocol}://{container}/logs"
        self.options = [f"--option={name}={json.dumps(value)}" for name, value in options.items()]
        self.options.append(f"--option=tiers.cold.root={container}/cold")
        self.target, self.storage_options = options, {**options, "rolling": own}
        self.fs = RollingFileSystem(protocol, options, **own, skip_instance_cache=True)
        self.folder = f"{container}/logs"
        self.paths = [f"{self.folder}/{name}" for name in NAMES]
        for path in self.paths:
            self.fs.create(path, RollingPolicy(max_bytes=100, inline_bytes=0))
            self.fs.append(path, DATA)
            self.fs.set_policy(path, max_bytes=4000)

    def chunks(self, path: str) -> list[tuple[str, int]]:
        """The tier and size of each chunk."""
        return [(chunk.tier, chunk.length) for chunk in self.fs.segment(path).chunks]

    def files(self, folder: str) -> set[str]:
        """The chunk files of a segment, or of one in the tier."""
        below = core(self.fs)
        return {info.path for info in below.run(below.backend.list(f"{folder}$chunks")).entries}


@pytest.fixture(params=["azurite", "fake_google"])
def place(request: pytest.FixtureRequest) -> Place:
    protocol, new_place, _ = STORES[request.param]
    options: dict[str, Any] = request.getfixturevalue(request.param)
    return Place(protocol, options, new_place(options))


def test_rounds_of_run_join_move_retain_and_collect(place: Place) -> None:
    fs, [first, second, third] = place.fs, place.paths
    assert place.chunks(first) == [("", 100)] * 40
    fs.set_policy(first, OffloadPolicy("cold", block_bytes=2000, deletion_lag=0))
    fs.seal(second)
    run = ["run", place.url, "--once", "--json", "--grace", "0", "--readers-grace", "0", *place.options]
    *_, whole = done(*run).lines
    assert (whole["failed"], whole["moved_bytes"], whole["joined_chunks"]) == ({}, 4000, 76)
    done(*run)
    assert place.chunks(first) == [("cold", 2000)] * 2
    assert place.chunks(second) == [("", 4000)]
    assert len(place.chunks(third)) == 8, "four of nine and the last four"
    assert len(place.files(second)) == 1, "the forty old files are gone"
    fs.stream(place.folder).retention = RetentionPolicy.by_size(5000, every=0)
    done(*run)
    assert [fs.cat_file(path) for path in place.paths] == [DATA] * 3
    fs.append(first, DATA[::-1] * 2)
    *_, whole = done(*run).lines
    assert (whole["streams"], whole["failed"], whole["dropped_bytes"]) == (1, {}, 3 * len(DATA))
    assert [fs.cat_file(path) for path in (first, third)] == [DATA[::-1] * 2, b""]
    assert not fs.exists(second), "it was sealed, and nothing of it is kept"


def test_maintain_does_all_of_its_operations(place: Place) -> None:
    fs, options = place.fs, {"storage_options": place.storage_options}
    operations = ["verify", "truncate", "seal", "consolidate", "offload", "collect", "info"]
    more: dict[str, Any] = {"tier": "cold", "block_bytes": 1500, "deletion_lag": 0, "grace": 0, "readers_grace": 0}
    rows = maintain(None, place.url, operations, keep=3000, align="\n", **more, **options)
    assert [(row.path, row.error) for row in rows] == [(path, None) for path in place.paths]
    assert [place.chunks(path) for path in place.paths] == [[("cold", 3000)]] * 3
    target = {"target": f"{place.url}-exported", "target_options": place.target}
    exported = maintain(None, place.url, "export", **target, **options)
    assert [row.error for row in exported] == [None] * 3
    rows = maintain(None, f"{place.url}/*", ["concat", "upkeep"], into="whole", **options)
    assert [row.error for row in rows] == [None] * 4
    assert fs.find(place.folder) == [f"{place.folder}/whole"]
    assert fs.cat_file(f"{place.folder}/whole") == DATA[-3000:] * 3
