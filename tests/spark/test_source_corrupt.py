"""A corrupt segment among others fails the read that meets it, or is skipped and named. Without a session of Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import CorruptChunkError, CorruptHeaderError
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.formats.arrow_streams import MalformedStreamError
from tests.support.spark import arrow_stream, parquet_file
from tests.support.spark_source import NUMBERS, TEXT, batch_reader, inferred, put, read, reader, step

CHUNKS = RollingPolicy(max_bytes=1000, inline_bytes=0)


@pytest.fixture
def folder(fs: RollingFileSystem, tmp_path: Path) -> Path:
    """Three segments and a plain file; the header of `b` is damaged. A deleted segment, and two that others hide."""
    for name in ("a", "b", "in/c", "gone", "a/hidden", "b/hidden"):
        fs.overwrite(f"{tmp_path}/f/{name}", f"{name}\n".encode())
    fs.rm(f"{tmp_path}/f/gone")
    (tmp_path / "f" / "plain").write_bytes(b"plain\n")
    Path(f"{tmp_path}/f/b$header").write_bytes(b"rubbish")
    return tmp_path / "f"


# -- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "/*", "/[ab]*", "/b"])
def test_corrupt_header_fails_the_read_with_name_and_advice(folder, place):
    with pytest.raises(CorruptHeaderError, match=r"^1 of \d segments cannot be read: .*/f/b \(.*onCorrupt=skip"):
        read(f"{folder}{place}")


@pytest.mark.parametrize(
    ("place", "rows"), [("", ["a", "in/c", "plain"]), ("/*", ["a", "in/c", "plain"]), ("/[ab]", ["a"]), ("/b", [])]
)
def test_segment_with_corrupt_header_is_skipped_and_counted(folder, caplog, place, rows):
    assert read(f"{folder}{place}", onCorrupt="skip") == rows
    [record] = [record for record in caplog.records if "onCorrupt" in record.getMessage()]
    assert record.getMessage().startswith(f"1 of {len(rows) + 1} segments cannot be read: {folder}/b (")


def test_columns_are_inferred_from_segments_that_are_not_corrupt(fs, tmp_path):
    for name in ("a", "b", "c"):
        put(fs, f"{tmp_path}/f/{name}", arrow_stream(pa.record_batch({name: [1]})) * (9 if name == "a" else 1), CHUNKS)
    Path(f"{tmp_path}/f/a$header").write_bytes(b"rubbish")
    damage(tmp_path / "f" / "b")
    with pytest.raises(CorruptHeaderError):
        inferred(tmp_path / "f", format="arrow")
    assert inferred(tmp_path / "f", format="arrow", onCorrupt="skip").names == ["c"]
    with pytest.raises(CorruptChunkError):
        inferred(tmp_path / "f" / "b", format="arrow")


# -- chunks ------------------------------------------------------------------------------------------------------


def damage(path: Path, nth: int = 0) -> None:
    """Cut a chunk short."""
    chunk = sorted(Path(f"{path}$chunks").glob("0*"))[nth]
    chunk.write_bytes(chunk.read_bytes()[:-1])


def content(kind: str) -> bytes:
    if kind == "parquet":
        return parquet_file(pa.table({"n": list(range(500))}), row_group_size=50)
    if kind == "arrow":
        return arrow_stream(pa.record_batch({"n": list(range(500))}))
    return b"".join(b'{"n": %d}\n' % n for n in range(500))


@pytest.mark.parametrize("kind", ["text", "json", "arrow", "parquet", "binary"])
def test_corrupt_bytes_are_skipped_before_any_row_is_given(fs, tmp_path, caplog, kind):
    for name in ("bad", "good"):
        put(fs, f"{tmp_path}/f/{name}", content(kind), CHUNKS)
    damage(tmp_path / "f" / "bad")
    schema = {"text": TEXT, "binary": StructType().add("length", "long")}.get(kind, NUMBERS)
    with pytest.raises(CorruptChunkError):
        read(tmp_path / "f", schema, format=kind)
    found = read(tmp_path / "f", schema, format=kind, onCorrupt="skip")
    assert found == read(tmp_path / "f" / "good", schema, format=kind)
    assert found
    assert f"{tmp_path}/f/bad: bytes 0 to " in caplog.text
    assert "are skipped (onCorrupt=skip)" in caplog.text


def test_cut_arrow_is_refused_sealed_and_reported_growing(fs, tmp_path, caplog):
    path = tmp_path / "s"
    rows = pa.record_batch({"n": list(range(500))})
    whole = arrow_stream(rows.slice(0, 200), rows.slice(200))
    fs.overwrite(str(path), whole)
    assert read(path, NUMBERS, format="arrow") == list(range(500))
    assert not caplog.text
    fs.append(str(path), whole[:-100])
    assert read(path, NUMBERS, format="arrow") == [*range(500), *range(200)]
    assert f"{path}: bytes " in caplog.text
    assert "are not a whole Arrow IPC message; they are not read" in caplog.text
    fs.seal(str(path))
    with pytest.raises(MalformedStreamError, match=r"/s: bytes \d+ to \d+ are not a whole .*, and no more can come"):
        read(path, NUMBERS, format="arrow")
    assert read(path, NUMBERS, format="arrow", onCorrupt="skip") == [*range(500), *range(200)]
    assert "are skipped (onCorrupt=skip)" in caplog.text


def test_late_found_corruption_is_an_error(fs, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", 1000)
    path = tmp_path / "s"
    put(fs, path, content("json"), CHUNKS)
    damage(path, 3)
    with pytest.raises(CorruptChunkError, match=r"/s: bytes 0 to \d+ cannot be skipped: .* were given out before"):
        read(path, onCorrupt="skip")


def test_header_damaged_after_the_plan_fails_or_skips(fs, tmp_path, caplog):
    for option in ("fail", "skip"):
        path = tmp_path / option
        fs.overwrite(str(path), b"a\n")
        reader = batch_reader(path, onCorrupt=option)
        [part] = reader.partitions()
        Path(f"{path}$header").write_bytes(b"rubbish")
        if option == "fail":
            with pytest.raises(CorruptHeaderError):
                list(reader.read(part))
        else:
            assert list(reader.read(part)) == []
            assert "bytes 0 to 2 are skipped" in caplog.text


# -- streams -----------------------------------------------------------------------------------------------------


def test_stream_pauses_a_segment_while_its_header_is_corrupt(fs, tmp_path, caplog):
    for name in ("a", "b"):
        fs.overwrite(f"{tmp_path}/f/{name}", f"{name} one\n".encode())
    source = reader(tmp_path / "f", onCorrupt="skip")
    rows, at = step(source, source.initialOffset())
    assert rows == ["a one", "b one"]
    header = Path(f"{tmp_path}/f/b$header")
    fs.append(f"{tmp_path}/f/b", b"b two\n")
    sound = header.read_bytes()
    header.write_bytes(b"rubbish")
    fs.append(f"{tmp_path}/f/a", b"a two\n")
    with pytest.raises(CorruptHeaderError):
        step(reader(tmp_path / "f"), at)
    rows, at = step(source, at)
    assert rows == ["a two"]
    assert step(source, at) == ([], at)
    assert caplog.text.count("1 of 2 segments cannot be read") == 1
    header.write_bytes(sound)
    assert step(source, at)[0] == ["b two"]


def test_stream_waits_before_corrupt_bytes_and_skips_a_tasks(fs, tmp_path, caplog):
    for name in ("a", "b"):
        put(fs, f"{tmp_path}/f/{name}", content("json"), CHUNKS)
    damage(tmp_path / "f" / "a", -1)
    source = reader(tmp_path / "f", onCorrupt="skip")
    rows, at = step(source, source.initialOffset())
    assert rows == read(tmp_path / "f" / "b")
    assert at[f"{tmp_path}/f/a"]["offset"] == 0
    fs.append(f"{tmp_path}/f/a", b"sound\n")
    with pytest.raises(CorruptChunkError):
        step(reader(tmp_path / "f"), at)
    assert step(source, at)[0] == []
    assert f"{tmp_path}/f/a: bytes 0 to {len(content('json')) + 6} are skipped" in caplog.text
