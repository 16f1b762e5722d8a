"""Reading and writing by the command line: binary-safe, in bounded memory, all or nothing."""

import base64
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from rollingfs.cli import output
from rollingfs.cli.output import ReaderGone
from rollingfs.cli.show import PEEK_BYTES
from tests.support.cli import COMMAND, EXPECT_S_MAX, Run, done, environment, failed, running
from tests.support.examples import slowly
from tests.support.schedules import eventually
from tests.support.servers import new_bucket

RANDOM = random.Random(6).randbytes(300_000)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return f"{tmp_path}/folder/log"


def test_append_makes_segment_and_cat_gives_very_bytes(log):
    first = done("append", log, "--json", "--option", "max_bytes=100kB", stdin=RANDOM)
    assert first.json == {"name": log, "offset": 0, "size": 300_000}
    assert done("append", log, "--json", stdin=b"\r\n\x00").json["offset"] == 300_000
    assert done("cat", log).out == RANDOM + b"\r\n\x00"
    assert done("cat", log, f"file://{log}", f"rolling::file://{log}").out == (RANDOM + b"\r\n\x00") * 3
    assert done("info", log, "--json").json["chunks"] == 3


def test_append_with_create_refused_or_wrong_offset_writes_nothing(log):
    said = "No such segment or file, so nothing was written: leave out --no-create to make it"
    assert failed("append", log, "--no-create", stdin=b"x") == f"rollingfs: {log}: {said}\n"
    done("append", log, "--expected-offset", 0, stdin=b"12345")
    late = failed("append", log, "--expected-offset", 4, stdin=b"x")
    assert "4" in late
    assert "5" in late
    done("append", log, "--expected-offset", 5, stdin=b"6")
    assert done("cat", log).out == b"123456"


def test_json_of_cat_and_tail_has_offsets_to_resume(log):
    done("append", log, stdin=b"0123456789")
    done("truncate", log, 4)
    (piece,) = done("cat", log, "--json").lines
    assert piece == {"name": log, "offset": 4, "size": 6, "base64": base64.b64encode(b"456789").decode()}
    (piece,) = done("tail", log, "--json", "--offset", 7).lines
    assert (piece["offset"], base64.b64decode(piece["base64"])) == (7, b"789")
    assert "truncated" in failed("tail", log, "--offset", 3)


LINES = [b"line %d\n" % number for number in range(40)]
LONG = [b"a" * (PEEK_BYTES - 1) + b"\n", b"b" * PEEK_BYTES + b"\n", b"\n", b"c" * (2 * PEEK_BYTES)]


@pytest.mark.parametrize("lines", [LINES, LINES[:3], [*LINES, b"no end"], LONG, [b"\n"] * 12, []])
@pytest.mark.parametrize("count", [None, 2, *slowly(0, 1, 3, 1000)])
def test_head_and_tail_count_lines_as_usual_tools_do(log, lines, count):
    done("append", log, stdin=b"gone" + b"".join(lines))
    done("truncate", log, 4)
    words = [] if count is None else ["-n", count]
    wanted = 10 if count is None else count
    assert done("head", log, *words).out == b"".join(lines[:wanted])
    assert done("tail", log, *words).out == b"".join(lines[max(0, len(lines) - wanted) :])


def test_head_and_tail_count_bytes(log):
    done("append", log, stdin=RANDOM)
    assert done("head", "-c", 10, log).out == RANDOM[:10]
    assert done("tail", "-c", 10, log).out == RANDOM[-10:]
    assert done("tail", "-c", 10**9, log).out == done("head", "-c", 10**9, log).out == RANDOM
    assert Run("tail", "-c", 1, "-n", 1, log).code == 2


def test_a_reader_that_goes_away_ends_cat_quietly(log):
    done("append", log, stdin=RANDOM * 20)
    with running("cat", log) as cat:
        assert cat.stdout.read(10) == RANDOM[:10]
        cat.stdout.close()
        assert cat.stderr.read() == b""
        assert cat.wait(EXPECT_S_MAX) == 0


