"""`open_async`: one snapshot read, one commit written, on any loop."""

import asyncio
import contextlib
import errno
from functools import partial
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.segment.write import ingest
from tests.support.backends import Scripted, private_memory, raises
from tests.support.places import new_folder

# nobody can close what s3fs has opened on the loop of a test once that loop is closed
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(params=["file", "memory", "s3", "s3 asynchronous"])
def site(request: Any) -> tuple[RollingFileSystem, str]:
    kind, _, loops = request.param.partition(" ")
    folder = new_folder(kind, request)
    return folder.open(skip_instance_cache=True, asynchronous=bool(loops)), folder.path


def test_written_data_are_committed_by_close_and_read_partly(site: Any) -> None:
    fs, root = site
    path = f"{root}/x"

    async def main() -> None:
        async with await fs.open_async(path, "wb") as file:
            assert await file.write(b"hello") == 5
            assert not await fs._exists(path)
        async with await fs.open_async(path, "ab") as file:
            await file.write(b" ")
            await file.write(b"world")
        async with await fs.open_async(path) as file:
            await fs._append(path, b"!")
            assert file.size == 11
            assert [await file.read(5), await file.read(), await file.read()] == [b"hello", b" world", b""]
        await (await fs.open_async(f"{root}/new", "ab")).close()
        assert await fs._cat_file(f"{root}/new") == b""

    asyncio.run(main())


def test_an_error_commits_nothing(site: Any) -> None:
    fs, root = site
    path = f"{root}/x"

    async def main() -> None:
        await fs._pipe_file(path, b"old")
        for mode in ("wb", "ab"):
            with contextlib.suppress(KeyError):
                async with await fs.open_async(path, mode) as file:
                    await file.write(b"new")
                    raise KeyError
        assert await fs._cat_file(path) == b"old"
        for name, mode, error in (("x", "xb", FileExistsError), ("missing", "rb", FileNotFoundError)):
            with pytest.raises(error):
                await fs.open_async(f"{root}/{name}", mode)
        for mode in ("r", "r+b"):
            with pytest.raises(ValueError, match="no mode"):
                await fs.open_async(path, mode)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_failed_or_cancelled_write_commits_nothing(how: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 10)
    backend = Scripted(private_memory(), suspends=how == "cancelled")
    fs = RollingFileSystem(backend=backend, skip_instance_cache=True)

    async def main() -> None:
        file = await fs.open_async("/x", "wb")
        await file.write(b"first" * 10)
        stop = partial(asyncio.sleep, 60) if how == "cancelled" else raises(OSError(errno.EIO, "the store failed"))
        backend.plan("upload.write", before=stop)
        with pytest.raises((OSError, TimeoutError)):
            await asyncio.wait_for(file.write(b"second" * 10), 0.1 if how == "cancelled" else None)
        for again in (partial(file.write, b"second" * 10), file.close):
            with pytest.raises(OSError, match="nothing of it is written"):
                await again()
        assert file.closed
        assert not await fs._exists("/x")
        assert not [path for path in backend.inner.fs.store if "/0" in path]

    asyncio.run(main())


def test_file_that_is_let_go_says_what_is_lost() -> None:
    fs = RollingFileSystem("memory")

    async def main() -> None:
        file = await fs.open_async("/lost", "wb")
        await file.write(b"lost")

    with pytest.warns(ResourceWarning, match="4 bytes"):
        asyncio.run(main())
