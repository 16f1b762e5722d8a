"""Where reads begin and end (times, cuts), and the columns that say where a row lies. Without a session of Spark."""

import datetime
import gzip
import json
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from rollingfs import RollingFileSystem, RollingPolicy, StreamCut
from rollingfs.format.header import Page
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import DataLossError
from rollingfs.spark.source.rows import added_to
from rollingfs.spark.source.stream.offsets import ReadPosition, parse_position
from tests.support.life import Turned
from tests.support.spark import arrow_stream
from tests.support.spark_source import NUMBERS, TEXT, batch_reader, blinded, inferred, put, read, reader, rows_of, step

CHUNKS = RollingPolicy(max_bytes=40, inline_bytes=10)


def begun(path: Any, schema: StructType = TEXT, **options: Any) -> list[Any]:
    """What a new stream reads first."""
    return step(reader(path, schema, **options))[0]


def numbered(count: int, first: int = 0) -> bytes:
    return b"".join(b'{"n": %d}\n' % nth for nth in range(first, first + count))


# -- options -----------------------------------------------------------------------------------------------------


def test_position_is_name_time_cut_or_offset_of_query():
    assert parse_position("o", " Earliest ") == ReadPosition("earliest")
    assert parse_position("o", "1970-01-01T00:01:00Z").at_s == 60
    assert parse_position("o", "1970-01-01 00:01").at_s == 60  # without a zone: UTC, as in the formats
    cut = parse_position("o", str(StreamCut({"/f/a": 7}, 5.0, 7, {"/f/a": "x"})))
    assert cut == parse_position("o", json.dumps({"/f/a": {"segment": "x", "offset": 7}}))
    assert cut.points


