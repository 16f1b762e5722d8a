"""REST on streams, without a network."""

from pathlib import Path

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem
from rollingfs.server import make_app
from rollingfs.stream.ledger import Ledgers
from tests.server.conftest import Client
from tests.support.schedules import beside


def filled(client: Client) -> None:
    for name in "abc":
        client.post(f"/v1/segments/logs/{name}?create=true", content=b"0123456789")


def test_stream_is_trimmed_to_cut_and_repeat_drops_nothing(client: Client) -> None:
    filled(client)
    client.post("/v1/segments/logs/a:seal")
    cut = client.get("/v1/streams/logs:cut").json()["cut"]
    assert cut["segments"] == {"logs/a": 10, "logs/b": 10, "logs/c": 10}
    client.post("/v1/segments/logs/b", content=b"more")
    assert client.post("/v1/streams/logs:trim", json={"cut": cut, "dry_run": True}).json()["bytes"] == 30
    assert client.get("/v1/streams/logs").json()["size"] == 34
    did = client.post("/v1/streams/logs:trim", json={"cut": cut}).json()
    assert (did["bytes"], did["deleted"]) == (30, ["logs/a"])
    assert did["dropped"] == {"logs/a": 10, "logs/b": 10, "logs/c": 10}
    again = client.post("/v1/streams/logs:trim", json={"cut": cut}).json()
    assert (again["bytes"], again["deleted"], again["failed"]) == (0, [], {})
    assert client.get("/v1/segments/logs/b").content == b"more"


def test_a_cut_of_other_paths_is_refused(client: Client) -> None:
    filled(client)
    cut = client.get("/v1/streams/logs:cut").json()["cut"]
    for bad in ({}, {**cut, "segments": {"../x": 1}}, {**cut, "segments": {"other/a": 1}}, {**cut, "at": "x"}):
        answer = client.post("/v1/streams/logs:trim", json={"cut": bad})
        assert (answer.status_code, answer.json()["changed"]) == (400, "nothing was changed"), answer.text


def test_retention_is_set_and_run(client: Client) -> None:
    filled(client)
    assert client.get("/v1/streams/logs:retention").json() == {"retention": None, "sources": {}}
    assert client.put("/v1/streams/logs:retention", json={"min_bytes": -1}).status_code == 400
    found = client.put("/v1/streams/logs:retention", json={"min_bytes": "10", "every": 0}).json()
    assert found["retention"]["min_bytes"] == 10
    assert client.post("/v1/streams/logs:retain", json={"dry_run": True}).status_code == 200
    assert client.post("/v1/streams/logs:retain").json()["size"] == 30
    assert len(client.get("/v1/streams/logs:cuts").json()["cuts"]) == 1
    assert client.get("/v1/streams").json() == {"streams": ["logs"]}
    cut = client.get("/v1/streams/logs:cut").json()["cut"]
    assert client.post("/v1/streams/logs:publish", json={"subscriber": "billing", "cut": cut}).status_code == 200
    assert list(client.get("/v1/streams/logs").json()["subscribers"]) == ["billing"]
    assert client.put("/v1/streams/logs:retention", json={}).json() == {"retention": None, "sources": {}}


def test_retention_that_counts_says_which_folder_it_is_of(client: Client, fs: RollingFileSystem, root: str) -> None:
    filled(client)
    client.post("/v1/segments/logs/sub/a?create=true", content=b"x")
    fs.stream(f"{root}/logs").retention = RetentionPolicy(min_bytes=10, max_age="7d")
    found = client.put("/v1/streams/logs/sub:retention", json={"min_bytes": 20}).json()
    assert found["retention"] == {"min_bytes": 20, "max_age": 604800.0}
    assert found["sources"] == {"min_bytes": "logs/sub", "max_age": "logs"}
    info = client.get("/v1/streams/logs/sub").json()
    assert (info["retention"], info["sources"]) == (found["retention"], found["sources"])
    assert client.get("/v1/streams/none:retention").status_code == 404
    page = client.get("/?path=logs/sub").text
    assert "min_bytes=20 (of logs/sub)" in page
    assert "max_age=604800.0 (of logs)" in page
    inside = Client(make_app(fs, f"{root}/logs/sub"))
    assert root not in inside.get("/").text
    assert "max_age=604800.0 (of a folder above)" in inside.get("/").text


