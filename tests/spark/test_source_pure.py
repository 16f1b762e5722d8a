"""The parts of the data source that need no Spark: options, ranges, lines, Arrow streams, Parquet footers."""

import io
import json
import platform
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from rollingfs.spark.source import segments
from rollingfs.spark.source.formats import arrow_streams, lines, text, whole_files
from rollingfs.spark.source.options import BATCH, WRITE, parse_options, parse_url
from rollingfs.spark.source.segments import Extent, Range
from rollingfs.spark.source.stream import batch_ends, offsets
from rollingfs.spark.source.stream.batch_ends import Run
from rollingfs.spark.source.stream.offsets import ReadMark
from tests.support.spark import arrow_stream, parquet_file

ARROW = arrow_streams.FORMATS["arrow"]
SHIFT = 1000
"""Where the bytes begin: nothing may rely on offset 0."""


def reader_of(data: bytes, shift: int = SHIFT) -> lines.Read:
    def read(start: int, end: int) -> bytes:
        assert shift <= start <= end <= shift + len(data)
        return data[start - shift : end - shift]

    return read


def extent_of(data: bytes, shift: int = SHIFT) -> Extent:
    return Extent("x", "id", shift, shift + len(data))


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("rolling::s3://b/x", ("s3", "s3://b/x")),
        ("rolling+s3://b/x", ("s3", "s3://b/x")),
        ("rolling+s3a://b/x", ("s3", "s3://b/x")),
        ("s3a://b/x/*", ("s3", "s3://b/x/*")),
        ("file:///data/x", ("file", "/data/x")),
        ("file:/data/x", ("file", "/data/x")),
        ("rolling::file:///data/x", ("file", "/data/x")),
        ("rolling+file:///data/x", ("file", "/data/x")),
        ("/data/x", ("file", "/data/x")),
        ("memory://x", ("memory", "memory://x")),
    ],
)
def test_every_url_form_names_backend_and_path(url, place):
    assert parse_url(url) == place


TIERS = {"cold": {"root": "s3://archive/x", "options": {"secret": "HIDE"}}}
OF_BOTH = {"rolling": {"max_bytes": 7}, "s3": {"key": "k"}}


@pytest.mark.parametrize(
    ("storage", "tiers", "rolling", "target"),
    [
        ({"key": "me", "secret": "HIDE"}, None, {}, {"key": "me", "secret": "HIDE"}),
        ({"s3": {"key": "me", "secret": "HIDE"}}, None, {}, {"key": "me", "secret": "HIDE"}),
        (OF_BOTH, None, {"max_bytes": 7}, {"key": "k"}),
        (OF_BOTH, TIERS, {"max_bytes": 7, "tiers": TIERS}, {"key": "k"}),
        ({"rolling": {"tiers": TIERS}}, None, {"tiers": TIERS}, {}),
    ],
    ids=["flat", "nested", "of both", "tiers by their own option", "tiers within"],
)
def test_storage_options_may_be_flat_or_nested_hidden_always(storage, tiers, rolling, target):
    more = {} if tiers is None else {"tiers": json.dumps(tiers)}
    found = parse_options({"path": "s3://b/x", "storage_options": json.dumps(storage), **more})
    assert (found.rolling_options, found.target_options) == (rolling, target)
    assert "HIDE" not in repr(found) + str(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"path": url}, "names no") for url in ("events/x", "rolling://x", "s3://", "", "rolling::")),
        ({"paths": '["s3://b/x", "/y"]'}, "one backend"),
        ({"maxbytespertriger": "1"}, "no option maxbytespertriger; near is maxBytesPerTrigger"),
        ({"colour": "1"}, "no option colour; it has format"),
        ({"format": "orc"}, "option format is 'orc': it must be one of"),
        ({"format": "csv"}, r"'csv' is read and written by Spark itself.*read_csv\(spark, url, schema\).*to_csv"),
        ({"format": "json", "mode": "PERMISSIVE"}, "no option mode.*stream_json"),
        ({"format": "json", "timeZone": "UTC"}, "no option timezone.*read_json"),
        ({"format": "arrow", "compression": "gzip"}, "option compression is for lines"),
        ({"format": "text", "compression": "zip"}, "option compression is 'zip'"),
        ({"onCorrupt": "ignore"}, "option onCorrupt is 'ignore': it must be one of fail, skip"),
        ({"storage_options": '{"secret": "HIDE"'}, "storage_options must be a JSON object"),
        ({"tiers": '["HIDE"]'}, "tiers must be a JSON object"),
        ({"tiers": "{}", "storage_options": '{"rolling": {"tiers": {}}}'}, "given twice"),
        # of streams
        ({"maxbytespertrigger": "0"}, "at least 1 byte"),
        *(({name: "x"}, name) for name in ("maxRecordsPerTrigger", "minBytesPerTrigger", "maxTriggerDelay")),
        ({"subscriber": ""}, "option subscriber is empty"),
        # positions
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
        *(({"endingOffsets": text}, "option endingOffsets is ") for text in ("soon", "1700000000", '{"a": 1}', "{")),
        ({"endingOffsets": '{"base": "/f", "changed": {}, "gone": []}'}, "option endingOffsets is "),
        # of writes
        ({"maxBytes": "0"}, "option maxBytes: max_bytes is 0"),
        ({"inlineBytes": "2MiB"}, "option inlineBytes: inline_bytes is 2097152"),
        ({"maxAge": "soon"}, "option maxAge: 'soon' is not a duration"),
        ({"taskMessageBytes": "-1"}, "option taskMessageBytes: '-1' is not a size"),
        ({"segmentBy": ""}, "option segmentBy is empty"),
        ({"txnAppId": "a"}, "options txnAppId and txnVersion are 'a' and None: give both"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "whole number"),
    ],
)
def test_invalid_option_is_refused_without_its_secrets(options, message):
    with pytest.raises(ValueError, match=message) as raised:
        parse_options({"path": "/x"} | options)
    assert "HIDE" not in str(raised.value)


