"""`rollingfs serve` as processes: crashes, slow clients, many at once, and its end."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rollingfs import RollingFileSystem
from tests.server.conftest import Process, serving
from tests.support.schedules import eventually


def connected(server: Process) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((where.hostname, where.port), 60)


def begun(server: Process, path: str, size: int, *headers: str) -> socket.socket:
    """A connection on which half an append has been sent."""
    found = connected(server)
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {size}", *headers, "", ""]
    found.sendall("\r\n".join(head).encode() + b"x" * (size // 2))
    return found


def test_another_server_continues_after_a_kill_without_repeats(tmp_path: Path) -> None:
    data = b"x" * (5 << 20)
    with serving(f"{tmp_path}/store") as first, serving(f"{tmp_path}/store") as second:
        url = "/v1/segments/a"
        httpx.put(first.url + url).raise_for_status()
        half = begun(first, url, len(data), "Idempotency-Key: k")

        def sent(to: Process, key: str) -> dict[str, Any]:
            headers = {"Idempotency-Key": key}
            return httpx.post(to.url + url, content=data, headers=headers, timeout=60).json()

        whole = sent(first, "m")
        first.stop(signal.SIGKILL)
        half.close()
        repeats = [sent(second, key) for key in ("m", "k", "k")]
        assert [one["repeated"] for one in repeats] == [True, False, True]
        assert repeats[0]["offset"] == whole["offset"]
        assert httpx.get(second.url + url + ":info").json()["length"] == 2 * len(data)


def test_stop_commits_acknowledged_records_and_reports_the_rest(tmp_path: Path) -> None:
    with serving(f"{tmp_path}/store") as server, ThreadPoolExecutor(1) as pool:
        url = "/v1/segments/a"
        httpx.put(server.url + url).raise_for_status()
        half = begun(server, url, 1 << 20)
        tail = httpx.Client(timeout=60)
        with tail.stream("GET", f"{server.url}{url}:tail", headers={"Accept": "text/event-stream"}) as answer:
            assert httpx.post(server.url + url, content=b"one\n").status_code == 200
            events = answer.iter_lines()
            assert "data: one" in [next(events) for _ in range(5)]
            stop = pool.submit(server.stop)
            assert half.recv(4096).startswith(b"HTTP/1.1 503 ")
            list(events)
            half.close()
            tail.close()
            assert stop.result(60) == 0
    assert RollingFileSystem("file").cat_file(f"{tmp_path}/store/a") == b"one\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server that waits for a client no longer than a second."""
    with serving(str(tmp_path_factory.mktemp("store")), "--stall", "1s") as found:
        yield found


def test_clients_that_stall_in_a_head_are_cut_off(impatient: Process) -> None:
    heads = ("", "GET /v1/segments HT", "POST /v1/segments/a HTTP/1.1\r\nHost: localhost\r\n")
    with contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(connected(impatient)) for _ in heads]
        for connection, head in zip(stalled, heads, strict=True):
            connection.sendall(head.encode())
        for connection in stalled:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4096) == b""


@pytest.mark.parametrize("drips", [False, True])
def test_client_stalling_in_a_body_gets_408(impatient: Process, drips: bool) -> None:
    url = f"/v1/segments/{drips}"
    httpx.put(impatient.url + url).raise_for_status()
    with begun(impatient, url, 1000) as slow:
        slow.settimeout(0.2 if drips else 60)
        answer = b""
        while not answer:
            try:
                answer = slow.recv(4096)
            except TimeoutError:
                slow.sendall(b"x")
        assert answer.startswith(b"HTTP/1.1 408 ")
    assert httpx.post(impatient.url + url, content=b"one\n").json()["offset"] == 0


