"""An append without conditions goes behind records that its writer does not know of: no look, no race, true offsets."""

import sys
from pathlib import Path

import pytest

from rollingfs.format import records
from rollingfs.format.header import RECORDS_MAX
from rollingfs.format.names import header_path
from rollingfs.runtime.meters import CONFLICT
from tests.support.places import counted, new_fs


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_clients_that_append_by_turns_neither_look_nor_lose(tmp_path: Path) -> None:
    log, one, two = f"{tmp_path}/log", new_fs(), new_fs()
    one.create(log)
    one.append(log, b"1")
    two.append(log, b"2")
    before = [counted(fs, f"request.{verb}") for fs in (one, two) for verb in ("read", "read_if_changed")]
    for number in range(20):
        assert one.append(log, b"1") == 2 + 2 * number
        assert two.append(log, b"2") == 3 + 2 * number
    assert [counted(fs, f"request.{verb}") for fs in (one, two) for verb in ("read", "read_if_changed")] == before
    assert counted(one, CONFLICT) + counted(two, CONFLICT) == 0
    assert one.cat_file(log) == b"12" * 21
    assert one.info(log)["version"] == two.info(log)["version"] == 43


@pytest.mark.parametrize("others", [b"", b"Record 3 w 1 1", b"x"], ids=["none", "torn", "no record"])
def test_a_record_follows_on_whole_records_only(others: bytes) -> None:
    segment = "0" * 36
    record = records.Record(2, "me", 7, 1_700_000_000_000, b"data")
    assert records.behind(record, others, segment, RECORDS_MAX, 100) is None


def test_a_record_follows_on_others_within_the_limits() -> None:
    segment, at_ms = "0" * 36, 1_700_000_000_000
    record = records.Record(2, "me", 7, at_ms, b"data")
    others = b"".join(records.Record(version, "you", version, at_ms, b"12345").encode(segment) for version in (2, 3))
    adapted = records.behind(record, others, segment, 3, 14)
    assert (adapted.version, adapted.data) == (4, b"data")
    assert records.behind(record, others, segment, 2, 14) is None  # no room for a third
    assert records.behind(record, others, segment, 3, 13) is None  # too many bytes
    assert records.behind(record, others, "1" * 36, 3, 14) is None  # of another incarnation
    own = records.Record(2, "me", 7, at_ms, b"1").encode(segment)
    assert records.behind(record, own, segment, 3, 14) is None  # it may be this append


def test_a_torn_record_in_between_ends_with_a_new_file(tmp_path: Path) -> None:
    log, one, two = f"{tmp_path}/log", new_fs(), new_fs()
    one.create(log)
    one.append(log, b"one ")
    two.append(log, b"two ")
    with open(header_path(log), "ab") as file:
        file.write(b"Record 99 torn")
    assert one.append(log, b"three") == 8
    assert new_fs().cat_file(log) == b"one two three"
    assert b"torn" not in Path(header_path(log)).read_bytes()