def test_options_without_a_path_are_refused():
    with pytest.raises(ValueError, match="needs a path"):
        parse_options({})


def test_sizes_are_written_as_in_a_policy():
    options = parse_options({"path": "/x", "partitionBytes": "1MiB", "maxBytesPerTrigger": "10kB"})
    assert (options.partition_bytes, options.trigger_bytes_max) == (1024**2, 10_000)


# -- ranges ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 100))
def test_ranges_cover_an_extent_without_gap_overlap_or_excess(start, size, size_max):
    found = list(segments.split(Extent("x", "i", start, start + size), size_max))
    assert [one.start for one in found[1:]] == [one.end for one in found[:-1]]
    assert sum(one.size for one in found) == size
    assert all(0 < one.size <= size_max for one in found)


def test_thousands_of_small_segments_share_tasks_in_their_order():
    ranges = [Range(Extent(f"{nth:05}", "i", 0, 100), 0, 100) for nth in range(5000)]
    groups = segments.gather(ranges, 32 * 1024 * 1024)
    assert len(groups) < 50
    assert [one for group in groups for one in group] == ranges


RUN = st.builds(lambda *span: span, st.integers(1, 1000), st.integers(0, 9), st.integers(0, 12))
RUNS = st.lists(RUN, min_size=1, max_size=4)


def runs_of(spans: list[tuple[int, int, int]]) -> list[Run]:
    found, last = [], 0
    for size, since, until in sorted(spans, key=lambda span: span[1]):
        found.append((size, max(last, since), max(last, since, until)))
        last = int(found[-1][2])
    return found


@given(st.dictionaries(st.text(max_size=2), RUNS, max_size=8), st.integers(1, 9000))
def test_budget_is_spent_oldest_first(spans, most):
    backlogs = {name: runs_of(of_one) for name, of_one in spans.items()}
    shares = batch_ends.share(backlogs, most)
    waits = {name: sum(size for size, _, _ in of_one) for name, of_one in backlogs.items()}
    assert all(0 <= shares[name] <= max(size, most) for name, size in waits.items())
    assert min(most, sum(waits.values())) - len(waits) <= sum(shares.values()) <= max(most, 0)
    assert not waits or sum(shares.values()) > 0

    def time_of(name: str, offset: int) -> float:
        for size, since_ms, until_ms in backlogs[name]:
            if offset < size:
                return since_ms + (until_ms - since_ms) * offset / size
            offset -= size
        return float("inf")

    newest = max((time_of(name, size - 1) for name, size in shares.items() if size), default=0)
    oldest = min((time_of(name, size + 1) for name, size in shares.items() if size + 1 < waits[name]), default=newest)
    assert newest <= oldest + 3  # a byte may be as wide as the longest run


