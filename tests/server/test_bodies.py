"""Bodies of appends as shippers of logs send them: gzip, without a last line feed, with keys in other places."""

import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rollingfs import RollingFileSystem
from rollingfs.server import make_app, operations
from rollingfs.server.process import Limits
from tests.server.conftest import Client

GZIP = {"Content-Encoding": "gzip"}
LINES = b"".join(b"%07d of a log\n" % number for number in range(200_000))


def answered(answer: httpx.Response) -> tuple[int, Any]:
    found = answer.json()
    return answer.status_code, found.get("repeated", found.get("changed"))


@pytest.fixture
def at(client: Client) -> Client:
    client.put("/v1/segments/a")
    return client


def length(client: Client) -> int:
    return int(client.get("/v1/segments/a:info").json()["length"])


async def in_parts(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("part", [1, 777, 1 << 20])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (gzip.compress(b"one\n"), b"one\n"),
        (gzip.compress(b"one\n") + gzip.compress(b"") + gzip.compress(b"two\n"), b"one\ntwo\n"),
        (gzip.compress(b""), b""),
        (gzip.compress(LINES[:100_000]), LINES[:100_000]),
        (gzip.compress(bytes(operations.PIECE_BYTES)), bytes(operations.PIECE_BYTES)),
        (gzip.compress(bytes(2 * operations.PIECE_BYTES), 0), bytes(2 * operations.PIECE_BYTES)),
    ],
    ids=["one", "members", "empty", "lines", "a piece", "stored"],
)
def test_a_gzip_body_is_appended_unpacked(at: Client, sent: bytes, expected: bytes, part: int) -> None:
    if part == 1 and len(sent) > 1000:
        part = 100
    answer = at.post("/v1/segments/a", content=in_parts(sent, part), headers=GZIP)
    assert (answer.status_code, answer.json()["size"]) == (200, len(expected))
    assert at.get("/v1/segments/a").content == expected


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 400),
        (b"plain\n", 400),
        (gzip.compress(LINES)[:-1], 400),
        (gzip.compress(LINES)[:100], 400),
        (gzip.compress(b"one\n") + b"rest", 400),
        (zlib.compress(b"one\n"), 400),
        (gzip.compress(bytes(5_000_000)), 413),
        (gzip.compress(bytes(3_000_000)) * 2, 413),
    ],
    ids=["no byte", "plain", "no end", "half", "rest", "zlib", "bomb", "bombs"],
)
def test_a_bad_gzip_body_appends_nothing(fs: RollingFileSystem, root: str, sent: bytes, status: int) -> None:
    client = Client(make_app(fs, root, limits=Limits(body_bytes=4_000_000)))
    client.put("/v1/segments/a")
    assert answered(client.post("/v1/segments/a", content=sent, headers=GZIP)) == (status, "nothing was changed")
    assert length(client) == 0


def test_a_gzip_body_is_bounded(at: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "UNPACKED_BYTES_MAX", 1_000_000)
    bomb = gzip.compress(bytes(1_000_001))
    assert answered(at.post("/v1/segments/a", content=bomb, headers=GZIP)) == (413, "nothing was changed")
    assert at.post("/v1/segments/a", content=gzip.compress(bytes(1_000_000)), headers=GZIP).status_code == 200


def test_another_encoding_is_refused(at: Client) -> None:
    answer = at.post("/v1/segments/a", content=b"x", headers={"Content-Encoding": "zstd"})
    assert answered(answer) == (400, "nothing was changed")
    assert at.post("/v1/segments/a", content=b"x", headers={"Content-Encoding": "identity"}).status_code == 200


def test_a_line_feed_is_added(at: Client) -> None:
    sizes = [
        at.post("/v1/segments/a?newline=true", content=body, headers=headers).json()["size"]
        for body, headers in [(b"one", {}), (b"two\n", {}), (b"", {}), (gzip.compress(b"three"), GZIP)]
    ]
    assert sizes == [4, 4, 0, 6]
    assert at.get("/v1/segments/a").content == b"one\ntwo\nthree\n"


KEYS: list[tuple[str, dict[str, str]]] = [("", {"Idempotency-Key": "k"}), ("&key=k", {}), ("&key_of_body=true", {})]


@pytest.mark.parametrize("size", [3, 3 << 20])
@pytest.mark.parametrize("given", KEYS, ids=["header", "query", "body"])
def test_a_repeat_appends_nothing(at: Client, given: tuple[str, dict[str, str]], size: int) -> None:
    url, headers = f"/v1/segments/a?newline=true{given[0]}", given[1]
    at.post("/v1/segments/a", content=b"before\n")
    firsts = [at.post(url, content=b"x" * size, headers=headers).json() for _ in range(2)]
    packed = at.post(url, content=gzip.compress(b"x" * size), headers=headers | GZIP).json()
    assert [(one["offset"], one["size"], one["repeated"]) for one in (*firsts, packed)] == [
        (7, size + 1, False),
        (7, size + 1, True),
        (7, size + 1, True),
    ]
    assert length(at) == 7 + size + 1
    assert at.get("/v1/segments/a:info").json()["attributes"] == {}


@pytest.mark.parametrize("size", [3, 3 << 20])
@pytest.mark.parametrize("given", KEYS[:2], ids=["header", "query"])
def test_a_key_of_another_body_is_refused(client: Client, given: tuple[str, dict[str, str]], size: int) -> None:
    """A shipper that forms its batch anew sends more lines with the key of the first: they must not go in silence."""
    url, headers = f"/v1/segments/a?create=true{given[0]}", given[1]
    assert answered(client.post(url, content=b"x" * size, headers=headers)) == (200, False)
    assert answered(client.post(url, content=b"x" * (size + 1), headers=headers)) == (409, "nothing was changed")
    assert length(client) == size


def test_other_bodies_have_other_keys(at: Client) -> None:
    answers = [at.post("/v1/segments/a?key_of_body=true", content=body).json() for body in (b"one\n", b"two\n")]
    assert [one["repeated"] for one in answers] == [False, False]
    assert at.get("/v1/segments/a").content == b"one\ntwo\n"


def test_two_kinds_of_keys_are_refused(at: Client) -> None:
    for query, headers in (("key=k&key_of_body=true", {}), ("key=k", {"Idempotency-Key": "k"})):
        answer = at.post(f"/v1/segments/a?{query}", content=b"x", headers=headers)
        assert answered(answer) == (400, "nothing was changed")
