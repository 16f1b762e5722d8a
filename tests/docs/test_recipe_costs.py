"""What each recipe says that it costs: requests, counted on SeaweedFS, times how often, at the prices of its page."""

import contextlib
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.servers import count_requests, new_bucket, require_module

for module in ("pandas", "s3fs", "tensorboard"):
    require_module(module)

import pandas as pd

from rollingfs.logging import RollingHandler

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
DAY_S = 86_400
SECONDS = {"s": 1, "min": 60, "h": 3600}
GETS = {"GetObject", "HeadBucket", "HeadObject"}
PUTS = {"PutObject", "CopyObject", "ListObjectsV2", "CreateMultipartUpload", "UploadPart", "UploadPartCopy"}
PUTS |= {"CompleteMultipartUpload", "ListMultipartUploads"}
DOLLARS = {"PUT": 0.005 / 1000, "GET": 0.0004 / 1000}
ROW = re.compile(
    r"\| (?P<what>[^|]+) \| (?P<requests>[^|]+) \| (?P<often>[^|]+) \| (?P<day>[\d,]+) \| (?P<price>[\d.]+) \|"
)
REPEATED = {
    "the same, at the default interval": "an interval in which a process logs",
    "the same, with 20 scalars": "an event (`add_scalar`)",
}


@dataclass(frozen=True)
class Row:
    """A row of a page's table of costs."""

    page: str
    what: str
    requests: Counter[str]
    times: int
    """A day."""
    day: int
    price: str


def times_a_day(text: str) -> int:
    """``every 10 s``, ``20 every 10 s``, ``1000 a day``."""
    if found := re.fullmatch(r"(\d+) a day", text):
        return int(found[1])
    found = re.fullmatch(r"(?:(\d+) )?every (\d+) (s|min|h)", text)
    assert found, f"how often is {text!r}?"
    return int(found[1] or 1) * DAY_S // (int(found[2]) * SECONDS[found[3]])


def rows() -> list[Row]:
    found = []
    for path in sorted(RECIPES.glob("*.md")):
        for match in ROW.finditer(path.read_text(encoding="utf-8")):
            parts = [part.split() for part in match["requests"].split(", ")]
            requests = Counter({kind: int(number) for number, kind in parts})
            day = int(match["day"].replace(",", ""))
            found.append(Row(path.stem, match["what"], requests, times_a_day(match["often"]), day, match["price"]))
    return found


ROWS = rows()


class World:
    """A bucket, a filesystem that has written there, and what one operation sends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.root = new_bucket(options)
        self.url = f"rolling+s3://{self.root}"
        self.fs, _ = fsspec.core.url_to_fs(self.url, s3=options)  # the client of its URLs
        self.fs.create(self.path("segment"))
        self.fs.append(self.path("segment"), b"first\n")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def sent(self, operation: Callable[[], object], fs: Any = None) -> Counter[str]:
        """By the kind that the price list knows."""
        counts = Counter[str]()
        with count_requests((fs or self.fs)._backend) as found:
            operation()
        for name, number in found.items():
            if name in GETS or name in PUTS:
                counts["GET" if name in GETS else "PUT"] += number
            elif not name.startswith("Delete"):  # they are free
                raise AssertionError(f"what does {name} cost?")
        return counts


@pytest.fixture(scope="module")
def world(seaweed: dict[str, Any]) -> World:
    return World(seaweed)


def interval(world: World) -> Counter[str]:
    with contextlib.closing(RollingHandler(world.path("segment"), fs=world.fs, interval="1h")) as handler:
        for text in ("text", "more"):
            handler.emit(logging.LogRecord("a", logging.INFO, "", 0, text, None, None))
        return world.sent(handler.flush)


def event(world: World) -> Counter[str]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    with pytest.MonkeyPatch.context() as patch:
        # the client of the URL is the one that is counted
        patch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (world.fs, world.fs._strip_protocol(url)))
        writer = EventFileWriter(f"{world.url}/runs")
        writer.flush()

        def add() -> None:
            writer.add_event(Event(step=1, wall_time=time.time()))
            writer.flush()

        add()
        counts = world.sent(add)
        writer.close()
    return counts


def save_of_rows(world: World) -> Counter[str]:
    path = f"{world.url}/segment"

    def save() -> None:
        with world.fs.open(path, "a" if world.fs.isfile(path) else "w", newline="") as file:
            file.write("1,2\r\n")

    save()
    return world.sent(save)


def to_csv(world: World) -> Counter[str]:
    frame = pd.DataFrame({"a": [1]})

    def write() -> None:
        url = f"{world.url}/segment"
        frame.to_csv(url, mode="a", header=False, index=False, storage_options={"s3": world.options})

    return world.sent(write)


def read_csv(world: World) -> Counter[str]:
    world.fs.pipe_file(world.path("table"), b"a\n1\n")
    reader = fsspec.filesystem("rolling+s3", skip_instance_cache=True, s3=world.options)

    def read() -> None:
        with reader.open(world.path("table")) as file:
            assert len(pd.read_csv(file)) == 1

    return world.sent(read, reader)


def batch(world: World) -> Counter[str]:
    def write() -> None:
        world.fs.invalidate_cache(world.path("segment"))
        known = world.fs.segment(world.path("segment")).attrs.get("offset-0")
        world.fs.append(world.path("segment"), b"a\n", attrs={"offset-0": "1"}, expected_attrs={"offset-0": known})

    return world.sent(write)


def export(world: World) -> Counter[str]:
    return world.sent(lambda: world.fs.export(world.path("segment"), world.path("exported")))


def commit_of_task(world: World) -> Counter[str]:
    with world.fs.open(world.path("task"), "a", commit_on="flush") as file:
        print("first", file=file, flush=True)
        return world.sent(lambda: print("second", file=file, flush=True))


# the other rows are one append, one read or one look, whose requests the traces of the verbs hold
MEASURES: dict[str, Callable[[World], Counter[str]]] = {
    "an interval in which a process logs": interval,
    "an event (`add_scalar`)": event,
    "a save of new rows": save_of_rows,
    '`to_csv(mode="a")`': to_csv,
    "`read_csv`": read_csv,
    "a commit of a running task": commit_of_task,
    "a batch of a partition": batch,
    "an export of a segment that fits into its header": export,
}


def test_every_recipe_says_what_it_costs() -> None:
    assert {row.page for row in ROWS} == {path.stem for path in RECIPES.glob("*.md")} - {"index"}
    assert {row.what for row in ROWS} > MEASURES.keys() | REPEATED.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.page}: {row.what}")
def test_a_day_costs_what_the_page_says(row: Row) -> None:
    assert row.day == sum(row.requests.values()) * row.times
    assert row.price == f"{sum(DOLLARS[kind] * number for kind, number in row.requests.items()) * row.times:.4f}"
    if row.what in REPEATED:
        assert row.requests == next(other.requests for other in ROWS if other.what == REPEATED[row.what])


@pytest.mark.parametrize("what", MEASURES)
def test_an_operation_sends_what_the_page_says(what: str, world: World) -> None:
    assert MEASURES[what](world) == next(row.requests for row in ROWS if row.what == what)
