"""The Java side reads and writes the same headers, pages and bytes as the Python side; no Spark session is needed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rollingfs.backend.local import LocalBackend
from rollingfs.client import Client
from rollingfs.codec import format_header
from rollingfs.header import Header
from rollingfs.policy import RollingPolicy
from rollingfs.runtime import drive
from tests import strategies
from tests.spark import world
from tests.test_header_fixtures import FLAWED, FOLDER

HEADERS_TRIED = 300

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    world.require_java()


def rewritten(folder: Path, tmp_path: Path) -> dict[str, bytes]:
    to, classes = tmp_path / "to", tmp_path / "classes"
    to.mkdir()
    classes.mkdir()
    world.run_java("Rewrite", str(folder), str(to), classes=classes)
    return {path.name: path.read_bytes() for path in to.iterdir()}


def test_java_rewrites_every_header_and_page_of_release_1_with_the_same_bytes_and_refuses_the_flawed_ones(tmp_path):
    found = rewritten(FOLDER, tmp_path)
    good = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix != ".flawed"}
    assert good
    assert {name: data for name, data in found.items() if not name.endswith(".refused")} == good
    refused = {name: data.decode() for name, data in found.items() if name.endswith(".refused")}
    assert set(refused) == {f"{name}.flawed.refused" for name in FLAWED}
    for name, reason in FLAWED.items():
        assert reason in refused[f"{name}.flawed.refused"]


def test_java_rewrites_whatever_header_python_writes_with_the_same_bytes(tmp_path):
    headers: list[bytes] = []

    @settings(max_examples=HEADERS_TRIED, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategies.headers())
    def collect(header: Header) -> None:
        headers.append(format_header(header))

    collect()
    folder = tmp_path / "from"
    folder.mkdir()
    for index, data in enumerate(headers):
        (folder / f"{index}.header").write_bytes(data)
    assert rewritten(folder, tmp_path) == {f"{index}.header": data for index, data in enumerate(headers)}


def test_java_reads_at_every_position_and_many_ranges_at_once_what_python_wrote(tmp_path):
    segments, plain, classes = tmp_path / "segments", tmp_path / "plain", tmp_path / "classes"
    for folder in (segments, plain, classes):
        folder.mkdir()
    client = Client(LocalBackend(sync=False))
    data = bytes(index * 7 % 251 for index in range(40_000))
    made = {
        "empty": (b"", 0, RollingPolicy()),
        "tail": (data[:900], 0, RollingPolicy()),
        "chunks": (data, 0, RollingPolicy(10_000, inline_bytes=0)),
        "chunks and tail": (data, 12_345, RollingPolicy(999, inline_bytes=500)),
        "pages": (data[:20_000], 777, RollingPolicy(50, inline_bytes=30)),
    }
    for name, (content, start, policy) in made.items():
        path = f"{segments}/{name}"
        drive(client.segments.create(path, policy))
        for at in range(0, len(content), 45 if name == "pages" else 3000):
            drive(client.segments.append(path, content[at : at + (45 if name == "pages" else 3000)]))
        drive(client.segments.truncate(path, start))
        (plain / name).write_bytes(content[start:])
    header = drive(client.headers.load(f"{segments}/pages")).header
    assert header is not None
    assert header.chunk_count > len(header.entries)
    assert world.run_java("Compare", str(segments), str(plain), classes=classes) == "equal\n"


def test_the_jar_has_the_same_bytes_whenever_it_is_compiled(tmp_path):
    from rollingfs.spark.hadoop import compile as compiler

    first, second = compiler.build(tmp_path / "a.jar"), compiler.build(tmp_path / "b.jar")
    assert first.read_bytes() == second.read_bytes()
    assert compiler.is_current(first)
    with zipfile.ZipFile(first) as archive:
        assert "rollingfs/hadoop/RollingFileSystem.class" in archive.namelist()
