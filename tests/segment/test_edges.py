"""The kinds of a segment's ends, which its header notes: they join as the bytes do, after every verb."""

import contextlib
import gzip
import random
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RollingFileSystem, core
from rollingfs.backend.memory import MemoryBackend
from rollingfs.errors import RollingError, WholeFileError
from rollingfs.format import whole_files
from rollingfs.format.header import Header, changed
from rollingfs.format.side_files import HEAD_BYTES, TAIL_BYTES
from rollingfs.format.whole_files import JoinPart
from tests.support.backends import private_memory
from tests.system.test_traces import Tracer

RANDOM = random.Random(55)
LINES = b"a line of a log\n" * 400
JSON = b'{"a": "' + b"x" * 6000
MARKER = RANDOM.randbytes(16)


def _tar() -> bytes:
    with tarfile.open(fileobj=(file := BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("name.log"))
    return file.getvalue()


PLAIN = {
    "lines": LINES,
    "open": LINES + b"the last line is open",
    "text": b"x" * 6000,
    "json": JSON,
    "data": b"\1\2" * 3000,
    "gzip": gzip.compress(RANDOM.randbytes(6000)),
    "lines, then data": LINES + b"\0\1" * 3000,
    "data, then lines": b"\0\1" * 3000 + LINES,
    "ends like a text of ORC": LINES + b"ORC\n",
}
"""Contents that a look need not show."""
MARKED = {
    "zeros": bytes(6000),
    "tar": _tar(),
    "compressed tar": gzip.compress(_tar() + RANDOM.randbytes(6000)),
    "ORC": b"ORC" + bytes(6000) + b"ORC\x03",
    "short ORC": bytes(6000) + b"\x03ORC\x03",
    "Parquet": b"PAR1" + bytes(6000) + b"PAR1",
    "zip": LINES + b"PK\5\6" + bytes(18),
    "Avro": b"Obj\x01" + bytes(6000) + MARKER,
    "XML": b'<?xml version="1.0"?>\n<rows>' + b"<row/>\n" * 1000,
    "Arrow": b"\xff\xff\xff\xff\x10\1\0\0" + bytes(6000),
    "boot": bytes(510) + b"\x55\xaa" + bytes(33000) + b"CD001\x01" + bytes(6000),
    "late HDF5": bytes(8192) + b"\x89HDF\r\n\x1a\n" + b"\1" * 6000,
    "MaxMind": bytes(6000) + b"\xab\xcd\xefMaxMind.com" + bytes(500),
}
"""Contents whose ends show a format, or a format that the longest look shows."""
WALKS = 40
OTHERS = (b"line\n", b"abc", b"\0", MARKER)


def judged(head: bytes, tail: bytes) -> list[Any]:
    """Whether a part with these ends joins to others, and which parts need a line feed."""
    found: list[Any] = []
    for other in OTHERS:
        for at in (0, 1):
            parts = [JoinPart("other", None, (0, 9), other, other)]
            parts.insert(at, JoinPart("part", None, (0, 9), head, tail))
            try:
                found.append(whole_files.unended(parts, adds_line_feeds=at == 0 and other == b"abc"))
            except WholeFileError as error:
                found.append(str(error))
    return found


def header_of(fs: RollingFileSystem, path: str) -> Header:
    header = core(fs).run(core(fs).client.headers.load(path)).header
    assert header is not None
    return header


@pytest.mark.parametrize("name", [*PLAIN, *MARKED])
def test_a_kind_joins_as_its_bytes_do(name: str) -> None:
    data = {**PLAIN, **MARKED}[name]
    kinds = whole_files.kinds_of(data[:HEAD_BYTES], data[-TAIL_BYTES:])
    assert all(kinds) == (name in PLAIN), kinds
    fs = RollingFileSystem(backend=private_memory(), inline_bytes=0)
    fs.pipe_file("/part", data)
    header = header_of(fs, "/part")
    found = whole_files.noted(header)
    assert (found is not None) == (name in PLAIN)
    if found is not None:
        assert judged(*found) == judged(data[:HEAD_BYTES], data[-TAIL_BYTES:])


def _verbs(fs: RollingFileSystem, path: str, chance: random.Random) -> dict[str, Any]:
    def some() -> bytes:
        data = chance.choice([*PLAIN.values()] * 4 + [*MARKED.values()])
        return data[: chance.choice((3, 900, *[len(data)] * 5))]

    def stream() -> None:
        with fs.open(path, chance.choice(("ab", "wb"))) as file:
            for data in (some(), some()):
                file.write(data)

    def place() -> int:
        header = header_of(fs, path)
        return header.start + chance.choice((0, 1, 4000, header.size // 2, header.size))

    def sources() -> list[str]:
        names = [f"{path}1", f"{path}2"][: chance.choice((1, 2))]
        for name in names:
            fs.pipe_file(name, some())
            fs.seal(name)
        return names

    return {
        "append": lambda: fs.append(path, some()),
        "append of a line": lambda: fs.append(path, b"line\n"),
        "append of staged data": lambda: fs.append(path, fs.stage(path, some())),
        "overwrite": lambda: fs.pipe_file(path, some()),
        "open": stream,
        "truncate": lambda: fs.truncate(path, place(), as_bytes=True),
        "erase": lambda: fs.truncate(path, place(), erase=True, as_bytes=True),
        "roll": lambda: fs.roll(path),
        "consolidate": lambda: fs.segment(path).consolidate(grace=0),
        "offload": lambda: fs.offload(path, "cold", after_bytes=0),
        "onload": lambda: fs.onload(path),
        "mv": lambda: (fs.mv(path, f"{path}t"), fs.mv(f"{path}t", path)),
        "concat": lambda: fs.concat(path, sources(), as_bytes=True),
        "source": lambda: (
            fs.seal(path),
            fs.concat(f"{path}t", [path], as_bytes=True, create=True),
            fs.mv(f"{path}t", path),
        ),
        "create": lambda: (fs.rm(path), fs.create(path)),
        "adopt": lambda: (fs.rm(path), Path(path).write_bytes(some()), fs.append(path, b"more\n")),
    }


def test_the_noted_kinds_are_true_after_every_verb(tmp_path: Path) -> None:
    chance, seen = random.Random(52), set()
    tiers = {"cold": f"file://{tmp_path}-cold"}
    fs = RollingFileSystem("file", sync=False, max_bytes=12_000, inline_bytes=2000, tiers=tiers)
    for walk in range(WALKS):
        path = str(tmp_path / str(walk))
        fs.pipe_file(path, chance.choice([*PLAIN.values()]))
        verbs = _verbs(fs, path, chance)
        for verb in chance.sample([*verbs], 6):
            with contextlib.suppress(RollingError, FileNotFoundError):  # nothing was changed
                verbs[verb]()
            header, data = header_of(fs, path), fs.cat_file(path)
            found = whole_files.noted(header)
            if found is not None:
                seen.add(verb)
                assert judged(*found) == judged(data[:HEAD_BYTES], data[-TAIL_BYTES:]), verb
    assert verbs.keys() - seen <= {"create", "adopt", "source", "erase", "truncate", "concat"}


@pytest.mark.parametrize("verb", ["append", "truncate", "roll", "concat", "append of a line"])
def test_an_older_release_that_keeps_the_line_voids_it(verb: str, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    fs = RollingFileSystem("file", sync=False, max_bytes=12_000, inline_bytes=2000)
    fs.pipe_file(path, LINES)
    fs.append(path, b"line\n")
    edges = header_of(fs, path).edges
    verbs = _verbs(fs, path, random.Random(1))
    fs.truncate(path, 5000) if verb == "truncate" else verbs[verb]()
    kept = changed(header_of(fs, path), edges=edges)
    assert edges is not None
    assert (whole_files.noted(kept) is not None) == (verb == "append of a line")


WRITERS: dict[str, Callable[[RollingFileSystem, str, bytes], object]] = {
    "append": lambda fs, path, data: (fs.create(path), fs.append(path, data)),
    "overwrite": lambda fs, path, data: fs.pipe_file(path, data),
    "staged": lambda fs, path, data: (fs.create(path), fs.append(path, fs.stage(path, data))),
    "open": lambda fs, path, data: _write_pieces(fs, path, data),
}


def _write_pieces(fs: RollingFileSystem, path: str, data: bytes) -> None:
    with fs.open(path, "wb") as file:
        for start in range(0, len(data), 777):
            file.write(data[start : start + 777])


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["lines", "data", "gzip"])
def test_a_concat_of_sealed_sources_reads_no_data(writer: str, name: str) -> None:
    tracer = Tracer(MemoryBackend(MemoryFileSystem(global_store=False, skip_instance_cache=True)))
    fs = RollingFileSystem(backend=tracer, skip_instance_cache=True, max_bytes=2**20, inline_bytes=100)
    sources = [f"/{number}" for number in range(10)]
    for path in sources:
        WRITERS[writer](fs, path, PLAIN[name] * (1 if writer == "append" else 200))
        fs.seal(path)
    fs.create("/all")
    tracer.lines.clear()
    fs.concat("/all", sources)
    assert len(tracer.lines) == 3 * len(sources) + 1, tracer.lines


def test_noted_blocks_join_the_file_that_has_their_marker() -> None:
    fs = RollingFileSystem(backend=private_memory(), inline_bytes=0)
    for path, data in (("/all", MARKED["Avro"]), ("/part", b"\1\2" * 3000 + MARKER), ("/other", PLAIN["data"])):
        fs.pipe_file(path, data)
        fs.seal(path) if path != "/all" else None
    with pytest.raises(WholeFileError):
        fs.concat("/all", ["/part", "/other"])
    fs.concat("/all", ["/part"])
    assert fs.cat_file("/all").endswith(MARKER)