def test_a_client_that_takes_nothing_is_cut_off(impatient: Process) -> None:
    size = 64 << 20  # through the server, a slow machine would itself be a client that stalls
    RollingFileSystem("file").pipe_file(f"{impatient.root}/large", bytes(size))
    with connected(impatient) as lazy:
        lazy.sendall(b"GET /v1/segments/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert lazy.recv(1, socket.MSG_PEEK), "the answer has begun"
        eventually(lambda: _running(impatient) == 0)
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while part := lazy.recv(1 << 20):
                taken += len(part)
    assert taken < size


def _running(server: Process) -> int:
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rollingfs_server_requests_running ")))


def test_more_than_the_limit_is_told_to_come_again(tmp_path: Path) -> None:
    with serving(f"{tmp_path}/store", "--max-requests", "1", "--max-tails", "0") as server:
        httpx.put(f"{server.url}/v1/segments/a").raise_for_status()
        with begun(server, "/v1/segments/a", 1000) as half:
            eventually(lambda: _running(server))
            refused = httpx.get(f"{server.url}/v1/segments/a")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            half.sendall(b"x" * 500)
            assert half.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert httpx.get(f"{server.url}/v1/segments/a:tail").status_code == 429


@pytest.mark.slow
def test_root_of_disk_is_served_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    with serving("/") as server:
        assert httpx.get(f"{server.url}/v1/segments{tmp_path}/a").content == b"one\n"
        assert httpx.get(f"{server.url}/webhdfs/v1{tmp_path}/a?op=OPEN", follow_redirects=True).content == b"one\n"


def test_raw_utf_8_path_of_hadoops_client_works(server: Process) -> None:
    path = "/webhdfs/v1/kind=\u00e4%20+&=%253A;\u4e2d"
    answers = []
    with connected(server) as connection:
        for ask in (f"PUT {path}?op=CREATE&data=true", f"GET {path}?op=OPEN&data=true"):
            body = "\u00e4" if ask.startswith("PUT") else ""
            head = f"{ask} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body.encode())}\r\n\r\n"
            connection.sendall((head + body).encode())
            answers.append(connection.recv(4096))
    assert answers[0].startswith(b"HTTP/1.1 201 ")
    assert answers[1].startswith(b"HTTP/1.1 200 ")
    assert RollingFileSystem("file").cat_file(f"{server.root}/kind=\u00e4 +&=%3A;\u4e2d") == "\u00e4".encode()


@pytest.mark.slow
def test_more_clients_than_default_open_files_are_served(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rollingfs.cli", "serve", f"{tmp_path}/store", "--port", "0"]
    shell = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as process:
        where = urlsplit(process.stdout.readline().split()[-1])
        clients = [socket.create_connection((str(where.hostname), where.port or 0), 60) for _ in range(100)]
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers = [client.recv(4096) for client in clients]
        for client in clients:
            client.close()
        process.kill()
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)


def is_up(url: str) -> bool:
    with contextlib.suppress(httpx.NetworkError, httpx.RemoteProtocolError):  # it may end within an answer
        return httpx.get(f"{url}/healthz").is_success
    return False


def test_a_gateway_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    program = "from rollingfs.spark.configure import gateway_url as g; print(g({!r}, None), flush=True); input()"
    command = [sys.executable, "-c", program.format(str(tmp_path))]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with driver:
        url = driver.stdout.readline().strip().replace("webhdfs://", "http://")
        assert httpx.get(f"{url}/v1/segments/a").content == b"one\n"
        driver.kill()
    eventually(lambda: not is_up(url))


def test_another_host_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="give --tokens"), serving(f"{tmp_path}/store", "--host", "0.0.0.0"):
        pass
    token = "t" * 20
    with serving(f"{tmp_path}/store", "--host", "127.0.0.1", env={"ROLLINGFS_SERVER_TOKEN": token}) as server:
        assert httpx.get(f"{server.url}/v1/segments").status_code == 401
        assert httpx.get(f"{server.url}/v1/segments", headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.slow
@pytest.mark.nightly
def test_memory_stays_flat_while_large_bodies_are_appended(tmp_path: Path) -> None:
    def body() -> Any:
        for _ in range(1024):
            yield b"x" * (1 << 20)

    with serving(f"{tmp_path}/store", "--option", "max_write_memory=32MiB") as server:
        url = f"{server.url}/v1/segments/a"
        httpx.put(url).raise_for_status()
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(httpx.post, url, content=body(), timeout=600) for _ in range(3)]
            assert all(call.result().status_code == 200 for call in calls)
        peak = Path(f"/proc/{server.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        assert int(peak) < 250 * 1024
        with httpx.stream("GET", url, timeout=600) as answer:
            assert sum(map(len, answer.iter_bytes())) == 3 << 30
