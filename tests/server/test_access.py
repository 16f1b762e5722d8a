"""Who may do what."""

import logging
import os
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.server import make_app
from rollingfs.server.access import parse_tokens
from tests.server.conftest import Client

ALL, READS, SOME = "a" * 20, "b" * 20, "c" * 20
LINES = [ALL, f"{READS} read", f"{SOME} write logs/mine", "# a comment", ""]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def client(fs: RollingFileSystem, root: str) -> Client:
    return Client(make_app(fs, root, tokens=LINES))


def test_without_a_token_nothing_is_told(client: Client) -> None:
    for url in ("/v1/segments/a", "/v1/segments", "/metrics", "/openapi.json", "/v1/segments/a:tail"):
        assert client.get(url).status_code == 401
        assert client.get(url, headers=bearer("x" * 20)).status_code == 401
        assert client.get(url, headers={"Authorization": b"Basic \xff"}).status_code == 401
        assert client.get(url, params={"delegation": ALL}).status_code == 401
    assert client.get("/v1/segments").headers["www-authenticate"].startswith("Bearer")
    assert client.get("/healthz").status_code == 200


def test_hadoops_client_gets_its_token_back_as_a_bearers(client: Client) -> None:
    form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": READS}
    granted = client.post("/oauth2/token", data=form).json()
    assert client.get("/v1/segments", headers=bearer(granted["access_token"])).status_code == 200
    for wrong in ({"client_secret": "x" * 20}, {}, {"client_secret": ""}):
        assert client.post("/oauth2/token", data=wrong).status_code == 401
    assert client.post("/oauth2/token", content=b"x" * (2 << 20)).status_code == 413


def test_a_token_may_only_read(client: Client) -> None:
    client.put("/v1/segments/a", headers=bearer(ALL))
    assert client.get("/v1/segments/a", headers=bearer(READS)).status_code == 200
    calls = [("PUT", "/v1/segments/b"), ("POST", "/v1/segments/a"), ("DELETE", "/v1/segments/a")]
    calls += [("POST", f"/v1/segments/a:{verb}") for verb in ("seal", "offload", "consolidate")]
    calls += [("DELETE", "/v1/streams/x"), ("PUT", "/v1/streams/x:retention"), ("POST", "/v1/streams/x:retain")]
    for method, url in calls:
        assert client.request(method, url, headers=bearer(READS)).status_code == 403, url
    assert client.post("/v1/segments/a", content=b"x", auth=("me", ALL)).status_code == 200


def test_a_token_is_confined_to_its_prefix(client: Client) -> None:
    client.put("/v1/segments/logs/mine/a", headers=bearer(SOME))
    client.post("/v1/segments/logs/mine2?create=true", content=b"secret", headers=bearer(ALL))
    may = bearer(SOME)
    assert client.post("/v1/segments/logs/mine/a", content=b"x", headers=may).status_code == 200
    assert client.get("/v1/segments", headers=may).json()["folder"] == "logs/mine"
    for url in ("/v1/segments/logs/mine2", "/v1/segments/logs/mine/../mine2", "/v1/segments?folder=logs"):
        assert client.get(url, headers=may).status_code in (400, 403)
    for body in ({"to": "logs/mine2"}, {"to": "logs/other"}):
        assert client.post("/v1/segments/logs/mine/a:rename", json=body, headers=may).status_code == 403
    stolen = client.post("/v1/segments/logs/mine/a:concat", json={"sources": ["logs/mine2"]}, headers=may)
    assert stolen.status_code == 403
    assert client.post("/v1/segments:info", json={"paths": ["logs/mine2"]}, headers=may).status_code == 403
    assert client.get("/metrics", headers=may).status_code == 403


@pytest.mark.parametrize("line", ["short", "x" * 20 + " all", "x" * 20 + " read a b"])
def test_a_malformed_line_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 of the tokens") as found:
        parse_tokens(["", line])
    assert "xxx" not in str(found.value)


