"""`append_via`: small appends go through a server, once each, whatever is lost on the way; all else goes directly."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from fsspec.asyn import get_loop

from rollingfs import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingFileSystem, SegmentSealedError
from rollingfs.errors import UnsafeBackendError, lost_commit
from rollingfs.format.append_keys import WRITERS
from rollingfs.fs.append_via import VIA_BYTES_MAX
from rollingfs.logging import RollingHandler
from rollingfs.server.problems import problem_fields, status_of
from tests.server.conftest import Process, serving
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.servers import new_bucket


def options_of(seaweed: dict[str, Any]) -> list[str]:
    given = {**seaweed, "client_kwargs": json.dumps(seaweed.get("client_kwargs", {}))}
    return [word for name, value in given.items() for word in ("--option", f"s3.{name}={value}")]


@pytest.fixture(scope="module")
def bucket(seaweed: dict[str, Any]) -> str:
    return new_bucket(seaweed)


@pytest.fixture(scope="module")
def server(seaweed: dict[str, Any], bucket: str) -> Iterator[Process]:
    with serving(f"s3://{bucket}/logs", *options_of(seaweed)) as process:
        fs = opened(seaweed, f"{process.url}/{bucket}/logs")
        fs.create(f"{bucket}/logs/first")
        fs.append(f"{bucket}/logs/first", b"x")  # the server probes the store now, for longer than some tests wait
        yield process


@pytest.fixture
def path(bucket: str) -> str:
    return f"{bucket}/logs/{uuid.uuid4().hex[:8]}"


def opened(seaweed: dict[str, Any], url: str | None, **options: Any) -> RollingFileSystem:
    return RollingFileSystem("s3", target_options=seaweed, append_via=url, skip_instance_cache=True, **options)


class Relay:
    """Passes bytes to the server; for each request that it still has a plan for, it loses something."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.plans: list[Any]
        self.to, self.plans = (parts.hostname, parts.port), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.requests = 0
        self.ended = threading.Event()
        """Whether a connection has ended."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client:
            while request := client.recv(1 << 20):
                self.requests += 1
                plan = self.plans.pop(0) if self.plans else ""
                if callable(plan):
                    plan()
                if plan == "request lost":
                    return
                if isinstance(plan, Exception):
                    client.sendall(answered(plan))
                    continue
                with socket.create_connection(self.to, 60) as onward:
                    onward.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                    answer = b"".join(iter(lambda sock=onward: sock.recv(1 << 16), b""))
                if plan == "answer lost":
                    return
                if isinstance(plan, bytes):
                    head = b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n"
                    answer = head % (200 if plan == b"{}" else 502, len(plan)) + plan
                client.sendall(answer.replace(b"connection: close\r\n", b""))
                if plan == "then end":
                    break
        self.ended.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def answered(error: Exception) -> bytes:
    """The answer of a server to an append that fails so."""
    fields = json.dumps(problem_fields(error, "", changes=True)).encode()
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status_of(error), len(fields), fields)


@pytest.fixture
def relay(server: Process) -> Iterator[Relay]:
    with closing(Relay(server.url)) as found:
        yield found


@pytest.fixture
def fs(seaweed: dict[str, Any], bucket: str, path: str, relay: Relay) -> RollingFileSystem:
    """A client of the relay that has made a segment."""
    found = opened(seaweed, f"{relay.url}/{bucket}/logs")
    found.create(path)
    return found


@pytest.mark.parametrize("plan", ["request lost", "answer lost"])
def test_a_lost_request_or_answer_is_sent_again(fs, path, relay, plan):
    relay.plans = ["", plan, "", plan, plan, ""]
    assert [fs.append(path, b"%d" % number) for number in range(4)] == [0, 1, 2, 3]
    assert (fs.cat_file(path), relay.requests) == (b"0123", 7)
    assert len(fs.segment(path).attrs[WRITERS].split()) == 2, "one writer"


@pytest.mark.parametrize("said", [b"", b"null", b"[1]", b"<html>", b"{}"])
def test_a_proxys_answer_says_nothing(fs, path, relay, said):
    relay.plans = [said]
    assert fs.append(path, b"once") == 0
    assert (fs.cat_file(path), relay.requests) == (b"once", 2)


def test_threads_share_commits_with_writers_of_their_own(seaweed, bucket, path, server):
    fs = opened(seaweed, f"{server.url}/{bucket}/logs", header_cache_s=60)
    fs.create(path)
    with ThreadPoolExecutor(16) as pool:
        offsets = list(pool.map(lambda number: fs.append(path, b"%03d" % number), range(64)))
    assert sorted(offsets) == list(range(0, 192, 3))
    data = fs.cat_file(path)  # within the cache time: a client sees its own commits
    assert all(data[offset : offset + 3] == b"%03d" % number for number, offset in enumerate(offsets))
    assert fs.segment(path).version < 64
    assert fs.metrics().append.count == 64
    assert "request.replace" not in fs.metrics().calls


DIRECT = {
    "large": lambda fs, path: fs.append(path, bytes(VIA_BYTES_MAX + 1)),
    "offset": lambda fs, path: fs.append(path, b"x", expected_offset=0),
    "attributes": lambda fs, path: fs.append(path, b"x", attrs={"k": "v"}),
    "a handle": lambda fs, path: fs.segment(path).append(b"x"),
    "outside": lambda fs, path: fs.append(path.replace("/logs/", "/other/"), b"x"),
}


@pytest.mark.parametrize("way", DIRECT)
def test_all_else_goes_to_the_store_directly(seaweed, bucket, path, relay, way):
    fs = opened(seaweed, f"{relay.url}/{bucket}/logs")
    for one in (path, path.replace("/logs/", "/other/")):
        fs.create(one)
    assert DIRECT[way](fs, path) == 0
    assert relay.requests == 0


def test_refusals_are_the_usual_errors(seaweed, bucket, path, server):
    fs, other = opened(seaweed, f"{server.url}/{bucket}/logs"), opened(seaweed, None)
    with pytest.raises(FileNotFoundError, match="create it first"):
        fs.append(path, b"x")
    fs.create(path)
    assert fs.append(path, b"x") == 0
    other.seal(path)
    with pytest.raises(SegmentSealedError, match="nothing was written"):
        fs.append(path, b"x")
    other.rm(path)
    other.create(path)
    assert [fs.append(path, b"yz"), fs.append(path, b"yz")] == [0, 2]
    assert fs.cat_file(path) == b"yzyz"


@pytest.mark.parametrize(
    "error", [lost_commit("x", 3, 5, b"ab"), UnsafeBackendError("x: it is unsafe")], ids=["lost", "unsafe"]
)
def test_a_server_on_an_unsafe_store_is_one(fs, path, relay, error):
    relay.plans = [error]
    with pytest.raises(UnsafeBackendError, match="nothing was written: x: "):
        fs.append(path, b"x")


def test_a_repeat_after_a_seal_or_a_rename(seaweed, bucket, path, relay):
    fs, other = opened(seaweed, f"{relay.url}/{bucket}/logs"), opened(seaweed, None)
    fs.create(path)
    relay.plans = ["answer lost", lambda: other.seal(path)]
    assert (fs.append(path, b"once"), other.cat_file(path)) == (0, b"once")
    other.rm(path)
    other.create(path)
    relay.plans = ["", "answer lost", lambda: other.mv(path, f"{path}-moved")]
    with pytest.raises(AppendOutcomeUnknown, match="read the segment"):
        fs.append(path, b"once")
    assert other.cat_file(f"{path}-moved") == b"once"


def test_a_path_arrives_byte_by_byte(seaweed, bucket, path, server):
    fs = opened(seaweed, f"{server.url}/{bucket}/logs")
    for odd in (f"{path} +é&?#", f"{path}%41%2F", f"{path}:seal"):
        fs.create(odd)
        assert (fs.append(odd, b"x"), fs.cat_file(odd)) == (0, b"x")


def test_no_connection_stays_open(fs, path, relay):
    fs.append(path, b"x")
    assert relay.ended.wait(60)


def test_ctrl_c_waits_for_the_outcome(fs, path, relay):
    relay.plans = [lambda: os.kill(os.getpid(), signal.SIGINT)]
    with pytest.raises(AppendInterrupted) as interrupt:
        fs.append(path, b"x")
    assert (interrupt.value.outcome, fs.cat_file(path)) == ("committed", b"x")


def test_without_a_server_nothing_goes_another_way(seaweed, bucket, path, relay):
    fs = opened(seaweed, f"{relay.url}/{bucket}/logs", commit_timeout_s=1)
    fs.create(path)
    relay.plans = ["request lost"] * 100
    with pytest.raises(AppendOutcomeUnknown, match="read the segment"):
        fs.append(path, b"x")
    relay.close()
    with pytest.raises(CommitTimeoutError, match="nothing was written"):
        opened(seaweed, fs._core.via.url, commit_timeout_s=1).append(path, b"x")
    assert opened(seaweed, None).cat_file(path) == b""


@pytest.mark.parametrize("how", ["sealed", "gone"])
def test_an_ended_connection_leaves_no_doubt(seaweed, bucket, path, relay, how):
    fs = opened(seaweed, f"{relay.url}/{bucket}/logs", commit_timeout_s=1)
    fs.create(path)
    relay.plans = ["then end"]
    assert fs.append(path, b"x") == 0
    assert relay.ended.wait(60)
    relay.close() if how == "gone" else fs.seal(path)
    with pytest.raises(CommitTimeoutError if how == "gone" else SegmentSealedError, match="nothing was written"):
        fs.append(path, b"y")


def test_a_read_after_an_unknown_outcome_is_fresh(seaweed, bucket, path, relay):
    fs = opened(seaweed, f"{relay.url}/{bucket}/logs", commit_timeout_s=1, header_cache_s=600)
    fs.create(path)
    assert fs.append(path, b"x") == 0
    assert fs.cat_file(path) == b"x"
    relay.plans = ["answer lost"] * 100
    with pytest.raises(AppendOutcomeUnknown, match="read the segment"):
        fs.append(path, b"y")
    assert fs.cat_file(path) == b"xy"


def test_a_read_after_a_cancelled_append_is_fresh(seaweed, bucket, path, relay):
    async def cancel() -> bytes:
        fs = opened(seaweed, f"{relay.url}/{bucket}/logs", header_cache_s=600, asynchronous=True)
        await fs._create(path)
        is_there, may_go, has_gone = threading.Event(), threading.Event(), asyncio.Event()
        relay.plans = [lambda: (is_there.set(), may_go.wait(60))]
        forget = fs._core.client.headers.forget
        fs._core.client.headers.forget = lambda name: (forget(name), has_gone.set())
        task = asyncio.ensure_future(fs._append(path, b"x"))
        await asyncio.to_thread(is_there.wait, 60)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await fs._cat_file(path) == b""
        may_go.set()
        await asyncio.wait_for(has_gone.wait(), 60)
        found = await fs._cat_file(path)
        await fs.close()
        return found

    assert asyncio.run(cancel()) == b"x"


@pytest.mark.slow
def test_another_server_takes_over_a_socket(seaweed, bucket, path, tmp_path):
    place = tmp_path / "s"
    url = f"http+unix://{quote(str(place), safe='')}/{bucket}/logs"
    words = (f"s3://{bucket}/logs", "--socket", str(place), *options_of(seaweed))
    fs = opened(seaweed, url)
    fs.create(path)
    with serving(*words) as first:
        assert first.url == url.removesuffix(f"/{bucket}/logs")
        assert fs.append(path, b"one") == 0
        first.stop(signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fs.append, path, b"two")
        with serving(*words):
            assert waiting.result(60) == 3
    assert fs.cat_file(path) == b"onetwo"


def test_the_token_comes_from_the_environment(seaweed, bucket, path, monkeypatch):
    token = "a-token-of-many-characters"
    env = {"ROLLINGFS_SERVER_TOKEN": token}
    with serving(f"s3://{bucket}", *options_of(seaweed), env=env) as process:
        fs = opened(seaweed, f"{process.url}/{bucket}")
        fs.create(path)
        with pytest.raises(PermissionError, match="nothing was written"):
            fs.append(path, b"x")
        monkeypatch.setenv("ROLLINGFS_SERVER_TOKEN", token)
        assert fs.append(path, b"x") == 0
        assert token not in fs.to_json() + repr(vars(fs._core.via))


@needs_fork
def test_a_child_process_has_connections_of_its_own(fs, path):
    assert fs.append(path, b"parent ") == 0
    assert is_so_in_child(lambda: fs.append(path, b"child ") == 7)
    assert fs.append(path, b"parent") == 13
    assert fs.cat_file(path) == b"parent child parent"


def test_flush_waits_for_log_records(seaweed, bucket, path, relay):
    handler = RollingHandler(
        f"rolling+s3://{path}", storage_options={"s3": seaweed}, append_via=f"{relay.url}/{bucket}/logs"
    )
    handler.handle(handler_record("first"))
    relay.plans = ["answer lost"]
    handler.flush()
    handler.close()
    assert handler.fs.cat_file(path) == b"first\n"
    assert (handler.lost, handler.unknown, relay.requests) == (0, 0, 2)


def handler_record(text: str) -> Any:
    return logging.LogRecord("x", logging.INFO, __file__, 1, text, None, None)


@pytest.mark.parametrize(
    "url", ["https://host/x", "127.0.0.1:9870", "http://", "http://:80/x", "http://user:secret@host/x"]
)
def test_another_url_is_refused(seaweed, url):
    with pytest.raises(ValueError, match="append_via"):
        opened(seaweed, url)


def test_a_system_without_unix_sockets_refuses_them(seaweed, monkeypatch):
    get_loop()  # the loop of all filesystems needs a pair of sockets
    monkeypatch.delattr("socket.AF_UNIX")
    with pytest.raises(ValueError, match="Unix sockets"):
        opened(seaweed, "http+unix://%2Ftmp%2Fx/y")


def test_a_disk_refuses_the_option(tmp_path: Path):
    with pytest.raises(ValueError, match="need no server"):
        RollingFileSystem("file", append_via="http://127.0.0.1:1/x")
    with pytest.raises(ValueError, match="option of the filesystem"):
        RollingHandler(f"{tmp_path}/log", fs=RollingFileSystem("file"), append_via="http://127.0.0.1:1/x")
