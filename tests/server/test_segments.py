"""REST on segments, without a network."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.contract_values import FileInfo
from rollingfs.backend.local import folders, looks
from rollingfs.format.append_keys import ATTRIBUTE, KEYS_MAX
from rollingfs.segment.segment import Segment
from rollingfs.server import make_app, served_store as store_module
from rollingfs.server.process import Limits
from rollingfs.server.served_store import ServedStore, etag
from tests.server.conftest import Client, talk
from tests.support.backends import Counting, private_memory


def problem_of(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == answer.status_code
    return answer.status_code, found["title"], found["changed"]


NOTHING = "nothing was changed"


def test_segment_is_created_appended_to_read_and_deleted(client: Client, fs: RollingFileSystem, root: str) -> None:
    assert client.put("/v1/segments/logs/a", json={"max_bytes": "1MiB", "inline_bytes": 100}).status_code == 201
    assert fs.segment(f"{root}/logs/a").policy.max_bytes == 1 << 20
    assert problem_of(client.put("/v1/segments/logs/a")) == (409, "FileExists", NOTHING)
    first = client.post("/v1/segments/logs/a", content=b"one\n")
    assert first.json() == {"offset": 0, "size": 4, "version": 2, "length": 4, "repeated": False}
    assert client.post("/v1/segments/logs/a", content=b"two\n").json()["offset"] == 4
    got = client.get("/v1/segments/logs/a")
    assert (got.status_code, got.content) == (200, b"one\ntwo\n")
    assert (got.headers["segment-length"], got.headers["segment-version"]) == ("8", "3")
    assert client.request("HEAD", "/v1/segments/logs/a").headers["content-length"] == "8"
    assert client.delete("/v1/segments/logs/a").status_code == 204
    assert problem_of(client.get("/v1/segments/logs/a")) == (404, "FileNotFound", NOTHING)
    assert problem_of(client.post("/v1/segments/logs/a", content=b"x")) == (404, "FileNotFound", NOTHING)
    assert [client.post("/v1/segments/logs/a?create=true", content=b"x").json()["offset"] for _ in range(2)] == [0, 1]


def test_an_expected_offset_counts_at_the_commit(client: Client) -> None:
    client.put("/v1/segments/a")
    assert client.post("/v1/segments/a", content=b"x", headers={"Expected-Offset": "0"}).status_code == 200
    refused = client.post("/v1/segments/a", content=b"x", headers={"Expected-Offset": "0"})
    assert problem_of(refused) == (412, "BadOffset", NOTHING)
    assert client.get("/v1/segments/a").content == b"x"


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("DELETE", "/v1/segments/a"),
        ("POST", "/v1/segments/a?create=true"),
        ("PUT", "/webhdfs/v1/a?op=CREATE&overwrite=true&data=true"),
        ("DELETE", "/webhdfs/v1/a?op=DELETE"),
    ],
)
def test_no_change_is_made_under_an_unchecked_condition(client: Client, method: str, url: str, name: str) -> None:
    client.post("/v1/segments/a?create=true", content=b"kept")
    refused = client.request(method, url, content=b"x" if method != "DELETE" else b"", headers={name: '"of before"'})
    assert refused.status_code == (400 if "webhdfs" in url else 501)
    assert client.get("/v1/segments/a").content == b"kept"


def test_a_read_of_another_etag_is_refused(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"one")
    tag = client.get("/v1/segments/a").headers["etag"]
    assert client.get("/v1/segments/a", headers={"If-Match": f'"other", {tag}'}).content == b"one"
    client.post("/v1/segments/a", content=b"two")
    refused = client.get("/v1/segments/a", headers={"If-Match": tag, "Range": "bytes=0-1"})
    assert (refused.status_code, refused.headers["etag"] != tag) == (412, True)
    assert client.get("/v1/segments/a", headers={"If-Match": "*"}).content == b"onetwo"


def test_a_key_costs_no_request(client: Client, fs: RollingFileSystem) -> None:
    client.put("/v1/segments/a")
    counts = []
    for headers in ({}, {}, {"Idempotency-Key": "k"}):
        before = sum(calls.count for calls in fs.metrics().requests.values())
        assert client.post("/v1/segments/a", content=b"x", headers=headers).status_code == 200
        counts.append(sum(calls.count for calls in fs.metrics().requests.values()) - before)
    assert counts[1] == counts[2]


@pytest.mark.parametrize("size", [1, 300_000])
def test_keyed_append_counts_once_it_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A loss of power would take it back."""
    fs = RollingFileSystem("file", commit_timeout_s=0.5, skip_instance_cache=True)
    fs.create(f"{tmp_path}/a")
    client, flushed = Client(make_app(fs, root=str(tmp_path))), folders.flush_folder_of

    def refused(path: str) -> None:
        if "$chunks" not in path:
            raise OSError(errno.EIO, "the disk fails", path)
        flushed(path)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "flush_folder_of", refused)
        for _ in range(2):
            answer = client.post("/v1/segments/a", content=b"x" * size, headers={"Idempotency-Key": "k"})
            assert answer.status_code >= 500
    answer = client.post("/v1/segments/a", content=b"x" * size, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["repeated"]) == (200, True)