@pytest.mark.parametrize(
    ("reading", "options", "why"),
    [
        (read, {"startingOffsets": "latest"}, "a batch read would be empty"),
        (read, {"subscriber": "me"}, "subscriber is for streams"),
        (read, {"format": "parquet", "startingOffsets": "2026-01-01"}, "format 'parquet' is read whole"),
        (begun, {"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
    ],
)
def test_position_that_read_does_not_have_is_refused(tmp_path, reading, options, why):
    with pytest.raises(ValueError, match=why):
        reading(tmp_path, **options)


# -- cuts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "json", "arrow"])
def test_reads_from_cut_to_cut_give_records_once(fs, tmp_path, kind):
    """Cuts are taken between appends that end within records; the last of them is sealed."""
    chooser = random.Random(20261122)
    names = [f"{tmp_path}/f/{name}" for name in "abc"]
    stream, cuts = fs.stream(f"{tmp_path}/f"), []
    for round in range(6):
        for name in names:
            data = numbered(9, 100 * round)
            if kind == "arrow":
                data = b"".join(arrow_stream(pa.record_batch({"n": [100 * round + nth]})) for nth in range(2))
            at = chooser.randrange(len(data))
            put(fs, name, data[:at], CHUNKS)
            cuts.append(str(stream.cut()))
            fs.append(name, data[at:])
    for name in names:
        fs.append(name, b"" if kind == "arrow" else b'{"n": 999}')
        fs.seal(name)
    cuts.append(str(stream.cut()))
    schema = TEXT if kind == "text" else NUMBERS
    found = read(tmp_path / "f", schema, format=kind, endingOffsets=cuts[0])
    for start, end in pairwise(cuts):
        found += read(tmp_path / "f", schema, format=kind, startingOffsets=start, endingOffsets=end)
    found += read(tmp_path / "f", schema, format=kind, startingOffsets=cuts[-1])
    assert sorted(found) == sorted(read(tmp_path / "f", schema, format=kind))
    assert len(found) == (36 if kind == "arrow" else 165)


def gzipped(fs: RollingFileSystem, path: Path, count: int = 3) -> None:
    """A compressed segment of numbers, in two appends; their bytes have no line feed."""
    tries = (gzip.compress(numbered(count, first), level, mtime=0) for level in range(1, 10) for first in range(100))
    data = next(data for data in tries if b"\n" not in data)
    fs.overwrite(str(path), data[:10])
    fs.append(str(path), data[10:])


def test_segment_of_a_cut_is_found_despite_the_listing(fs, tmp_path, monkeypatch):
    folder = tmp_path / "f"
    for name in ("a", "b"):
        fs.overwrite(f"{folder}/{name}", f"{name}\n".encode())
    cut = str(fs.stream(str(folder)).cut())
    fs.append(f"{folder}/a", b"more\n")
    blinded(monkeypatch, f"{folder}/a")
    assert read(folder) == ["b"]  # nothing here knows the name that is missed
    assert read(folder, endingOffsets=cut) == ["a", "b"]
    assert read(folder, startingOffsets=cut) == begun(folder, startingOffsets=cut) == ["more"]
    fs.rm(f"{folder}/a")
    with pytest.raises(DataLossError, match="the segment is gone"):
        read(folder, startingOffsets=cut)


def test_compressed_segment_is_read_whole_around_positions_only(fs, tmp_path):
    path = tmp_path / "f" / "a.gz"
    fs.overwrite(str(tmp_path / "f" / "b"), b"{}\n")
    before = str(fs.stream(str(tmp_path / "f")).cut())
    gzipped(fs, path)
    behind = str(fs.stream(str(tmp_path / "f")).cut())
    incarnation = fs.stream(str(tmp_path / "f")).cut().incarnations[str(path)]
    within = json.dumps({str(path): {"segment": incarnation, "offset": 10}})
    later = moment(time.time() + 3600)
    assert len(read(path, endingOffsets=behind)) == 3
    assert len(read(path, endingOffsets=later)) == 3
    assert len(read(tmp_path / "f", startingOffsets=before, endingOffsets=behind)) == 3
    assert read(path, startingOffsets=behind) == []
    assert read(path, startingOffsets=later) == []
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(ValueError, match=r"a\.gz: .*only the whole can be read, but offset 10 of "):
            read(path, **{option: within})


def test_stream_reads_compressed_segments_only_once_sealed(fs, tmp_path):
    path = tmp_path / "a.gz"
    gzipped(fs, path)
    with pytest.raises(ValueError, match=r"a\.gz: .* while it may grow: seal it; nothing of it was read"):
        begun(path)
    fs.seal(str(path))
    assert len(begun(path)) == 3
    assert len(begun(path, maxBytesPerTrigger="5")) == 3
    assert begun(path, startingOffsets="latest") == []


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_replaced_segments_cut_is_data_loss_never_an_offset(fs, tmp_path, option):
    for name in ("a", "b"):
        fs.overwrite(f"{tmp_path}/f/{name}", b"old\nolder\n")
    cut = str(fs.stream(f"{tmp_path}/f").cut())
    fs.overwrite(f"{tmp_path}/f/a", b"new one\nnew two\n")
    with pytest.raises(DataLossError, match=f"/f/a: option {option} names offset .* of another segment"):
        read(tmp_path / "f", **{option: cut})
    found = read(tmp_path / "f", **{option: cut}, failOnDataLoss="false")
    assert found == (["new one", "new two"] if option == "startingOffsets" else ["old", "older"])
    fs.rm(f"{tmp_path}/f/a")
    with pytest.raises(DataLossError, match=f"/f/a: the segment is gone; option {option} names offset 10"):
        read(tmp_path / "f", **{option: cut})


def test_head_past_the_cut_or_end_before_it_fails(fs, tmp_path, caplog):
    fs.overwrite(f"{tmp_path}/f/a", b"one\n")
    cut = fs.stream(f"{tmp_path}/f").cut()
    fs.append(f"{tmp_path}/f/a", b"two\nthree\n")
    fs.truncate(f"{tmp_path}/f/a", 8)
    for reading in (read, begun):
        with pytest.raises(DataLossError, match="bytes 4 to 8 were truncated away"):
            reading(tmp_path / "f", startingOffsets=str(cut))
        assert reading(tmp_path / "f", startingOffsets=str(cut), failOnDataLoss="false") == ["three"]
    ahead = StreamCut({f"{tmp_path}/f/a": 15}, cut.at, 15, cut.incarnations)
    with pytest.raises(ValueError, match=r"startingOffsets names offset 15 of .*/f/a, but it holds bytes 8 to 14"):
        read(tmp_path / "f", startingOffsets=str(ahead))
    with pytest.raises(ValueError, match="is a cut of other segments"):
        read(tmp_path / "f", endingOffsets=str(StreamCut({"/g/a": 1}, 0, 1)))


@pytest.mark.parametrize("change", ["truncated past both", "truncated between", "came later", "deleted", "nothing"])
def test_cut_passed_by_retention_is_data_loss(fs, tmp_path, change):
    """Where both cuts name one offset of a segment, nothing of it is lacking, be it gone or not."""
    stream = fs.stream(f"{tmp_path}/f")
    for name in "ab":
        fs.overwrite(f"{tmp_path}/f/{name}", b"one\n")
    fs.overwrite(f"{tmp_path}/f/same", b"same\n")
    first = str(stream.cut())
    for name in "ab":
        fs.append(f"{tmp_path}/f/{name}", b"two\nthree\n")
    fs.overwrite(f"{tmp_path}/f/c", b"four\nfive\n")
    positions = {"startingOffsets": first, "endingOffsets": str(stream.cut())}
    fs.append(f"{tmp_path}/f/a", b"six\n")
    fs.rm(f"{tmp_path}/f/same")
    rows = ["two", "three", "two", "three", "four", "five"]
    assert read(tmp_path / "f", **positions) == rows
    if change == "truncated past both":
        fs.truncate(f"{tmp_path}/f/a", 14)
    elif change == "truncated between":
        fs.truncate(f"{tmp_path}/f/a", 8)
    elif change == "came later":
        fs.truncate(f"{tmp_path}/f/c", 5)
    elif change == "deleted":
        fs.rm(f"{tmp_path}/f/a")
    left = {"truncated past both": rows[2:], "truncated between": rows[1:], "came later": rows[:4] + rows[5:]}
    left |= {"deleted": rows[2:], "nothing": rows}
    if change != "nothing":
        with pytest.raises(DataLossError, match=r"/f/[ac]: .*(truncated away|is gone)"):
            read(tmp_path / "f", **positions)
    assert read(tmp_path / "f", **positions, failOnDataLoss="false") == left[change]


def test_cut_serves_segments_and_patterns_without_later_ones(fs, tmp_path):
    for name in ("a1", "a2", "b"):
        fs.overwrite(f"{tmp_path}/f/{name}", f"{name}\n".encode())
    cut = str(fs.stream(f"{tmp_path}/f").cut())
    for name in ("a1", "a2", "b"):
        fs.append(f"{tmp_path}/f/{name}", f"{name} more\n".encode())
    fs.overwrite(f"{tmp_path}/f/c", b"c\n")
    assert read(tmp_path / "f", endingOffsets=cut) == ["a1", "a2", "b"]
    behind = ["a1 more", "a2 more", "b more", "c"]
    assert read(tmp_path / "f", startingOffsets=cut) == sorted(begun(tmp_path / "f", startingOffsets=cut)) == behind
    fs.rm(f"{tmp_path}/f/b")  # it is none of what is read
    assert read(tmp_path / "f" / "a1", startingOffsets=cut) == ["a1 more"]
    assert read(tmp_path / "f" / "a*", startingOffsets=cut) == ["a1 more", "a2 more"]
    with pytest.raises(DataLossError, match="/f/b: the segment is gone"):
        read(tmp_path / "f", startingOffsets=cut)


# -- times -------------------------------------------------------------------------------------------------------


AT_S = 4_000_000_000.0


def grown(path: Path, pieces: list[bytes], step_s: float = 60) -> RollingFileSystem:
    """A segment of chunks of one size, between whose appends some time goes by; the filesystem that lives in it."""
    clock = Turned(AT_S)
    fs = RollingFileSystem("file", sync=False, header_cache_s=0, clock=clock)
    for piece in pieces:
        put(fs, path, piece, RollingPolicy(max_bytes=len(pieces[0]), inline_bytes=0))
        clock.now_s += step_s
    return fs


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """A folder of a segment with chunks of two lines, a minute apart."""
    grown(tmp_path / "f" / "s", [numbered(2, 2 * nth) for nth in range(5)])
    return tmp_path / "f"


def moment(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).isoformat()


def test_time_is_exact_to_a_chunk_and_misses_nothing(dated):
    for seconds, count in ((-1, 0), (0, 2), (59, 2), (60, 4), (240, 10), (9999, 10)):
        split = moment(AT_S + seconds)
        after = read(dated, NUMBERS, format="json", startingOffsets=split)
        assert read(dated, NUMBERS, format="json", endingOffsets=split) == list(range(count))
        assert after == list(range(count, 10)) == begun(dated, NUMBERS, format="json", startingOffsets=split)
    between = {"startingOffsets": moment(AT_S + 60), "endingOffsets": moment(AT_S + 120)}
    assert read(dated, NUMBERS, format="json", **between) == [4, 5]


def test_record_cut_by_a_time_is_read_after_it(tmp_path):
    path = tmp_path / "s"
    grown(path, [b"one\nt", b"wo\nthree\n"])
    split = moment(AT_S + 59)
    assert (read(path, endingOffsets=split), read(path, startingOffsets=split)) == (["one"], ["two", "three"])
    assert begun(path, startingOffsets=split) == ["two", "three"]


def test_plain_file_is_before_or_after_its_change_time(tmp_path):
    (tmp_path / "p").write_bytes(b"plain\n")
    assert read(tmp_path / "p", endingOffsets=moment(time.time() - 3600)) == []
    assert read(tmp_path / "p", endingOffsets=moment(time.time() + 3600)) == ["plain"]


# -- columns -----------------------------------------------------------------------------------------------------


def rows(path: Any, schema: StructType, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows_of(batch_reader(path, schema, includeMetadata="true", **options))]


def ours(schema: StructType) -> StructType:
    columns = StructType().add("_offset", "long").add("_segment", "string").add("_commit_time", "timestamp")
    return StructType([*schema, *columns])


def test_rows_state_their_segment_position_and_commit_time(dated):
    found = rows(dated, ours(NUMBERS), format="json", partitionBytes="20")
    assert [(*row[:3], row[3].timestamp() - AT_S) for row in found] == [
        (nth, 9 * nth, f"{dated}/s", 60 * (nth // 2)) for nth in range(10)
    ]


@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("block_bytes", [16, 64, 4096])
def test_offsets_are_those_of_the_lines_whatever_ends_them(fs, tmp_path, monkeypatch, kind, block_bytes):
    """Blank lines give no row of JSON; a return counts as Spark counts it."""
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", block_bytes)
    pieces = [b'{"n": 1}\r\n', b"\n", b'{"n": 2}\n', b'{"n": 4}\r', b"  \n"]
    pieces += [b'{"n": 5}\n'] * 20 + [b"\n"] + [b'{"n": 6}']
    starts = [sum(map(len, pieces[:nth])) for nth in range(len(pieces))]
    put(fs, tmp_path / "s", b"".join(pieces), CHUNKS)
    schema = ours(TEXT if kind == "text" else NUMBERS)
    found = [row[:2] for row in rows(tmp_path / "s", schema, format=kind, partitionBytes="50")]
    texts = zip(pieces, starts, strict=True)
    if kind == "text":
        assert found == [(piece.rstrip(b"\r\n").decode(), start) for piece, start in texts]
    else:
        assert found == [(json.loads(piece)["n"], start) for piece, start in texts if piece.strip()]


def test_rows_of_a_compressed_segment_have_no_offsets(fs, tmp_path):
    gzipped(fs, tmp_path / "a.gz")
    for schema, kind in ((TEXT, "text"), (NUMBERS, "json")):
        with pytest.raises(ValueError, match=r"a\.gz is compressed, so its rows have no offsets"):
            read(tmp_path / "a.gz", ours(schema), format=kind, includeMetadata="true")


def test_arrow_rows_state_their_batch_with_dictionaries_too(fs, tmp_path):
    one = arrow_stream(pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]}))
    words = pa.record_batch({"n": pa.array(["x", "y"]).dictionary_encode()})
    put(fs, tmp_path / "s", one + one, CHUNKS)
    found = rows(tmp_path / "s", ours(NUMBERS), format="arrow")
    assert [row[0] for row in found] == [1, 2, 3, 1, 2, 3]
    first = [row[1] for row in found]
    assert first[0] == first[1] < first[2] < len(one)
    assert [start + len(one) for start in first[:3]] == first[3:]
    fs.overwrite(str(tmp_path / "d"), arrow_stream(words))
    assert [row[0] for row in rows(tmp_path / "d", ours(StructType().add("n", "string")), format="arrow")] == ["x", "y"]


def test_streams_have_columns_and_a_schema_may_pick_them(fs, tmp_path):
    fs.overwrite(str(tmp_path / "s"), b"one\ntwo\n")
    schema = StructType().add("_offset", "long").add("value", "string")
    source = reader(tmp_path / "s", schema, includeMetadata="true")
    start = source.initialOffset()
    parts = source.partitions(start, source.latestOffset(start, ReadMaxBytes(100)))
    assert rows_of(source, parts) == [{"_offset": 0, "value": "one"}, {"_offset": 4, "value": "two"}]


def test_own_columns_appear_on_request_in_their_types(fs, tmp_path):
    fs.overwrite(str(tmp_path / "s"), b'{"_offset": "theirs"}\n')
    own = StructType().add("_offset", "string")
    assert read(tmp_path / "s", own, format="json") == ["theirs"]
    with pytest.raises(ValueError, match="column _offset is string, but with includeMetadata it is int64"):
        read(tmp_path / "s", own, format="json", includeMetadata="true")
    fs.overwrite(str(tmp_path / "c"), arrow_stream(pa.record_batch({"n": [1], "_segment": [2]})))
    with pytest.raises(ValueError, match="the data has a column _segment"):
        inferred(tmp_path / "c", format="arrow", includeMetadata="true")
    with pytest.raises(ValueError, match="includeMetadata is not for it"):
        read(tmp_path / "s", own, format="binary", includeMetadata="true")
    schema = inferred(tmp_path / "s", includeMetadata="true")
    assert schema.simpleString() == "struct<value:string,_offset:bigint,_segment:string,_commit_time:timestamp>"
    assert added_to(StructType().add("n", "long")).names == ["n", "_offset", "_segment", "_commit_time"]


def test_commit_times_are_found_in_index_pages_too(tmp_path):
    timed = grown(tmp_path / "s", [b"%04d\n" % nth for nth in range(150)], 1)
    header = timed._bridge.run(timed._client.headers.view(str(tmp_path / "s"))).header
    assert any(isinstance(entry, Page) for entry in header.entries)
    found = rows(tmp_path / "s", ours(TEXT), partitionBytes="400")
    assert [(row[1], row[3].timestamp() - AT_S) for row in found] == [(5 * nth, nth) for nth in range(150)]
