"""Servers to try: one in this process without a network, and real ones on the loopback."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.servers import require_module

for _name in ("starlette", "uvicorn", "pydantic", "jinja2", "httpx"):
    require_module(_name)

import httpx

from rollingfs.server import make_app
from rollingfs.server.operations import OPERATIONS
from rollingfs.server.process import Limited

OPERATIONS_OF_DOCS = [rf"{verb}\b" for url in OPERATIONS for verb in re.findall(":[a-z]+$", url) if verb != ":publish"]
"""Patterns of the verbs that docs/server.md must show."""


class Client:
    """A blocking client of an application in this process."""

    def __init__(self, app: Limited, **headers: str) -> None:
        self.app, self.headers = app, headers

    def request(self, method: str, url: str, **given: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, url, headers={**self.headers, **given.pop("headers", {})}, **given)

        return asyncio.run(ask())

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    patch = partialmethod(request, "PATCH")
    delete = partialmethod(request, "DELETE")


def talk(app: Limited, method: str, path: str, message: dict[str, Any], query: bytes = b"") -> list[Any]:
    """What an application sends to a client that goes away after one message."""
    asked, sent = [message, {"type": "http.disconnect"}], []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query}
    scope |= {"headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http", "http_version": "1.1"}

    async def receive() -> Any:
        return asked.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


@pytest.fixture
def root() -> str:
    return f"/server-{uuid.uuid4().hex}"


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("memory")


@pytest.fixture
def client(fs: RollingFileSystem, root: str) -> Client:
    return Client(make_app(fs, root))


@dataclass(frozen=True)
class Process:
    """`rollingfs serve` in a process of its own."""

    root: str
    process: subprocess.Popen[str]
    url: str

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


@contextlib.contextmanager
def serving(url: str, *options: str, env: dict[str, str] | None = None) -> Iterator[Process]:
    command = [sys.executable, "-m", "rollingfs.cli", "serve", url, "--port", "0", *options]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **(env or {})}}
    with subprocess.Popen(command, **how) as process:
        try:
            line = process.stdout.readline()
            if "http" not in line:
                raise RuntimeError(line + process.communicate()[1])
            yield Process(url, process, line.split()[-1].rstrip("/"))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(str(tmp_path_factory.mktemp("store"))) as found:
        yield found
