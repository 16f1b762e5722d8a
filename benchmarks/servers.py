"""The servers: MinIO, and toxiproxy in front of it, which adds the latency and the bandwidth of S3."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LATENCY_MS = 12
"""Of every request, unless another is asked for: S3 Express and the quickest answers of S3 Standard take as long."""
BANDWIDTH_KB_S = 85_000
"""Of every connection, downstream: what one connection to S3 gives."""
READY_S_MAX = 30

_COUNT = re.compile(r'minio_api_requests_total\{name="(\w+)".*type="s3"\} (\d+)')


_BYTES = re.compile(r'minio_api_requests_traffic_received_bytes\{[^}]*type="s3"\} (\S+)')
_SENT_BYTES = re.compile(r'minio_api_requests_traffic_sent_bytes\{[^}]*type="s3"\} (\S+)')


@dataclass(frozen=True, slots=True)
class Received:
    """What a server has received."""

    requests: Counter[str]
    """By operation."""
    byte_count: int


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of the servers, for the processes that measure; empty where ``--store`` names a store."""

    direct_url: str
    """MinIO itself, for preparations and for the counts of requests."""
    url: str
    """MinIO behind the proxy, for measurements."""
    key: str
    secret: str

    def s3fs_options(self, *, direct: bool = False) -> dict[str, Any]:
        """The storage options of s3fs; of a store that the environment describes, none."""
        if not self.url:
            return {}
        return {
            "endpoint_url": self.direct_url if direct else self.url,
            "key": self.key,
            "secret": self.secret,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    def received(self) -> Received:
        """What MinIO has received since it started."""
        text = self._metrics()
        counts = Counter({name: int(count) for name, count in _COUNT.findall(text)})
        return Received(counts, sum(int(float(count)) for count in _BYTES.findall(text)))

    def sent_bytes(self) -> int:
        """The bytes that MinIO has sent since it started."""
        return sum(int(float(count)) for count in _SENT_BYTES.findall(self._metrics()))

    def _metrics(self) -> str:
        with urllib.request.urlopen(f"{self.direct_url}/minio/metrics/v3/api/requests", timeout=60) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def open_servers(latency_ms: int = LATENCY_MS) -> Iterator[Servers]:
    """Start MinIO and toxiproxy, after building into the cache folder what is missing there.

    Parameters
    ----------
    latency_ms
        What the proxy adds to each request.

    Raises
    ------
    RuntimeError
        There is no Go to build them with.
    """
    from tests.support import servers

    servers.MINIO.build()
    os.environ["MINIO_PROMETHEUS_AUTH_TYPE"] = "public"  # lets everybody read its counters
    with servers.minio_server() as options, toxiproxy(options["endpoint_url"], latency_ms) as (url, _):
        yield Servers(options["endpoint_url"], url, options["key"], options["secret"])


@contextlib.contextmanager
def toxiproxy(upstream_url: str, latency_ms: int) -> Iterator[tuple[str, str]]:
    """Start the proxy of a server, and give its URL and the URL of its settings."""
    from tests.support import servers

    control, port = servers.free_port(), servers.free_port()
    command = [str(servers.TOXIPROXY.build()), "-host", "127.0.0.1", "-port", str(control)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "LOG_LEVEL": "error"}
    )
    try:
        url = f"http://127.0.0.1:{control}"
        _wait_ready(process, f"{url}/version")
        upstream = upstream_url.removeprefix("http://")
        post(f"{url}/proxies", {"name": "s3", "listen": f"127.0.0.1:{port}", "upstream": upstream})
        toxics = f"{url}/proxies/s3/toxics"
        post(toxics, {"type": "latency", "stream": "upstream", "attributes": {"latency": latency_ms}})
        post(toxics, {"type": "bandwidth", "stream": "downstream", "attributes": {"rate": BANDWIDTH_KB_S}})
        yield f"http://127.0.0.1:{port}", f"{url}/proxies/s3"
    finally:
        process.terminate()
        process.wait()


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("toxiproxy did not start") from error
            time.sleep(0.05)


def post(url: str, fields: dict[str, Any]) -> None:
    """Send settings to the proxy."""
    # toxiproxy refuses browsers; the User-Agent of urllib is accepted
    request = urllib.request.Request(url, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10):
        pass
