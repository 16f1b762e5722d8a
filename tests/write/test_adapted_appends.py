"""An append without conditions goes behind records that its writer does not know of: no look, no race, true offsets."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.commit.attempt import Attempt
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown
from rollingfs.format import records
from rollingfs.format.header import RECORDS_MAX
from rollingfs.format.names import header_path
from rollingfs.runtime.meters import CONFLICT

BACKENDS: dict[str, Any] = {"file": LocalBackend, "memory": MemoryBackend}


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture(params=["memory", pytest.param("file", marks=ON_LINUX)])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def log(target: str, tmp_path: Path) -> str:
    path = f"{tmp_path}/log"
    new_fs(target).create(path, policy=RollingPolicy(inline_bytes=400, max_bytes=400))
    return path


def new_fs(target: str, **options: Any) -> RollingFileSystem:
    return RollingFileSystem(target, skip_instance_cache=True, **options)


def counted(fs: RollingFileSystem, name: str) -> int:
    tally = fs._client.store.meters.total().get(name)
    return tally.count if tally is not None else 0


@ON_LINUX
def test_clients_that_append_by_turns_neither_look_nor_lose(tmp_path: Path) -> None:
    log, one, two = f"{tmp_path}/log", new_fs("file"), new_fs("file")
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


def test_a_handle_goes_on_from_what_its_append_has_met(target: str, log: str) -> None:
    one, two = new_fs(target), new_fs(target)
    segment = one.segment(log)
    assert segment.append(b"one") == 0
    assert two.append(log, b"two") == 3
    assert segment.append(b"three") == 6
    assert segment.length == 11


@pytest.mark.parametrize("broken", [OSError(5, "injected"), MemoryError(), KeyboardInterrupt()], ids=repr)
def test_a_lost_answer_has_the_adapted_records_offset(
    target: str, log: str, monkeypatch: pytest.MonkeyPatch, broken: BaseException
) -> None:
    one, two, kind = new_fs(target), new_fs(target), BACKENDS[target]
    one.append(log, b"first ")
    two.append(log, b"second ")
    extend = kind.extend

    async def lost(self: Any, *args: Any) -> Any:
        monkeypatch.setattr(kind, "extend", extend)
        await extend(self, *args)
        two.append(log, b"fourth")
        raise broken

    monkeypatch.setattr(kind, "extend", lost)
    if isinstance(broken, KeyboardInterrupt):
        with pytest.raises(AppendInterrupted) as caught:
            one.append(log, b"third ")
        assert caught.value.outcome == "committed"
    else:
        assert one.append(log, b"third ") == 13
    assert new_fs(target).cat_file(log) == b"first second third fourth"


def test_followers_of_an_interrupted_leader_get_their_true_offsets(log: str, target: str, monkeypatch: Any) -> None:
    """The leader dies by Ctrl-C after its commit went behind another client's record."""
    one, two, kind = new_fs(target), new_fs(target), BACKENDS[target]
    one.append(log, b"first ")
    two.append(log, b"second ")
    extend, offsets = kind.extend, {}
    follower = threading.Thread(target=lambda: offsets.update(follower=one.append(log, b"follower ")))
    waiting = one._client.commits.slots.of(log)

    async def lost(self: Any, path: str, data: bytes, *args: Any) -> Any:
        monkeypatch.setattr(kind, "extend", extend)
        await extend(self, path, data, *args)
        raise KeyboardInterrupt

    def linger(*args: Any) -> Any:
        follower.start()
        while not len(waiting.queue) >= 2:
            pass
        return _nothing()

    async def _nothing() -> None:
        pass

    monkeypatch.setattr(one._client.segments.appender, "_linger", linger)
    waiting.turns.together = 2
    monkeypatch.setattr(kind, "extend", lost)
    with pytest.raises(AppendInterrupted):
        one.append(log, b"leader ")
    follower.join()
    content = new_fs(target).cat_file(log)
    assert content.startswith(b"first second leader ")
    assert content[offsets["follower"] :].startswith(b"follower ")


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
    assert adapted is not None
    assert (adapted.version, adapted.data) == (4, b"data")
    assert records.behind(record, others, segment, 2, 14) is None  # no room for a third
    assert records.behind(record, others, segment, 3, 13) is None  # too many bytes
    assert records.behind(record, others, "1" * 36, 3, 14) is None  # of another incarnation
    own = records.Record(2, "me", 7, at_ms, b"1").encode(segment)
    assert records.behind(record, own, segment, 3, 14) is None  # it may be this append


def test_a_torn_record_in_between_ends_with_a_new_file(tmp_path: Path) -> None:
    log, one, two = f"{tmp_path}/log", new_fs("file"), new_fs("file")
    one.create(log)
    one.append(log, b"one ")
    two.append(log, b"two ")
    with open(header_path(log), "ab") as file:
        file.write(b"Record 99 torn")
    assert one.append(log, b"three") == 8
    assert new_fs("file").cat_file(log) == b"one two three"
    assert b"torn" not in Path(header_path(log)).read_bytes()


def test_an_age_limit_is_judged_by_the_tail_that_others_began(target: str, tmp_path: Path, monkeypatch: Any) -> None:
    log, one, two = f"{tmp_path}/aged", new_fs(target), new_fs(target)
    one.create(log, policy=RollingPolicy(max_age=0.001))
    one.append(log, b"")
    met: list[bytes | None] = []
    adapt = Attempt.adapt

    def noted(self: Attempt, *args: Any) -> bytes | None:
        met.append(adapt(self, *args))
        return met[-1]

    monkeypatch.setattr(Attempt, "adapt", noted)
    two.append(log, b"old")
    one.append(log, b"new")
    assert met in ([], [None])


def test_after_an_own_append_of_unknown_outcome_the_next_looks_first(target: str, log: str, monkeypatch: Any) -> None:
    """A record of the writer that the writer does not know of is never followed unseen."""
    one = new_fs(target)
    one.append(log, b"first ")
    kind = BACKENDS[target]
    real = kind.extend

    async def lost(self: Any, *args: Any) -> Any:
        await real(self, *args)
        raise OSError(5, "injected")

    async def unread(self: Any, *args: Any) -> Any:
        raise OSError(5, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "extend", lost)
        patch.setattr(kind, "read_if_changed", unread)
        patch.setattr(one._client.commits, "timeout_s", 0.2)
        with pytest.raises(AppendOutcomeUnknown):
            one.append(log, b"second ")
    assert one.append(log, b"third") == 13
    assert new_fs(target).cat_file(log) == b"first second third"