def test_sealed_segments_are_sequential_and_growing_ones_parallel():
    backlogs = {"b": [(100, 2, 2)], "a": [(100, 1, 1)], "y": [(100, 5, 9)], "x": [(300, 5, 9)]}
    assert batch_ends.share(backlogs, 150) == {"a": 100, "b": 50, "x": 0, "y": 0}
    assert batch_ends.share(backlogs, 400) == {"a": 100, "b": 100, "x": 150, "y": 50}


# -- lines -------------------------------------------------------------------------------------------------------


def lines_of(data: bytes) -> list[bytes]:
    """What Spark's own reader makes of a file."""
    whole = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return whole[:-1].split(b"\n") if whole.endswith(b"\n") else whole.split(b"\n") if whole else []


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"", b"x" * 9]), max_size=30).map(b"".join),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 5),
)
def test_each_line_belongs_to_its_first_bytes_range(data, size, block, look):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LOOK_BYTES", look)
        read, extent = reader_of(data), extent_of(data)
        found = []
        for one in segments.split(extent, size):
            for _, held, end in lines.raw_blocks(read, extent.start, one.start, one.end, extent.end, block):
                part = lines.normalized(held, end)
                assert bytes(part)
                found += lines_of(bytes(part))
                assert b"\r" not in bytes(part)
    assert found == lines_of(data)


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\xff", b"\n")), st.integers(1, 7))
def test_ends_of_lines_are_found_from_both_sides(data, look):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LOOK_BYTES", look)
        read, end = reader_of(data), SHIFT + len(data)
        assert lines.last_line_end(read, SHIFT, end) == SHIFT + data.rfind(b"\n") + 1
        first = data.find(b"\n")
        assert lines.next_line_end(read, SHIFT, end) == (SHIFT + first + 1 if first >= 0 else None)


def test_text_keeps_empty_lines_and_non_utf8_bytes():
    data = b"a\n\n\xff\xfe\nb"
    found = text.to_lines(lines.normalized(data, len(data)))
    assert found.cast(pa.binary()).to_pylist() == [b"a", b"", b"\xff\xfe", b"b"]


def test_text_is_written_line_row_and_read_back():
    rows = pa.record_batch({"value": ["a", None, "ü"]})
    assert b"".join(text.FORMATS["text"].encode(iter([rows, rows.slice(0, 0)]))) == "a\n\nü\n".encode()


# -- Arrow streams -----------------------------------------------------------------------------------------------


def stream_of(*values: Any) -> bytes:
    return arrow_stream(*[pa.record_batch({"n": value}) for value in values])


BATCHES = st.lists(st.lists(st.integers(0, 9), max_size=200), min_size=1, max_size=5)


@given(st.lists(BATCHES, max_size=5), st.integers(1, 5000))
def test_adjacent_arrow_streams_are_whole_however_they_are_cut(content, size):
    data = b"".join(stream_of(*[pa.array(values, pa.int64()) for values in batches]) for batches in content)
    read = reader_of(data)
    ranges = list(arrow_streams.cut(read, extent_of(data), size))
    parts = [list(arrow_streams.batches(read, one)) for one in ranges]
    found = [n for part in parts for batch in part for n in batch.column(0).to_pylist()]
    assert found == [n for batches in content for values in batches for n in values]
    for one, part in zip(ranges, parts, strict=True):
        assert one.size <= size or len(part) <= 1 or one.head == (0, 0)


def test_a_large_stream_is_cut_between_its_batches():
    data = stream_of(*[list(range(1000))] * 20)
    assert len(list(arrow_streams.cut(reader_of(data), extent_of(data), 20_000))) > 5


def test_a_stream_with_dictionaries_stays_in_one_piece():
    column = pa.array(["a", "b"] * 1000).dictionary_encode()
    data = arrow_stream(*[pa.record_batch([column], ["s"])] * 5)
    [one] = arrow_streams.cut(reader_of(data), extent_of(data), 1000)
    assert sum(batch.num_rows for batch in arrow_streams.batches(reader_of(data), one)) == 10_000


def test_a_stream_is_taken_only_once_it_is_whole():
    one, two = stream_of([1]), stream_of([2, 3])
    data = one + two
    for size in range(len(data) + 1):
        part = data[:size]
        expected = len(one) * (size >= len(one)) + len(two) * (size >= len(data))
        assert ARROW.end_behind(reader_of(part), extent_of(part), SHIFT + size, is_last=False) == SHIFT + expected
    assert ARROW.end_behind(reader_of(data), extent_of(data), SHIFT + 1, is_last=False) == SHIFT + len(one)