def test_a_numbered_append_takes_place_once(client: Client, fs: RollingFileSystem, root: str) -> None:
    client.put("/v1/segments/a")
    segment = fs.segment(f"{root}/a")._binding.segment

    def sent(number: object, gone: int = 0, meant: str = segment, name: str = "w") -> tuple[int, Any, Any]:
        answer = client.post("/v1/segments/a", content=b"xy", params={"writer": f"{name} {number} {gone} {meant}"})
        found = answer.json()
        return answer.status_code, found.get("offset", found.get("title")), found.get("repeated", found.get("changed"))

    assert [sent(1), sent(1), sent(2)] == [(200, 0, False), (200, 0, True), (200, 2, False)]
    assert [sent(1), sent(1, 7, name="other")] == [(409, "Forgotten", NOTHING)] * 2
    assert sent(3, meant="b7c1a5de-0000-4000-8000-000000000000") == (404, "FileNotFound", NOTHING)
    assert [sent(0)[0], sent("x")[0], sent(2**40)[0]] == [400, 400, 400]
    client.post("/v1/segments/a:seal")
    assert [sent(2), sent(3)] == [(200, 2, True), (409, "SegmentSealed", NOTHING)]
    assert client.get("/v1/segments/a").content == b"xyxy"
    assert client.get("/v1/segments/a:info").json()["attributes"] == {}


@pytest.mark.parametrize("others", [{}, {"note": "x" * 2000}, {"note": "x" * 4020, "n": "1"}])
def test_oldest_keys_go_where_other_attributes_need_room(
    client: Client, fs: RollingFileSystem, root: str, others: dict[str, str]
) -> None:
    fs.create(f"{root}/a")
    fs.append(f"{root}/a", b"", attrs=others)
    for number in range(100):
        answer = client.post("/v1/segments/a", content=b"x", headers={"Idempotency-Key": f"{number}"})
        assert (answer.status_code, answer.json()["repeated"]) == (200, False)
        if number == 50:
            fs.append(f"{root}/a", b"", attrs={"late": "y" * 10})
    attrs = fs.segment(f"{root}/a").attrs
    assert {**others, "late": "y" * 10}.items() <= attrs.items()
    kept = len(attrs[ATTRIBUTE].split())
    assert len(attrs[ATTRIBUTE]) <= 3072  # of the 4,096 that all attributes may have
    assert kept == {0: KEYS_MAX - 1, 1: 47, 2: 1}[len(others)], "beside `late`, which had room"
    for number in (100 - kept, 99):
        assert client.post("/v1/segments/a", content=b"x", headers={"Idempotency-Key": f"{number}"}).json()["repeated"]
    assert fs.size(f"{root}/a") == 100


async def streamed(*parts: bytes) -> AsyncIterator[bytes]:
    """A body whose length is not told before."""
    for part in parts:
        yield part


def at_once(app: Any, calls: list[tuple[bytes, dict[str, str]]]) -> list[httpx.Response]:
    """The answers to appends that are made at once to a new segment."""

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.put("/v1/segments/a")
            made = [client.post("/v1/segments/a", content=data, headers=headers) for data, headers in calls]
            return await asyncio.gather(*made)

    return asyncio.run(main())


