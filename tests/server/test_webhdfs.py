"""WebHDFS, by plain requests and by fsspec's client."""

import asyncio
import hashlib
import struct
from typing import Any
from unittest.mock import Mock

import pytest

from rollingfs import RollingFileSystem
from rollingfs.format.crc import crc32c
from rollingfs.server import make_app, webhdfs as webhdfs_server
from rollingfs.server.served_store import SEND_BYTES, ServedStore
from tests.server.conftest import Client, Process
from tests.support.examples import slowly
from tests.support.servers import new_bucket, require_module

BASE = "/webhdfs/v1"


def written(client: Client, path: str, data: bytes) -> None:
    assert client.put(f"{BASE}{path}?op=CREATE&data=true", content=data).status_code == 201


def exception_of(answer: Any) -> str:
    assert "content-type" not in answer.headers
    return answer.json()["RemoteException"]["exception"]


def test_the_steps_of_the_protocol(client: Client) -> None:
    first = client.put(f"{BASE}/a?op=CREATE&user.name=me")
    assert first.status_code == 307
    assert client.put(first.headers["location"], content=b"one").status_code == 201
    told = client.post(f"{BASE}/a?op=APPEND&noredirect=true")
    assert told.status_code == 200
    assert client.post(told.json()["Location"], content=b"two").status_code == 200
    opened = client.get(f"{BASE}/a?op=OPEN&offset=2&length=3")
    assert opened.status_code == 307
    got = client.get(opened.headers["location"])
    assert (got.content, got.headers["content-length"], "content-type" in got.headers) == (b"etw", "3", False)


def test_what_a_client_leaves_unread_is_hardly_read(fs: RollingFileSystem, root: str, monkeypatch: Any) -> None:
    fs.pipe_file(f"{root}/a", bytes(64 * SEND_BYTES))
    store = ServedStore(fs, root)
    read = Mock(wraps=store.client.fetcher.read)

    async def main(count: int) -> int:
        read.reset_mock()
        pieces = store.pieces(await store.look(f"{root}/a"), 0, 64 * SEND_BYTES)
        for _ in range(count):
            await anext(pieces)
        await pieces.aclose()
        return sum(end - start for _, start, end in (call.args for call in read.call_args_list)) // SEND_BYTES

    monkeypatch.setattr(store.client.fetcher, "read", read)
    assert asyncio.run(main(1)) <= 4
    assert asyncio.run(main(8)) <= 40
    assert asyncio.run(main(64)) == 64


def test_statuses_and_listings(client: Client) -> None:
    for name in ("x", "y", "sub/z"):
        written(client, f"/d/{name}", b"data")
    status = client.get(f"{BASE}/d/x?op=GETFILESTATUS").json()["FileStatus"]
    assert (status["type"], status["length"], status["pathSuffix"]) == ("FILE", 4, "")
    assert client.get(f"{BASE}/?op=GETFILESTATUS").json()["FileStatus"]["type"] == "DIRECTORY"
    found = client.get(f"{BASE}/d?op=LISTSTATUS").json()["FileStatuses"]["FileStatus"]
    assert [(one["pathSuffix"], one["type"]) for one in found] == [("sub", "DIRECTORY"), ("x", "FILE"), ("y", "FILE")]
    batch = client.get(f"{BASE}/d?op=LISTSTATUS_BATCH&startAfter=sub").json()["DirectoryListing"]
    assert batch["remainingEntries"] == 0
    assert len(batch["partialListing"]["FileStatuses"]["FileStatus"]) == 2
    summary = client.get(f"{BASE}/d?op=GETCONTENTSUMMARY").json()["ContentSummary"]
    assert (summary["length"], summary["fileCount"], summary["directoryCount"]) == (12, 3, 2)
    before = client.get(f"{BASE}/d/x?op=GETFILECHECKSUM").json()["FileChecksum"]
    client.post(f"{BASE}/d/x?op=APPEND&data=true", content=b"more")
    after = client.get(f"{BASE}/d/x?op=GETFILECHECKSUM").json()["FileChecksum"]
    assert before["bytes"] != after["bytes"]
    assert len(after["bytes"]) == 2 * after["length"]


