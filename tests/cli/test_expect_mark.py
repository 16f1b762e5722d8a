"""A disk that is not mounted yet: `run` and `serve` change nothing in the mount point."""

from functools import partial

import pytest
import uvicorn

from rollingfs import RollingFileSystem
from rollingfs.cli.session import StorePath, check_mark, stopping
from rollingfs.server import make_app
from tests.server.conftest import Client
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
    with stopping():  # a server leaves its own handlers, as its process ends then
        for verb in (["run", "--once"], ["serve", "--port", 0]):
            did = Run(*verb, "--expect-mark", ".mounted", tmp_path)
            assert did.code == 0, did.err


def test_a_server_changes_nothing_while_the_mark_is_missing(tmp_path):
    place = StorePath(RollingFileSystem("file", skip_instance_cache=True), str(tmp_path))
    client = Client(make_app(place.fs, place.path, check=partial(check_mark, place, ".mounted")))
    url = "/v1/segments/a"
    answers = [client.put(url), client.post(url), client.delete(url), client.put("/webhdfs/v1/b?op=MKDIRS")]
    assert [one.status_code for one in answers] == [503] * 4
    assert answers[0].headers["Content-Type"] == "application/problem+json"
    assert "is it mounted?" in answers[0].json()["detail"]
    assert client.get(url).status_code == 404
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".mounted").touch()
    assert client.put(url).status_code == 201
