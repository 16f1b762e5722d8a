"""An append without conditions goes behind records that its writer does not know of: no look, no race, true offsets."""

import dataclasses
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.local import record_lock
from rollingfs.errors import AppendInterrupted, CorruptHeaderError, FencedError, SegmentSealedError
from rollingfs.format import records
from rollingfs.format.codec import format_header, parse_file
from rollingfs.format.header import OFFSET_MAX, RECORDS_MAX, Header
from rollingfs.format.names import header_path
from rollingfs.format.records import Tip
from rollingfs.runtime.meters import CONFLICT
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.segment import Grown, Segment
from rollingfs.segment.write.group_commit import Group
from tests.support.backends import raises
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


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_an_append_follows_on_another_header_without_a_look(tmp_path: Path) -> None:
    log, one, two = f"{tmp_path}/log", new_fs(), new_fs()
    one.create(log)
    one.append(log, b"1")
    before = [counted(one, f"request.{verb}") for verb in ("read", "read_if_changed", "extend")]
    for number in range(5):
        two.append(log, b"2", attrs={"number": str(number)})  # as all with attributes, it replaces the header
        two.append(log, b"3")
        assert one.append(log, b"1") == 3 + 3 * number
    after = [counted(one, f"request.{verb}") for verb in ("read", "read_if_changed", "extend")]
    assert after == [*before[:2], before[2] + 5]
    assert counted(one, CONFLICT) == 0
    assert one.cat_file(log) == two.cat_file(log) == b"1" + b"231" * 5
    assert one.segment(log).attrs == {"number": "4"}
    assert one.info(log)["version"] == 17
    os.write(made := os.open(header_path(log), os.O_WRONLY | os.O_APPEND), b"Record 99 torn")
    os.close(made)
    two.append(log, b"2", attrs={"number": "5"})
    assert one.append(log, b"1") == 17


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_who_finds_a_full_header_replaces_it_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, one, two = f"{tmp_path}/log", new_fs(policy=RollingPolicy(inline_bytes=8)), new_fs()
    one.create(log)
    two.append(log, b"2")
    one.append(log, b"1")
    two.append(log, b"345678")
    taken: list[bool] = []
    step = Group.step

    async def seen(group: Group, base: Segment, attempt: Attempt) -> Header | None:
        taken.append(bool(record_lock._of_thread.locks))
        return await step(group, base, attempt)

    monkeypatch.setattr(Group, "step", seen)
    before = counted(one, "request.replace")
    assert one.append(log, b"90") == 8
    assert taken == [True]
    assert counted(one, CONFLICT) == counted(one, "request.replace") - before == 1
    assert not record_lock._of_thread.locks
    two.append(log, b"12345678")
    monkeypatch.setattr(Group, "step", raises(KeyboardInterrupt()))
    with pytest.raises(AppendInterrupted):
        one.append(log, b"8")
    assert not record_lock._of_thread.locks
    assert two.cat_file(log) == b"213456789012345678"


SEGMENT, AT_MS = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27", 1_700_000_000_000
BASE = Header(SEGMENT, 1, policy=RollingPolicy(inline_bytes=20), tail=b"123456", tail_at_ms=AT_MS)


def record(version: int, writer: str = "you", segment: str = SEGMENT) -> bytes:
    return records.Record(version, writer, version, AT_MS, b"12345").encode(segment)


@pytest.mark.parametrize(
    "others",
    [
        b"",
        record(2)[:-1],
        record(2) + b"Record 3 w 1 1",
        b"x",
        record(2, segment="1" * 36),
        record(3),
        record(2) + record(4),
        record(2, "me"),
    ],
    ids=["none", "torn", "torn behind", "no record", "incarnation", "version", "gap", "perhaps this append"],
)
def test_a_tip_takes_whole_records_of_others(others: bytes) -> None:
    assert Tip.of(BASE, RECORDS_MAX).behind(others, SEGMENT, "me") is None


def test_a_tip_keeps_the_limits() -> None:
    tip = Tip.of(BASE, 3).behind(record(2) + record(3), SEGMENT, "me")
    assert tip == Tip(3, 16, 1, 4, AT_MS)
    made, after = tip.record("me", 7, AT_MS - 1, b"data")
    assert made == records.Record(4, "me", 7, AT_MS, b"data")
    assert after == Tip(4, 20, 0, 0, AT_MS)
    assert tip.record("me", 7, AT_MS, b"data+") is None  # too many bytes
    assert after.record("me", 8, AT_MS, b"") is None  # no room for a fourth
    assert tip.record("w" * 129, 7, AT_MS, b"data") is None
    assert Tip.of(dataclasses.replace(BASE, start=OFFSET_MAX - 8), 3).record("me", 7, AT_MS, b"data") is None


def test_the_header_is_made_late() -> None:
    known = Segment("s", BASE, "token", room=3)
    tip = known.tip.behind(record(2), SEGMENT, "me")
    own, after = tip.record("me", 7, AT_MS + 9, b"data")
    made = Grown(Grown(known, record(2), tip), own, after, "now")
    assert (made.version, made.length, made.tail_bytes, made.room, made.token) == (3, 15, 15, 1, "now")
    assert made.text is BASE  # nobody has asked for more
    header, room = parse_file(format_header(BASE) + record(2) + own.encode(SEGMENT), "x")
    assert (made.header, made.room) == (header, room - RECORDS_MAX + 3)
    assert (made.version, made.length, made.tail_bytes) == (header.version, header.length, len(header.tail))
    late = Grown(made, b"", made.tip)  # made of the header, not of records
    last, end = made.tip.record("me", 8, AT_MS, b"-")
    assert late.text is made.header
    assert Grown(late, last, end).header == records.fold(header, [last])
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.header, copy.token, copy.text, copy.tip) == (header, "now", header, made.tip)
    assert Grown(copy, last, end).header == records.fold(header, [last])
    bad = Grown(known, record(3), tip)
    with pytest.raises(CorruptHeaderError, match="makes version 3 of version 1"):
        _ = bad.header


def test_a_replaced_header_ends_a_tip(tmp_path: Path) -> None:
    """A client that has a tip, or has just seen what is there, meets all that a record must not follow."""
    deeds: dict[str, Callable[[RollingFileSystem, str], object]] = {
        "sealed": lambda fs, log: fs.seal(log),
        "owned": lambda fs, log: fs.segment(log).acquire("owner"),
        "made anew": lambda fs, log: (fs.rm(log), fs.pipe_file(log, b"another")),
        "linked": lambda fs, log: os.link(header_path(log), f"{log}-backup"),
    }
    raised = {"sealed": SegmentSealedError, "owned": FencedError, "made anew": FileNotFoundError}
    for deed, do in deeds.items():
        log, one, two = f"{tmp_path}/{deed}", new_fs(), new_fs()
        one.pipe_file(log, b"1")
        handle = one.segment(log)
        handle.append(b"2")
        do(two, log)
        seen = Path(header_path(log)).read_bytes()
        for append in (handle.append, handle.append) if deed != "sealed" else (partial(one.append, log), handle.append):
            if deed == "linked":
                append(b"3")
            else:
                with pytest.raises(raised[deed]):
                    append(b"3")
        kept = Path(f"{log}-backup" if deed == "linked" else header_path(log)).read_bytes()
        assert kept == seen, deed
