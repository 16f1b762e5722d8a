"""Over any filesystem of fsspec: the whole life of a segment, or reading and a refusal before the first write."""

import functools
import http.server
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec import AbstractFileSystem
from fsspec.generic import GenericFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.ftp import FTPFileSystem

from rollingfs import RollingFileSystem
from rollingfs.errors import UnsafeBackendError
from tests.support.examples import slowly
from tests.support.proxy import in_background

BIG = os.urandom(600_000)
"""A chunk beside the inline tail."""


def _folder_over_arrow(folder: Path) -> AbstractFileSystem:
    arrow = pytest.importorskip("fsspec.implementations.arrow")
    from pyarrow.fs import LocalFileSystem as ArrowDisk, SubTreeFileSystem

    (folder / "below").mkdir()
    return DirFileSystem("below", arrow.ArrowFSWrapper(SubTreeFileSystem(str(folder), ArrowDisk())))


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[AbstractFileSystem]:
    authorizers = pytest.importorskip("pyftpdlib.authorizers")
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    class Handler(FTPHandler):
        authorizer = authorizers.DummyAuthorizer()

    Handler.authorizer.add_user("user", "password", str(tmp_path), perm="elradfmwMT")
    server = ThreadedFTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"timeout": 0.05, "handle_exit": False}, daemon=True)
    thread.start()
    fs = FTPFileSystem("127.0.0.1", server.address[1], "user", "password", skip_instance_cache=True)
    try:
        yield fs
    finally:
        fs.ftp.close()
        server.close_all()
        thread.join(10)


@pytest.fixture
def sftp(tmp_path: Path) -> Iterator[AbstractFileSystem]:
    pytest.importorskip("paramiko")
    from fsspec.implementations.sftp import SFTPFileSystem

    from tests.support.sftp import serving

    with serving(tmp_path) as port:
        fs = SFTPFileSystem("127.0.0.1", port=port, username="user", password="password", skip_instance_cache=True)
        yield fs
        fs.client.close()


@pytest.mark.filterwarnings("ignore:The async(ore|hat) module is deprecated:DeprecationWarning")  # of pyftpdlib
@pytest.mark.parametrize(
    "make", [_folder_over_arrow, "ftp", *slowly("sftp")], ids=["a folder over arrow", "ftp", "sftp"]
)
def test_a_segment_lives_its_whole_life(request, tmp_path, make):
    below = request.getfixturevalue(make) if isinstance(make, str) else make(tmp_path)
    fs, reader = (RollingFileSystem(fs=below, single_writer=True, skip_instance_cache=True) for _ in range(2))
    path, whole = "/a/log" if isinstance(make, str) else "a/log", b"one two " + BIG
    fs.pipe_file(path, b"one ")
    fs.append(path, b"two ")
    fs.append(path, BIG)
    assert reader.cat_file(path) == whole
    assert reader.cat_ranges([path] * 3, [0, 2, 599_000], [4, 12, None]) == [whole[:4], whole[2:12], whole[599_000:]]
    with reader.open(path) as file:
        assert file.seek(1000) == 1000
        assert file.read(10) == whole[1000:1010]
    assert [info["size"] for info in reader.ls(path.removesuffix("/log"), detail=True)] == [len(whole)]
    fs.truncate(path, 500)
    fs.seal(path)
    fs.mv(path, f"{path}-moved")
    fs.cp_file(f"{path}-moved", f"{path}-copy")
    assert reader.cat_file(f"{path}-copy") == whole[500:]
    assert not reader.exists(path)
    fs.rm(path.removesuffix("/log"), recursive=True)
    assert reader.find(path.removesuffix("/log")) == []


def _log(folder: Path) -> bytes:
    disk = RollingFileSystem("file", sync=False)
    disk.pipe_file(f"{folder}/log", b"one ")
    disk.append(f"{folder}/log", BIG)
    return b"one " + BIG


def _reads_and_refuses(fs: RollingFileSystem, path: str, new: str, whole: bytes) -> None:
    assert fs.cat_file(path) == whole
    assert fs.cat_file(path, 5, 9) == whole[5:9]
    with fs.open(path) as file:
        assert file.read() == whole
    for write in (lambda: fs.append(path, b"x"), lambda: fs.pipe_file(new, b"x"), lambda: fs.rm(path)):
        with pytest.raises(UnsafeBackendError, match=r"cannot delete a file.*nothing was written"):
            write()
    assert fs.cat_file(path) == whole


def test_an_archive_is_read_and_never_written(tmp_path):
    whole = _log(tmp_path / "log.d")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for file in (tmp_path / "log.d").rglob("*"):
            archive.write(file, file.relative_to(tmp_path / "log.d"))
    before = (tmp_path / "a.zip").read_bytes()
    fs = RollingFileSystem("zip", {"fo": f"{tmp_path}/a.zip"}, single_writer=True, skip_instance_cache=True)
    _reads_and_refuses(fs, "log", "new", whole)
    assert (tmp_path / "a.zip").read_bytes() == before
    new = RollingFileSystem("zip", {"fo": f"{tmp_path}/b.zip", "mode": "w"}, single_writer=True)
    with pytest.raises(UnsafeBackendError, match="cannot delete a file"):
        new.pipe_file("new", b"x")
    assert new._backend.fs.zip.namelist() == []


def test_web_server_without_ranges_is_read_and_never_written(tmp_path):
    pytest.importorskip("aiohttp")
    whole, handler = _log(tmp_path), functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    fs = RollingFileSystem("http", single_writer=True, skip_instance_cache=True)
    with in_background(http.server.ThreadingHTTPServer, handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        _reads_and_refuses(fs, f"{url}/log", f"{url}/new", whole)


def test_generic_filesystem_of_fsspec_is_read_and_never_written(tmp_path):
    whole = _log(tmp_path)
    fs = RollingFileSystem(fs=GenericFileSystem(default_method="current"), single_writer=True)
    _reads_and_refuses(fs, f"file://{tmp_path}/log", f"file://{tmp_path}/new", whole)
    assert not list(tmp_path.glob("new*"))