@pytest.mark.parametrize("size", [1, 512, 1000, 1024, 5000])
def test_a_checksum_is_that_of_hdfs(client: Client, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs_server, "BLOCK_BYTES", 1024)
    data = bytes(number * 7 % 256 for number in range(size))
    written(client, "/a", data[: size // 2])
    client.post(f"{BASE}/a?op=APPEND&data=true", content=data[size // 2 :])
    md5s = b""
    for block in (data[at : at + 1024] for at in range(0, size, 1024)):
        crcs = [crc32c(block[at : at + 512]) for at in range(0, len(block), 512)]
        md5s += hashlib.md5(b"".join(crc.to_bytes(4) for crc in crcs)).digest()
    count = 2 if size > 1024 else 0
    found = client.get(f"{BASE}/a?op=GETFILECHECKSUM").json()["FileChecksum"]
    assert found["algorithm"] == f"MD5-of-{count}MD5-of-512CRC32C"
    assert bytes.fromhex(found["bytes"]) == struct.pack(">iq", 512, count) + hashlib.md5(md5s).digest()


def test_errors_are_those_of_hadoop(client: Client) -> None:
    written(client, "/d/x", b"data")
    calls = [
        ("GET", "/none?op=GETFILESTATUS", 404, "FileNotFoundException"),
        ("PUT", "/d/x?op=CREATE&data=true", 403, "FileAlreadyExistsException"),
        ("PUT", "/d?op=CREATE&data=true&overwrite=true", 403, "FileAlreadyExistsException"),
        ("POST", "/d/x?op=TRUNCATE&newlength=1", 400, "UnsupportedOperationException"),
        ("GET", "/d/x?op=FROBNICATE", 400, "UnsupportedOperationException"),
        ("GET", "/d/x", 400, "UnsupportedOperationException"),
        ("GET", "/d/x?op=OPEN&data=true&offset=a", 400, "IllegalArgumentException"),
        ("GET", "/d/x?op=OPEN&data=true&offset=5", 403, "IOException"),
        ("GET", "/d/x?op=OPEN&data=true&length=-1", 400, "IllegalArgumentException"),
        ("GET", "/%2e%2e/x?op=GETFILESTATUS", 400, "IllegalArgumentException"),
        ("DELETE", "/d?op=DELETE", 403, "IOException"),
        ("DELETE", "/?op=DELETE&recursive=true", 400, "IllegalArgumentException"),
        ("PUT", "/d/x?op=RENAME&destination=/../y", 400, "IllegalArgumentException"),
    ]
    for method, url, status, name in calls:
        answer = client.request(method, f"http://localhost{BASE}{url}")
        assert (answer.status_code, exception_of(answer)) in [(status, name), (409, name)], url
    assert client.get(f"{BASE}/d/x?op=OPEN&data=true").content == b"data"


def test_renames_are_those_of_hdfs(client: Client) -> None:
    written(client, "/d/x", b"x")
    written(client, "/e/y", b"y")

    def rename(source: str, target: str, options: str = "") -> Any:
        more = f"&renameoptions={options}" if options else ""
        return client.put(f"{BASE}{source}?op=RENAME&destination={target}{more}")

    assert rename("/none", "/z").json() == {"boolean": False}
    assert rename("/d/x", "/e/y").json() == {"boolean": False}
    assert rename("/d", "/d/in").json() == {"boolean": False}
    assert rename("/d/x", "/e").json() == {"boolean": True}
    assert client.get(f"{BASE}/e/x?op=OPEN&data=true").content == b"x"
    assert exception_of(rename("/e/x", "/e/y", "NONE")) == "FileAlreadyExistsException"
    assert rename("/e/x", "/e/y", "OVERWRITE").status_code == 200
    assert client.get(f"{BASE}/e/y?op=OPEN&data=true").content == b"x"
    assert rename("/e/y", "/e/z", "NONE").status_code == 200
    assert client.get(f"{BASE}/e/y?op=GETFILESTATUS").status_code == 404
    assert rename("/e", "/f").json() == {"boolean": True}
    assert client.get(f"{BASE}/f/z?op=OPEN&data=true").content == b"x"
    assert client.delete(f"{BASE}/f?op=DELETE&recursive=true").json() == {"boolean": True}
    assert client.delete(f"{BASE}/f?op=DELETE&recursive=true").json() == {"boolean": False}


def test_concat_and_what_is_ignored(client: Client) -> None:
    for name in "abc":
        written(client, f"/{name}", name.encode())
    assert client.post(f"{BASE}/a?op=CONCAT&sources=/b,/c").status_code == 200
    assert client.get(f"{BASE}/a?op=OPEN&data=true").content == b"abc"
    assert client.get(f"{BASE}/b?op=GETFILESTATUS").status_code == 404
    for op in ("SETTIMES&modificationtime=1", "SETOWNER&owner=x", "SETPERMISSION&permission=777"):
        assert client.put(f"{BASE}/a?op={op}").status_code == 200
    assert client.put(f"{BASE}/new/folder?op=MKDIRS").json() == {"boolean": True}


def test_token_comes_as_delegation_and_goes_on_in_redirect(fs: RollingFileSystem, root: str) -> None:
    token = "t" * 20
    client = Client(make_app(fs, root, tokens=[token]))
    assert exception_of(client.get(f"{BASE}/?op=LISTSTATUS")) == "AccessControlException"
    first = client.put(f"{BASE}/a?op=CREATE&delegation={token}")
    assert client.put(first.headers["location"], content=b"x").status_code == 201
    by_header = {"Authorization": f"Bearer {token}"}
    second = client.get(f"{BASE}/a?op=OPEN", headers=by_header)
    assert token not in second.headers["location"]
    assert client.get(second.headers["location"], headers=by_header).content == b"x"


@pytest.mark.parametrize("store", ["moto", *slowly("seaweed", "minio")])
def test_made_folder_exists_on_object_stores_until_removed(store: str, request: pytest.FixtureRequest) -> None:
    from s3fs import S3FileSystem  # the bare package has no s3fs, and its tests run without

    s3_options = request.getfixturevalue(store)
    bucket = new_bucket(s3_options)
    fs = RollingFileSystem("s3", target_options=s3_options, single_writer=True)  # without a probe
    client = Client(make_app(fs, bucket))

    def listed(path: str) -> Any:
        answer = client.get(f"{BASE}{path}?op=LISTSTATUS")
        assert client.get(f"{BASE}{path}?op=GETFILESTATUS").status_code == answer.status_code
        return answer.json()["FileStatuses"]["FileStatus"] if answer.is_success else exception_of(answer)

    for _ in range(2):
        assert client.put(f"{BASE}/job/made/deep?op=MKDIRS").json() == {"boolean": True}
        assert listed("/job/made/deep") == []
        assert [one["pathSuffix"] for one in listed("/job/made")] == ["deep"]
        written(client, "/job/made/deep/x", b"x")
        assert exception_of(client.put(f"{BASE}/job/made/deep/x?op=MKDIRS")) == "FileAlreadyExistsException"
        assert client.delete(f"{BASE}/job/made/deep/x?op=DELETE").json() == {"boolean": True}
        assert listed("/job/made/deep") == []
        assert client.put(f"{BASE}/job/made?op=RENAME&destination=/job/moved").json() == {"boolean": True}
        assert listed("/job/moved/deep") == []
        assert listed("/job/made") == "FileNotFoundException"
        assert client.delete(f"{BASE}/job?op=DELETE&recursive=true").json() == {"boolean": True}
        assert listed("/job") == "FileNotFoundException"
    fs.collect(bucket, grace=0, recursive=True)
    left = S3FileSystem(**s3_options, skip_instance_cache=True).find(bucket)  # all bytes
    # tombstones stay on MinIO, which has no conditional DELETE
    assert [name for name in left if not name.endswith("/x$header")] == []


@pytest.fixture
def webhdfs(server: Process) -> Any:
    require_module("requests")
    from fsspec.implementations.webhdfs import WebHDFS

    return WebHDFS("localhost", int(server.url.rpartition(":")[2]), user="me", skip_instance_cache=True)


def test_fsspecs_client_reads_and_writes(webhdfs: Any) -> None:
    data = b"".join(b"line %d\n" % number for number in range(50_000))
    with webhdfs.open("/logs/a", "wb", block_size=2**16) as file:
        file.write(data)
    webhdfs._call("APPEND", "POST", "/logs/a", data=b"end\n")  # its open(…, "ab") forgets where to send the data
    assert webhdfs.cat_file("/logs/a") == data + b"end\n"
    with webhdfs.open("/logs/a", "rb") as file:
        file.seek(-4, 2)
        assert file.read() == b"end\n"
    assert webhdfs.ls("/logs") == ["/logs/a"]
    assert webhdfs.find("/") == ["/logs/a"]
    assert webhdfs.info("/logs/a")["size"] == len(data) + 4
    assert webhdfs.ukey("/logs/a")["length"] == 28
    assert webhdfs.content_summary("/logs")["fileCount"] == 1
    webhdfs.mkdir("/made")
    webhdfs.mv("/logs/a", "/made/b")
    webhdfs.cp_file("/made/b", "/made/c")
    assert webhdfs.cat_file("/made/c") == data + b"end\n"
    webhdfs.rm("/made", recursive=True)
    assert not webhdfs.exists("/made")
    assert webhdfs.home_directory() == "/user/me"
    with pytest.raises(FileNotFoundError):
        webhdfs.info("/none")