def test_stream_without_its_end_mark_ends_where_next_begins():
    data = stream_of([1])[:-8] + stream_of([2]) + stream_of([3])[:-8]
    ranges = arrow_streams.cut(reader_of(data), extent_of(data), 10**6)
    batches = [batch for one in ranges for batch in arrow_streams.batches(reader_of(data), one)]
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == [1, 2, 3]


def test_bytes_that_are_no_arrow_stream_fail_with_offset():
    data = stream_of([1])
    with pytest.raises(arrow_streams.MalformedStreamError, match="offset 1000: no message"):
        list(arrow_streams.streams(reader_of(b"some text, not Arrow"), extent_of(b"some text, not Arrow")))
    [schema, *_] = arrow_streams.messages(reader_of(data), extent_of(data))
    head_gone = data[schema.end - SHIFT :]
    with pytest.raises(arrow_streams.MalformedStreamError, match="does not begin with a schema"):
        list(arrow_streams.streams(reader_of(head_gone), extent_of(head_gone)))


def test_rows_become_one_stream_and_none_become_nothing():
    batch = pa.record_batch({"n": [1, 2]})
    data = b"".join(ARROW.encode(iter([batch, batch.slice(0, 0), batch])))
    assert pa.ipc.open_stream(data).read_all().to_pydict() == {"n": [1, 2, 1, 2]}
    assert b"".join(ARROW.encode(iter([batch.slice(0, 0)]))) == b""


# -- Parquet -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 4000))
def test_row_group_belongs_to_its_first_bytes_range(size):
    data = parquet_file(pa.table({"n": list(range(200))}), row_group_size=30)
    found = []
    for one in segments.split(Extent("x", "i", SHIFT, SHIFT + len(data)), size):
        found += [n for batch in whole_files.batches(io.BytesIO(data), one, ["n"]) for n in batch.column(0).to_pylist()]
    assert found == [*range(200)]


# -- offsets of a stream -----------------------------------------------------------------------------------------


def test_offsets_survive_json_and_determine_a_batch():
    start = {"a": ReadMark("i", 10), "b": ReadMark("j", 5), "gone": ReadMark("k", 7)}
    end = {
        "a": ReadMark("i", 30),
        "b": ReadMark("j", 9, 8),
        "new": ReadMark("l", 4, 2, sealed=True),
        "idle": ReadMark("m", 3, 3),
    }
    again = offsets.parse(json.loads(json.dumps(offsets.format_offset(end))))
    assert again == end
    assert offsets.extents(start, again) == [Extent("a", "i", 10, 30), Extent("b", "j", 8, 9), Extent("new", "l", 2, 4)]


# -- memory ------------------------------------------------------------------------------------------------------

TASKS = """
import resource
from rollingfs.spark.source.segments import keep_memory

def task():  # two blocks are alive at a time: Spark writes one while the next is read
    blocks = [bytes([1]) * (9 << 20), bytes([2]) * (9 << 20)]
    for _ in range(3):
        blocks = [blocks[1], bytes([3]) * (9 << 20)]

{first}
task()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
task()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other rules for free memory")
def test_task_takes_no_new_pages_for_equal_blocks() -> None:
    def pages(first: str) -> int:
        command = [sys.executable, "-c", TASKS.format(first=first)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert pages("keep_memory()") < 100 < pages("pass")


# -- options of the other side -----------------------------------------------------------------------------------


OF_WRITES = ("maxBytes", "segmentBy", "txnAppId", "taskMessageBytes")
OF_READS = {"partitionBytes": "1", "startingOffsets": "earliest", "maxBytesPerTrigger": "1"}
OF_BOTH = {"queryName": "q", "checkpointLocation": "/c", "storage_options": "{}", "tiers": "{}", "compression": "none"}


@pytest.mark.parametrize(
    ("name", "value", "use", "other", "why"),
    [
        *((name, "1", WRITE, BATCH, ".* for writes, and batch reads would ignore") for name in OF_WRITES),
        *((name, value, BATCH, WRITE, " is for reads, .*; nothing was written") for name, value in OF_READS.items()),
    ],
)
def test_one_sided_options_are_refused_by_the_other_side(name, value, use, other, why):
    more = {"txnVersion": "1"} if name == "txnAppId" else {}
    found = parse_options({"path": "/x", **OF_BOTH, name: value, **more})
    found.check_use(use)
    with pytest.raises(ValueError, match=f"option {name}{why}"):
        found.check_use(other)
