"""A disk that is not mounted yet: `run` and `serve` change nothing in the mount point."""

import asyncio
import signal
from typing import Any

import pytest
import uvicorn

from rollingfs import RollingFileSystem
from rollingfs.cli.serve import guarded
from rollingfs.cli.session import StorePath, handling
from tests.support.cli import Run


@pytest.mark.parametrize("verb", [["run", "--once"], ["serve", "--port", 0]])
def test_unmarked_store_is_absent_and_nothing_is_made(tmp_path, verb):
    did = Run(*verb, "--expect-mark", ".mounted", tmp_path)
    assert did.code != 0
    assert "is it mounted?" in did.err
    assert str(tmp_path / ".mounted") in did.err
    assert list(tmp_path.iterdir()) == []


def test_with_its_mark_a_command_begins(tmp_path, monkeypatch):
    (tmp_path / ".mounted").touch()
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: None)
    with handling(signal.default_int_handler):  # a server leaves its own handlers, as its process ends then
        for verb in (["run", "--once"], ["serve", "--port", 0]):
            did = Run(*verb, "--expect-mark", ".mounted", tmp_path)
            assert did.code == 0, did.err


def test_a_server_changes_nothing_while_the_mark_is_missing(tmp_path):
    served: list[str] = []
    answers: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        served.append(scope.get("method", scope["type"]))

    async def send(message: Any) -> None:
        answers.append(message.get("status"))

    fs = RollingFileSystem("file", skip_instance_cache=True)
    app = guarded(app, StorePath(fs, str(tmp_path)), ".mounted")
    for scope in ({"type": "lifespan"}, *({"type": "http", "method": one} for one in ("GET", "PUT", "POST", "DELETE"))):
        asyncio.run(app(scope, None, send))
    assert served == ["lifespan", "GET"]
    assert [one for one in answers if one] == [503] * 3
    (tmp_path / ".mounted").touch()
    asyncio.run(app({"type": "http", "method": "PUT"}, None, send))
    assert served[-1] == "PUT"
