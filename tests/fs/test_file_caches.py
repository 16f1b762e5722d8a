"""fsspec's caches over our files: within `open`, and chained before the filesystem."""

import random
from pathlib import Path

import fsspec
import pytest
from fsspec.caching import caches

from rollingfs import CorruptChunkError, RollingFileSystem, RollingPolicy
from rollingfs.format import names

DATA = random.Random(3).randbytes(300_000)
SPANS = [(0, 100), (200_000, 200_010), (299_990, 300_000), (5, 150_000), (0, 300_000)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    fs = RollingFileSystem("file")
    fs.create(f"{tmp_path}/x", RollingPolicy(max_bytes=70_000, inline_bytes=0))
    fs.append(f"{tmp_path}/x", b"gone!" + DATA)
    fs.truncate(f"{tmp_path}/x", 5)
    return f"{tmp_path}/x"


def read(file: fsspec.core.OpenFile, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


@pytest.mark.parametrize("kind", sorted(filter(None, caches)))
def test_file_opens_with_any_cache_of_fsspec(path, kind):
    with RollingFileSystem("file").open(path, cache_type=kind) as file:
        assert [read(file, *span) for span in SPANS] == [DATA[start:end] for start, end in SPANS]
        file.seek(7)
        assert b"".join(file) == DATA[7:]


def test_unknown_cache_is_refused_in_a_sentence(path):
    with pytest.raises(ValueError, match=f"{path}: fsspec knows no cache_type 'readahed'; leave it out"):
        RollingFileSystem("file").open(path, cache_type="readahed")


def test_known_parts_are_neither_invented_nor_fetched_again(path, monkeypatch):
    fs = RollingFileSystem("file")
    parts = {(10, 20): DATA[10:20], (50, 60): DATA[50:60]}
    with fs.open(path, cache_type="parts", cache_options={"data": dict(parts)}) as file:
        for start, end in [(12, 18), (10, 60), (15, 25), (30, 40), (55, 90)]:
            assert read(file, start, end) == DATA[start:end]
    with fs.open(path, cache_type="parts", cache_options={"data": dict(parts), "strict": True}) as file:
        monkeypatch.setitem(vars(fs._client), "fetcher", None)
        assert read(file, 12, 18) == DATA[12:18]
        with pytest.raises(ValueError, match=f"{path}: bytes 1[58] to 25 are not among the parts that are known"):
            read(file, 15, 25)


# fsspec's block cache leaves the file of its map to the garbage collector
@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_damaged_chunk_does_not_get_into_block_cache(path, tmp_path):
    fs = RollingFileSystem("file")
    chunk = fs.segment(path)._snapshot.header.entries[1]
    file = Path(names.resolve(path, chunk.file))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(bytes(data))
    with fsspec.open(f"blockcache::rolling::file://{path}", blockcache={"cache_storage": f"{tmp_path}/c"}) as opened:
        for _ in range(2):
            with pytest.raises(CorruptChunkError):
                read(opened, 0, len(DATA))
        assert opened.cache.blocks == set()


def test_saying_that_a_file_is_closed_closes_it(path):
    file = RollingFileSystem("file").open(path)
    with pytest.raises(ValueError, match="open it again"):
        file.closed = False
    file.closed = True
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read()