def test_upkeep_by_hand(client: Client) -> None:
    filled(client)
    assert set(client.post("/v1/streams/logs:consolidate").json()["segments"]) == {"logs/a", "logs/b", "logs/c"}
    refused = client.post("/v1/streams/logs:offload", json={"tier": "cold"})
    assert refused.status_code == 422, refused.text
    assert client.post("/v1/streams/none:retain").status_code == 404
    assert client.delete("/v1/streams/logs").status_code == 204
    assert client.get("/v1/segments?folder=logs").json()["entries"] == []


def test_offload_writes_blocks_of_size_that_is_asked_for(tmp_path: Path) -> None:
    fs = RollingFileSystem("file", sync=False, inline_bytes=0, max_bytes=20, tiers={"cold": f"{tmp_path}/cold"})
    served = Client(make_app(fs, str(tmp_path)))
    for name in "ab":
        fs.pipe_file(f"{tmp_path}/logs/{name}", b"x" * 100)
    did = served.post("/v1/segments/logs/a:offload", json={"block_bytes": 40})
    assert (did.json()["chunks"], did.json()["files"]) == (5, 3)
    did = served.post("/v1/streams/logs:offload", json={"block_bytes": "60B"})
    assert [one["files"] for one in did.json()["moved"].values()] == [2]


URL = "/v1/streams/logs/sub:retention"
OWN = {"min_bytes": 20, "keep_age": 0.5, "max_age": 604800.5, "every": 1800.0, "align": "\n\u00ff"}


@pytest.fixture
def sub(client: Client, fs: RollingFileSystem, root: str) -> RetentionPolicy | None:
    """A stream in a stream, which have a policy each."""
    client.post("/v1/segments/logs/sub/a?create=true", content=b"x")
    fs.stream(f"{root}/logs").retention = RetentionPolicy(keep_bytes=100, min_bytes=10)
    assert client.put(URL, json=OWN).status_code == 200
    return fs.stream(f"{root}/logs/sub").retention


def test_put_answers_of_get_leave_folder_values_inherited(
    client: Client, fs: RollingFileSystem, root: str, sub: RetentionPolicy
) -> None:
    stream, told = fs.stream(f"{root}/logs/sub"), client.get(URL).json()
    assert told["retention"] == {**OWN, "keep_bytes": 100}
    assert client.put(URL, json=told).json() == told
    assert stream.retention == sub
    told["retention"]["keep_bytes"] = 200
    assert client.put(URL, json=told).json()["sources"]["keep_bytes"] == "logs/sub"
    assert client.put(URL, json={"retention": None, "sources": {}}).json()["retention"] == {
        "keep_bytes": 100,
        "min_bytes": 10,
    }
    assert stream.retention is None
    for bad in ({"retention": {"min_byte": 1}}, {"retention": {}, "every": 1}, {"keep_bytes": 1.5}, {"align": ""}):
        assert client.put(URL, json=bad).status_code == 400, bad
    (made,) = client.put(URL, json={"min_age": "forever"}).json()["retention"].keys() - {"keep_bytes", "min_bytes"}
    assert client.put(URL, json=client.get(URL).json()).status_code == 200
    assert made == "min_age"


def test_patch_changes_fields_that_it_names_beside_another_client(
    client: Client, fs: RollingFileSystem, root: str, sub: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fs.stream(f"{root}/logs/sub")

    def change(*_: object, **__: object) -> None:
        stream.retention = RetentionPolicy.from_fields({**sub.as_fields(), "every": 60})

    beside(monkeypatch, Ledgers, "_replace", before=change, once=True)
    told = client.patch(URL, json={"keep_age": None, "min_bytes": "30"}).json()["retention"]
    own = {name: value for name, value in OWN.items() if name != "keep_age"}
    assert told == {**own, "min_bytes": 30, "every": 60, "keep_bytes": 100}
    assert client.patch(URL, json={}).json()["retention"] == told
    assert client.patch(URL, json={"max_age": 1, "min_age": 5}).status_code == 400
