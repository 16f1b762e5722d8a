"""`rollingfs run`, `offload` by policies, and `policy`."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem, RollingPolicy
from rollingfs.cli.session import Stop
from tests.support.cli import Run, done, failed, running, running_program
from tests.support.forks import needs_signals


@pytest.fixture
def fs(tmp_path: Path) -> RollingFileSystem:
    tiers = {"cold": str(tmp_path / "cold")}
    fs = RollingFileSystem("file", tiers=tiers, max_bytes=100, inline_bytes=0, sync=False, skip_instance_cache=True)
    for name in ("logs/a", "logs/b", "lone/c"):
        fs.create(f"{tmp_path}/data/{name}")
        for _ in range(4):
            fs.append(f"{tmp_path}/data/{name}", b"x" * 100)
    fs.stream(f"{tmp_path}/data/logs").retention = RetentionPolicy.by_size(400, every=0)
    fs.set_policy(f"{tmp_path}/data/logs", OffloadPolicy("cold", after_bytes=200))
    return fs


@pytest.fixture
def option(tmp_path: Path) -> list[str]:
    return ["--option", f"tiers.cold.root={tmp_path}/cold", "--option", "sync=false"]


def test_round_has_line_for_what_it_changed_and_summary(fs, tmp_path, option):
    data = f"{tmp_path}/data"
    lines = done("run", data, "--once", *option).text.splitlines()
    assert lines[0] == f"{data}/logs: 4 chunks of 400 bytes moved"
    assert lines[1].startswith("round 1: 1 stream and 1 other segment in ")
    assert lines[1].endswith("4 chunks of 400 bytes moved")
    assert len(lines) == 2, "nothing is said of the segment where nothing was done"
    for name in "ab":
        fs.append(f"{data}/logs/{name}", b"y" * 300)
    stream, whole = done("run", data, "--once", "--json", *option).lines
    assert (stream["name"], stream["stream"], stream["dropped_bytes"]) == (f"{data}/logs", True, 800)
    assert (whole["name"], whole["streams"], whole["segments"], whole["dropped_bytes"]) == (None, 1, 1, 800)


def test_round_joins_small_chunks_and_reports_rewritten_bytes(fs, tmp_path, option):
    path = f"{tmp_path}/data/lone/d"
    fs.create(path, RollingPolicy(max_bytes=1000, inline_bytes=0))
    for number in range(40):
        fs.append(path, b"%05d" % number)
    joined = "40 chunks of 200 bytes joined to 1 (write amplification 2.00)"
    run = [f"{tmp_path}/data/lone", "--once", "--readers-grace", "0", *option]
    lines = done("run", *run).text.splitlines()
    assert lines[0] == f"{path}: {joined}"
    assert lines[1].endswith(f"s: {joined}")
    assert done("info", path, *option, "--json").json["write_amplification"] == 2.0
    assert "200 (write amplification 2.00)" in done("info", path, *option).text
    assert len([name for name in Path(f"{path}$chunks").iterdir() if name.name != "lock"]) == 1, "nothing is left"
    fs.append(path, b"x" * 50)
    fs.seal(path)
    assert "consolidate=no" in done("policy", path, "--no-consolidate", *option).text
    assert done("run", *run).text.splitlines()[0].endswith("s: nothing to do")
    done("policy", path, "--consolidate", *option)
    one = done("run", *run, "--json").lines[0]
    assert (one["joined_chunks"], one["joined_to"], one["joined_bytes"]) == (2, 1, 250)
    assert one["write_amplification"] == 2.8


def test_failure_is_named_and_once_exits_with_its_code(fs, tmp_path, option):
    data = f"{tmp_path}/data"
    Path(f"{data}/logs/a$header").write_text("rubbish")
    found = Run("run", data, "--once", *option)
    assert found.code == 1
    assert f"cannot read {data}/logs/a: " in found.err
    assert f"{data}/logs: 2 chunks of 200 bytes moved" in found.text
    assert "failures" in found.text
    assert "No such segment or file" in failed("run", f"{tmp_path}/none", "--once")
    assert "--every" in failed("run", data, "--every", "0", code=2)
    assert "--follow writes" in failed("run", data, "--follow", "--grace", "1h", code=2)


def test_rounds_repeat_until_a_signal_and_exit_with_0(fs, tmp_path, option, monkeypatch):
    waits: list[float] = []

    def wait(stop: Stop, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Stop, "wait", wait)
    before = signal.getsignal(signal.SIGTERM)
    text = done("run", f"{tmp_path}/data", "--every", "1h", *option).text
    rounds = [line.split(":")[0] for line in text.splitlines() if line.startswith("round")]
    assert rounds == ["round 1", "round 2", "round 3"]
    assert all(3000 < seconds <= 3600 for seconds in waits)
    assert signal.getsignal(signal.SIGTERM) is before


@needs_signals
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_that_runs_ends_by_signal_while_it_waits(fs, tmp_path, option, number):
    with running("run", f"{tmp_path}/data", *option) as process:
        for line in process.stdout:
            if line.startswith(b"round 1"):
                process.send_signal(number)
        assert process.wait() == 0


STUCK = """
import sys, time
from rollingfs.cli import main
from rollingfs.stream import follow