def test_the_same_key_at_once_appends_once(fs: RollingFileSystem, root: str) -> None:
    calls = [(b"%d;" % (one // 4), {"Idempotency-Key": f"{one // 4}"}) for one in range(40)]
    answers = [answer.json() for answer in at_once(make_app(fs, root), calls)]
    assert sum(not answer["repeated"] for answer in answers) == 10
    for number in range(10):
        assert len({answer["offset"] for answer in answers[4 * number : 4 * number + 4]}) == 1
    assert sorted(fs.cat_file(f"{root}/a").split(b";")) == sorted([b"", *(b"%d" % one for one in range(10))])


def test_a_body_is_streamed_into_one_commit(client: Client, fs: RollingFileSystem, root: str) -> None:
    parts = [b"%06d\n" % number * 10_000 for number in range(100)]
    client.put("/v1/segments/a")
    assert client.post("/v1/segments/a", content=streamed(*parts)).json()["version"] == 2
    assert fs.size(f"{root}/a") == 7_000_000
    assert client.get("/v1/segments/a").content == b"".join(parts)


def test_a_body_that_breaks_off_leaves_nothing(fs: RollingFileSystem, root: str) -> None:
    fs.create(f"{root}/a")
    half = {"type": "http.request", "body": b"x" * (3 << 20), "more_body": True}
    sent = talk(make_app(fs, root), "POST", "/v1/segments/a", half)
    assert fs.size(f"{root}/a") == 0
    assert sent[0]["status"] == 400
    assert not MemoryFileSystem().find(f"{root}/a$chunks")


@pytest.mark.parametrize(
    ("asked", "expected", "told"),
    [
        ("bytes=0-2", b"234", "bytes 0-2/8"),
        ("bytes=5-", b"789", "bytes 5-7/8"),
        ("bytes=-2", b"89", "bytes 6-7/8"),
        ("bytes=6-100", b"89", "bytes 6-7/8"),
        ("bytes=-100", b"23456789", "bytes 0-7/8"),
    ],
)
def test_a_range_counts_from_the_first_retained_byte(client: Client, asked: str, expected: bytes, told: str) -> None:
    client.post("/v1/segments/a?create=true", content=b"0123456789")
    client.post("/v1/segments/a:truncate", json={"offset": 2})
    got = client.get("/v1/segments/a", headers={"Range": asked})
    assert (got.status_code, got.content, got.headers["content-range"]) == (206, expected, told)


def test_offsets_are_those_of_the_segment(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"0123456789")
    client.post("/v1/segments/a:truncate", json={"offset": 2})
    assert client.get("/v1/segments/a?start=4&end=6").content == b"45"
    assert client.get("/v1/segments/a?start=10").content == b""
    assert problem_of(client.get("/v1/segments/a?start=1")) == (410, "SegmentTruncated", NOTHING)
    assert problem_of(client.get("/v1/segments/a?start=11"))[0] == 416
    assert problem_of(client.get("/v1/segments/a", headers={"Range": "bytes=8-"}))[0] == 416
    assert client.get("/v1/segments/a", headers={"Range": "lines=1-2"}).status_code == 200


def test_an_etag_spares_the_bytes_until_the_next_commit(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"x")
    tag = client.get("/v1/segments/a").headers["etag"]
    assert client.get("/v1/segments/a", headers={"If-None-Match": tag}).status_code == 304
    assert client.get("/v1/segments/a:info").json()["etag"] == tag
    client.post("/v1/segments/a", content=b"y")
    assert client.get("/v1/segments/a", headers={"If-None-Match": tag}).status_code == 200
    stale = client.get("/v1/segments/a", headers={"Range": "bytes=0-0", "If-Range": tag})
    assert (stale.status_code, stale.content) == (200, b"xy")


@pytest.mark.parametrize(
    ("asked", "query", "is_whole"),
    [
        ("bytes=7-2000006", "", True),
        ("bytes=-2000000", "", True),
        ("", "?start=7&end=2000007", True),
        ("bytes=7-", "", False),
        ("", "", False),
    ],
)
def test_a_range_with_an_end_is_read_whole(
    client: Client, fs: RollingFileSystem, root: str, monkeypatch: Any, asked: str, query: str, is_whole: bool
) -> None:
    fs.pipe_file(f"{root}/large", bytes(2_100_000))
    read = Mock(wraps=ServedStore._read)
    monkeypatch.setattr(ServedStore, "_read", lambda *args: read(*args))
    got = client.get(f"/v1/segments/large{query}", headers={"Range": asked} if asked else {})
    assert len(got.content) == int(got.headers["content-length"]) >= 2_000_000
    assert (read.call_count == 0) == is_whole


CHANGES: dict[str, Callable[[RollingFileSystem, str], object]] = {
    "appended to": lambda fs, path: fs.append(path, b"+"),
    "truncated": lambda fs, path: fs.truncate(path, 4),
    "replaced": lambda fs, path: fs.pipe_file(path, b"abc"),
    "gone": lambda fs, path: fs.rm_file(path),
    "as before": lambda fs, path: None,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("first", [0, 5])
def test_range_is_of_file_as_it_is_now(
    root: str, first: int, change: Callable[[RollingFileSystem, str], object]
) -> None:
    store, path = private_memory(), f"{root}/a"
    served = RollingFileSystem(backend=Counting(store, suspends=True), skip_instance_cache=True)
    other = RollingFileSystem(backend=store, skip_instance_cache=True)
    other.create(path, policy=RollingPolicy(inline_bytes=0))
    other.append(path, b"0123456789")
    client = Client(make_app(served, root))
    for happens in (CHANGES["as before"], change):
        happens(other, path)
        now = other.cat_file(path) if other.exists(path) else None
        got = client.get("/v1/segments/a", headers={"Range": f"bytes={first}-8"})
        status = 404 if now is None else 206 if first < len(now) else 416
        assert got.status_code == status
        assert status != 206 or got.content == now[first:9]


def test_equal_size_and_second_still_give_different_etags() -> None:
    files = [FileInfo("/a", size=3, modified=1.0, token=token) for token in ("one", "two")]
    assert len({etag(Segment.of_plain(file)) for file in files}) == 2


def test_seal_concat_rename(client: Client) -> None:
    for name in "abc":
        client.post(f"/v1/segments/{name}?create=true", content=name.encode() * 3)
    refused = client.post("/v1/segments/c:concat", json={"sources": ["a", "b"]})
    assert problem_of(refused)[:2] == (409, "SegmentNotSealed")
    assert client.post("/v1/segments/a:seal").json() == {"length": 3}
    assert problem_of(client.post("/v1/segments/a", content=b"x")) == (409, "SegmentSealed", NOTHING)
    client.post("/v1/segments/b:seal")
    assert client.post("/v1/segments/c:concat", json={"sources": ["a", "b"]}).json() == {"offset": 3}
    assert client.get("/v1/segments/c").content == b"cccaaabbb"
    assert client.get("/v1/segments/a").status_code == 404
    client.post("/v1/segments/d?create=true", content=b"d")
    assert problem_of(client.post("/v1/segments/c:rename", json={"to": "d"})) == (409, "FileExists", NOTHING)
    assert client.post("/v1/segments/c:rename", json={"to": "d", "overwrite": True}).json() == {"path": "d"}
    assert client.get("/v1/segments/d").content == b"cccaaabbb"
    assert client.post("/v1/segments/d:consolidate").status_code == 200
    assert client.get("/v1/segments/d:status").json()["states"][0]["path"] == "d"


def test_an_answer_tells_that_a_concat_joined_a_part(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.segment.verbs.concat.MARKS_MAX", 1)
    for name in "abc":
        client.post(f"/v1/segments/{name}?create=true", content=name.encode())
    client.post("/v1/segments/a:seal")
    refused = client.post("/v1/segments/c:concat", json={"sources": ["a", "b"]})
    assert problem_of(refused) == (409, "SegmentNotSealed", "a part was changed; the detail has which")
    assert "c: the first 1 of 2 sources are joined, the others not: b is not sealed" in refused.json()["detail"]
    assert client.get("/v1/segments/c").content == b"ca"


def test_a_folder_is_listed_in_pages(client: Client) -> None:
    for number in range(5):
        client.put(f"/v1/segments/logs/{number}")
    client.put("/v1/segments/logs/in/side")
    seen: list[str] = []
    more: dict[str, str] = {}
    for _ in range(3):
        page = client.get("/v1/segments", params={"folder": "logs", "limit": 2, **more}).json()
        seen += [entry["path"] for entry in page["entries"]]
        more = {"after": page["next"]}
    assert more == {"after": None}
    assert seen == ["logs/0", "logs/1", "logs/2", "logs/3", "logs/4", "logs/in"]
    assert [entry["path"] for entry in client.get("/v1/segments").json()["entries"]] == ["logs"]


def test_many_infos_come_at_once_with_problems_in_place(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"x")
    found = client.post("/v1/segments:info", json={"paths": ["a", "none"]}).json()["infos"]
    assert found["a"]["size"] == 1
    assert found["none"]["problem"]["status"] == 404


HOSTILE = [
    *("..", "../x", "a/../../x", "%2e%2e/x", "a/%2e%2e/%2e%2e/etc/passwd", "..%2fx", "a//b", "./a", "%00", "a%0ab"),
    *("x$header", "x$chunks/0", "$stream", "a/$listing", "file:%2f%2f/etc/passwd", "x" * 5000, "%ff%fe"),
    "a%5c..%5c..%5cx%00",
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("verb", ["", ":info", ":seal", ":tail"])
def test_no_path_leaves_the_root(client: Client, path: str, verb: str) -> None:
    method = "POST" if verb in (":seal",) else "GET"
    answer = client.request(method, f"http://localhost/v1/segments/{path}{verb}")
    status, _, changed = problem_of(answer)
    assert status in (400, 404)
    assert changed == NOTHING
    assert "Traceback" not in answer.text


def test_no_path_of_windows_leaves_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ServedStore(RollingFileSystem("file", skip_instance_cache=True), str(tmp_path))
    monkeypatch.setattr(store_module, "os", SimpleNamespace(sep="\\"))
    with pytest.raises(ValueError, match="stand between slashes"):
        store.place("a$chunks\\0")
    monkeypatch.setattr(looks, "_real", Mock(side_effect=[str(tmp_path), OSError(errno.EBADF, "a device")]))
    with pytest.raises(FileNotFoundError, match="leads out of the root"):
        store.place("con")


@pytest.mark.parametrize("to", ["../x", "/../x", "a/../b", "", "x$header", "a\x00b", 7, None, ["x"]])
def test_no_field_leaves_the_root(client: Client, to: Any) -> None:
    client.post("/v1/segments/a?create=true", content=b"x")
    assert problem_of(client.post("/v1/segments/a:rename", json={"to": to}))[::2] == (400, NOTHING)
    assert client.get("/v1/segments/a").content == b"x"


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"7", b"NaN", b'{"offset": NaN}', b'{"offset": true}', b'{"offset": -1}', b'{"offset": 1e999}'),
        *(b'{"offset": 99999999999999999999}', b'{"else": 1}', b'{"offset": "1"}', b"[" * 100_000, b"\xff\xfe", b""),
    ],
)
def test_a_hostile_body_changes_nothing(client: Client, body: bytes) -> None:
    client.post("/v1/segments/a?create=true", content=b"x")
    assert problem_of(client.post("/v1/segments/a:truncate", content=body))[::2] == (400, NOTHING)


def test_quoted_colon_in_a_path_is_no_verb(client: Client) -> None:
    assert client.post("/v1/segments/a%3Aseal?create=true", content=b"x").status_code == 200
    assert client.get("/v1/segments/a%3Aseal").content == b"x"
    assert client.get("/v1/segments/a").status_code == 404
    assert client.post("/v1/segments/a:frobnicate").status_code == 404
    assert client.get("/v1/segments/a:seal").status_code == 405


def test_a_body_beyond_the_limit_is_refused(fs: RollingFileSystem, root: str) -> None:
    client = Client(make_app(fs, root, limits=Limits(body_bytes=100)))
    client.put("/v1/segments/a")
    assert problem_of(client.post("/v1/segments/a", content=b"x" * 101)) == (413, "Status413", NOTHING)
    assert problem_of(client.post("/v1/segments/a", content=streamed(*[b"x" * 10] * 11))) == (413, "Status413", NOTHING)
    assert client.get("/v1/segments/a").content == b""


def test_a_stopping_server_refuses(fs: RollingFileSystem, root: str) -> None:
    app = make_app(fs, root)
    client = Client(app)
    assert client.get("/readyz").status_code == 200
    app.stop()
    assert problem_of(client.put("/v1/segments/a")) == (503, "Status503", NOTHING)
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


def test_metrics_are_those_of_the_filesystem(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"xyz")
    text = client.get("/metrics").text
    assert 'rollingfs_call_seconds_count{call="commits"}' in text
    assert "rollingfs_conflicts_total 0" in text


def test_rename_enters_no_folder_and_replaces_no_inner_file(client: Client, fs: RollingFileSystem, root: str) -> None:
    for path in ("x", "d/x"):
        fs.pipe_file(f"{root}/{path}", path.encode())
    for overwrite in (False, True):
        refused = client.post("/v1/segments/x:rename", json={"to": "d", "overwrite": overwrite})
        assert (refused.status_code, refused.json()["changed"]) == (409, NOTHING), refused.text
    assert [fs.cat_file(f"{root}/{path}") for path in ("x", "d/x")] == [b"x", b"d/x"]
    assert client.post("/v1/segments/x:rename", json={"to": "d/x", "overwrite": True}).status_code == 200
    assert fs.cat_file(f"{root}/d/x") == b"x"
