"""Attributes of an append that depend on the header that it is committed to, and on its offset."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rollingfs import RollingFileSystem, core
from rollingfs.errors import RollingError
from rollingfs.segment.verbs.append import append as extend
from tests.support.schedules import in_threads

APPENDS = 40


def test_computed_attributes_see_the_header_of_the_commit(tmp_path: Path) -> None:
    fs, path = RollingFileSystem("file"), f"{tmp_path}/a"
    fs.create(path)

    def append(number: int) -> None:
        def attrs(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
            seen = present.get("seen", "").split()
            if any(one.startswith(f"{number % 10}:") for one in seen):
                raise RollingError("seen before")
            return {"seen": " ".join([*seen, f"{number % 10}:{offset}"])}

        try:
            core(fs).run(extend(core(fs).client, path, b"%d" % (number % 10), attrs=attrs))
        except RollingError:
            refused.append(number)

    refused: list[int] = []
    assert in_threads(*(partial(append, number) for number in range(APPENDS))) == [None] * APPENDS
    data = fs.cat_file(path)
    assert sorted(data) == sorted(b"0123456789")
    assert len(refused) == APPENDS - 10
    seen = dict(one.split(":") for one in fs.segment(path).attrs["seen"].split())
    assert sorted(seen) == [str(number) for number in range(10)]
    assert all(data[int(offset) : int(offset) + 1] == name.encode() for name, offset in seen.items())