async def move(self, block):
    print("a block is on its way", flush=True)
    time.sleep(600)

follow.Followed.move = move
sys.exit(main())
"""


@needs_signals
@pytest.mark.slow
@pytest.mark.parametrize("words", [["run", "--follow"], ["offload", "--follow"]])
def test_second_signal_ends_a_follower_at_once(fs, tmp_path, option, words):
    fs.set_policy(f"{tmp_path}/data/logs", OffloadPolicy("cold", block_bytes=100))
    with running_program(STUCK, *words, f"{tmp_path}/data/logs", *option) as process:
        assert any(b"on its way" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


BROKEN = """
import sys
from rollingfs.cli import main
from rollingfs.stream import follow

follow.Followed.status = None
sys.exit(main())
"""


def test_run_ends_by_error_of_its_follower(fs, tmp_path, option):
    fs.set_policy(f"{tmp_path}/data/logs", OffloadPolicy("cold", block_bytes=100))
    with running_program(BROKEN, "run", "--follow", f"{tmp_path}/data/logs", *option) as process:
        assert process.wait(60) == 1
        assert b"the follower has ended by an error" in process.stderr.read()


def test_offload_without_options_does_what_the_policies_say(fs, tmp_path, option):
    data = f"{tmp_path}/data"
    assert done("offload", data, *option).text == f"{data}/logs: 4 chunks of 400 bytes moved\n"
    assert done("offload", f"{data}/logs", *option).text == f"{data}/logs: nothing to do\n"
    assert "no offload policy with a tier counts" in failed("offload", f"{data}/lone", *option)
    fs.set_policy(f"{data}/lone/c", OffloadPolicy("cold"))
    assert done("offload", f"{data}/lone/c", *option, "--json").json["chunks"] == 4
    assert "'' is not configured" in failed("offload", f"{data}/lone/c", "--tier", "", *option)


def test_the_command_policy_shows_and_changes_each_level(fs, tmp_path, option):
    folder, path = f"{tmp_path}/data/logs", f"{tmp_path}/data/logs/a"
    done("policy", path, "--after-age", "7d", "--lag", "1h", "--max-bytes", "1KiB", "--max-age", "1h", *option)
    text = done("policy", path, *option, "--option", "offload_policy.after_age=1d").text
    assert text.splitlines() == [
        "rolling: max_bytes=1,024 max_age=3600s inline_bytes=0",
        "offload: tier=cold after_bytes=200 after_age=604800s deletion_lag=3600s",
        "retention: min_bytes=400 every=0s",
        "  rolling max_bytes: from segment",
        "  rolling max_age: from segment",
        "  rolling inline_bytes: from filesystem",
        "  rolling consolidate: from filesystem",
        "  offload after_age: from segment",
        f"  offload tier: from {folder}",
        f"  offload after_bytes: from {folder}",
        "  offload deletion_lag: from segment",
        f"  retention min_bytes: from {folder}",
        f"  retention every: from {folder}",
    ]
    done("policy", path, "--no-offload", "--max-age", "never", *option)
    found = json.loads(done("policy", path, "--json", *option).text)
    assert (found["segment"], found["rolling"]["max_age"]) == (None, None)
    assert "offload: tier=(none: nothing moves)" in done("policy", folder, "--tier", "", *option).text
    assert "give no --tier" in failed("policy", path, "--tier", "cold", "--no-offload", code=2)
    assert "'warm' is not configured" in failed("policy", path, "--tier", "warm", *option)


def test_round_frees_old_parquet_footers_and_nothing_else(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from rollingfs.parquet import append, grow

    monkeypatch.setattr(grow, "REWRITTEN_BYTES_MAX", 0)  # as if it were too large for an append
    fs = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    path, torn = f"{tmp_path}/data/t.parquet", f"{tmp_path}/data/torn"
    for nth in range(10):
        append(fs, path, pa.table({f"a long name of column {column}": [nth] for column in range(20)}))
    fs.create(torn)
    fs.append(torn, b"x" * 100_000 + b"PAR1")
    before = fs.segment(path).size
    lines = done("run", f"{tmp_path}/data", "--once", "--json", "--option", "sync=false").lines
    grown, whole = lines
    assert grown["name"] == path
    assert grown["rewritten_bytes"] == whole["rewritten_bytes"] > 0.8 * before
    assert not whole["failed"]
    fresh = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    assert fresh.segment(path).size == before - grown["rewritten_bytes"]
    assert fresh.cat_file(torn) == b"x" * 100_000 + b"PAR1"
    text = done("run", f"{tmp_path}/data", "--once", "--option", "sync=false").text
    assert "nothing to do" in text
    assert path not in text