@pytest.mark.skipif(not hasattr(select, "poll"), reason="a closed pipe is noticed by poll()")
@pytest.mark.parametrize("words", [["-n", 1], *slowly(["-n", 0], ["-n", 1, "--json"])], ids=str)
def test_following_idle_segment_ends_when_its_reader_goes_away(log, words):
    done("append", log, stdin=b"a\nb\n")
    with running("tail", "-f", *words, log) as tail:
        assert words[1] == 0 or tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(EXPECT_S_MAX) == 0
        assert tail.stderr.read() == b""


def test_following_goes_on_while_there_is_a_reader(log, monkeypatch):
    done("append", log, stdin=b"a\n")
    monkeypatch.setattr(output, "wait", lambda seconds: done("seal", log))
    assert done("tail", "-f", log).out == b"a\n"


@pytest.mark.skipif(not hasattr(select, "poll"), reason="a closed pipe is noticed by poll()")
def test_wait_with_a_reader_lasts_and_without_one_ends(monkeypatch):
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        output.wait(0.001)
        os.close(reading)
        with pytest.raises(ReaderGone):
            output.wait(EXPECT_S_MAX)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the high-water mark of memory is read on Linux")
def test_memory_stays_bounded_whatever_the_size(log):
    megabytes = 192
    # not `ru_maxrss`, which a process begins with its parent's value
    script = (
        "import pathlib, re, runpy, sys\n"
        "try:\n"
        "    runpy.run_module('rollingfs.cli', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1], file=sys.stderr)\n"
    )
    path = Path(log).parent.parent / "input"
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    for words, source in ((["append", log, "--option", "sync=false"], str(path)), (["cat", log], os.devnull)):
        with open(source, "rb") as stdin, open(os.devnull, "wb") as stdout:
            command = [COMMAND[0], "-c", script, *words]
            found = subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment())
        assert int(found.stderr) * 1024 < megabytes * 2**20 * 0.8, words
    assert done("info", log, "--json").json["size"] == megabytes << 20


def test_ctrl_c_on_s3_leaves_no_upload_or_commit(moto):
    """The library reads a file in a thread there, which Ctrl-C could not wake; the command line must not."""
    bucket = new_bucket(moto)
    url = f"s3://{bucket}/log"
    settings = {
        "ROLLINGFS_OPTION_MAX_BYTES": "1MiB",
        "ROLLINGFS_OPTION_SINGLE_WRITER": "true",  # without a probe
        "ROLLINGFS_OPTION_CLIENT_KWARGS__ENDPOINT_URL": moto["endpoint_url"],
    }
    words = ["append", url, "--option", f"key={moto['key']}", "--option", f"secret={moto['secret']}"]
    plain = fsspec.filesystem("s3", **moto)
    with running(*words, PYTHONWARNINGS="default", PYTHONFAULTHANDLER="1", **settings) as append:
        append.stdin.write(b"x" * (6 << 20))
        append.stdin.flush()
        eventually(lambda: _chunks(plain, bucket), process=append)
        append.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            append.wait(EXPECT_S_MAX)
        append.send_signal(signal.SIGABRT)  # one that hangs says where
        code, said = append.wait(EXPECT_S_MAX), append.stderr.read().decode()
    assert (code, said) == (130, f"rollingfs: {url}: interrupted; the append is not committed\n")
    assert _chunks(plain, bucket) == []
    assert not plain.exists(f"{bucket}/log$header")


def _chunks(plain, bucket):
    plain.invalidate_cache()
    return [path for path in plain.find(bucket) if "$chunks/0" in path]


def test_following_with_retry_continues_in_the_next_file(log, monkeypatch, caplog):
    done("append", log, stdin=b"old\n")
    (piece,) = done("tail", log, "--json").lines

    def rotate():
        done("mv", log, f"{log}.1")
        done("append", log, stdin=b"new 1\nnew 2\n")

    def go_away():
        raise output.ReaderGone

    naps = iter([rotate, bool, go_away, bool, go_away])
    monkeypatch.setattr(output, "wait", lambda seconds: next(naps)())
    assert done("tail", "-F", log).out == b"old\nnew 1\nnew 2\n"
    assert "another has its name" in caplog.text
    assert done("tail", "-F", log, "--offset", piece["next"]).out == b"new 1\nnew 2\n"
    assert "another has its name" in failed("tail", log, "--offset", piece["next"])
    assert done("tail", f"{log}.1", "--offset", piece["next"]).out == b""
    assert Run("tail", log, "--offset", "4-x").code == 2
