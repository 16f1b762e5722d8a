"""`open_async`: one snapshot read, one commit written, on any loop."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.servers import new_bucket

# nobody can close what s3fs has opened on the loop of a test once that loop is closed
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(params=["file", "memory", "s3", "s3 asynchronous"])
def site(request: Any, tmp_path: Path) -> tuple[RollingFileSystem, str]:
    if request.param.startswith("s3"):
        options = request.getfixturevalue("seaweed")
        loops = {"asynchronous": True, "skip_instance_cache": True} if "asynchronous" in request.param else {}
        return RollingFileSystem("s3", options, **loops), new_bucket(options)
    return RollingFileSystem(request.param), str(tmp_path / uuid.uuid4().hex)


def test_what_is_written_is_committed_by_close_and_read_in_parts(site: Any) -> None:
    fs, root = site

    async def main() -> None:
        async with await fs.open_async(f"{root}/x", "wb") as file:
            assert await file.write(b"hello") == 5
            assert not await fs._exists(f"{root}/x")
        async with await fs.open_async(f"{root}/x", "ab") as file:
            await file.write(b" ")
            await file.write(b"world")
        async with await fs.open_async(f"{root}/x") as file:
            await fs._append(f"{root}/x", b"!")
            assert file.size == 11
            assert [await file.read(5), await file.read(), await file.read()] == [b"hello", b" world", b""]
        async with await fs.open_async(f"{root}/new", "ab") as file:
            pass
        assert await fs._cat_file(f"{root}/new") == b""

    asyncio.run(main())


def test_an_error_commits_nothing(site: Any) -> None:
    fs, root = site

    async def main() -> None:
        await fs._pipe_file(f"{root}/x", b"old")
        for mode in ("wb", "ab"):
            with contextlib.suppress(KeyError):
                async with await fs.open_async(f"{root}/x", mode) as file:
                    await file.write(b"new")
                    raise KeyError
        assert await fs._cat_file(f"{root}/x") == b"old"
        with pytest.raises(FileExistsError):
            await fs.open_async(f"{root}/x", "xb")
        with pytest.raises(FileNotFoundError):
            await fs.open_async(f"{root}/missing")
        for mode in ("r", "r+b"):
            with pytest.raises(ValueError, match="no mode"):
                await fs.open_async(f"{root}/x", mode)

    asyncio.run(main())


def test_a_file_that_is_let_go_says_what_is_lost() -> None:
    fs = RollingFileSystem("memory")

    async def main() -> None:
        file = await fs.open_async(f"/{uuid.uuid4().hex}", "wb")
        await file.write(b"lost")

    with pytest.warns(ResourceWarning, match="4 bytes"):
        asyncio.run(main())