def test_tokens_are_never_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "rollingfs"):
        client.get("/v1/segments/none", headers=bearer(ALL))
        client.get("/v1/segments/none?token=x", headers=bearer(ALL[:-1]))
    assert ALL[:-1] not in "".join(record.getMessage() for record in caplog.records if record.name != "httpx")


def test_pages_of_other_sites_cannot_use_an_open_server(fs: RollingFileSystem, root: str) -> None:
    client = Client(make_app(fs, root, hosts=["localhost"]))
    assert client.put("/v1/segments/a").status_code == 201
    for headers in (
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "[::"},
    ):
        assert client.get("/v1/segments/a", headers=headers).status_code == 403
    assert client.get("/v1/segments/a", headers={"Origin": "http://localhost"}).status_code == 200


def test_a_link_on_the_disk_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "way").symlink_to(tmp_path)
    (tmp_path / "root" / "file").symlink_to(tmp_path / "secret")
    client = Client(make_app(RollingFileSystem("file"), f"{tmp_path}/root"))
    for url in ("/v1/segments/way/secret", "/v1/segments/file", "/v1/segments?folder=way"):
        answer = client.get(url)
        assert answer.status_code == 404
        assert str(tmp_path) not in answer.text
    assert client.post("/v1/segments/way/new?create=true", content=b"x").status_code == 404
    assert not (tmp_path / "new").exists()
    (tmp_path / "root" / "in").mkdir()
    (tmp_path / "root" / "in" / "seen").write_text("seen")
    (tmp_path / "root" / "inner").symlink_to(tmp_path / "root" / "in")
    hdfs = "/webhdfs/v1/?op"
    walks = ["/", "/v1/segments", "/v1/segments/in:status", "/v1/streams", "/v1/streams/in"]
    walks += [f"{hdfs}={op}" for op in ("LISTSTATUS", "LISTSTATUS_BATCH", "GETCONTENTSUMMARY")]
    with_links = Client(make_app(RollingFileSystem("file"), str(tmp_path)))  # as a token's holder sees it
    for url in [*walks, "/v1/segments/root:status"]:
        app = with_links if "root" in url else client
        (tmp_path / "root" / "in" / "out").unlink(missing_ok=True)
        (tmp_path / "root" / "in" / "out").symlink_to("/etc" if app is with_links else tmp_path)
        answer = app.get(url)
        assert answer.status_code == 200, (url, answer.text)
        assert all(name not in answer.text for name in ("secret", "way", "passwd")), url
    summary = client.get(f"{hdfs}=GETCONTENTSUMMARY").json()["ContentSummary"]
    assert (summary["length"], summary["fileCount"]) == (8, 2)  # by the folder and by the link to it, which is within
    assert client.delete("/webhdfs/v1/in?op=DELETE&recursive=true").json() == {"boolean": True}
    assert (tmp_path / "secret").read_text() == "secret"
    assert not os.path.lexists(tmp_path / "root" / "in" / "out")
    assert client.get("/webhdfs/v1/in?op=GETFILESTATUS").status_code == 404


def test_non_utf_8_name_is_listed_read_and_deleted(tmp_path: Path) -> None:
    name = b"caf\xe9 & co"
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(b"data")
    client = Client(make_app(RollingFileSystem("file"), str(tmp_path)))
    (found,) = client.get("/v1/segments").json()["entries"]
    assert found["path"] == os.fsdecode(name)
    assert 'href="/?path=caf%E9%20%26%20co"' in client.get("/").text
    assert "data" in client.get("/?path=caf%E9%20%26%20co").text
    for url in ("/v1/segments/caf%E9%20%26%20co", "/webhdfs/v1/caf%E9%20%26%20co?op=OPEN&data=true"):
        assert client.get(url).content == b"data"
    assert client.get("/v1/segments/caf%E9%20%26%20co:info").json()["path"] == os.fsdecode(name)
    assert client.put("/webhdfs/v1/caf%E9%20%26%20co?op=RENAME&destination=/%E9").status_code == 400
    assert client.delete("/webhdfs/v1/caf%E9%20%26%20co?op=DELETE").json() == {"boolean": True}
    assert client.get("/v1/segments").json()["entries"] == []
