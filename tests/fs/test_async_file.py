"""`open_async`: one snapshot read, one commit written, on any loop."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.backends import Counting, private_memory


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def site(request: Any) -> tuple[RollingFileSystem, str]:
    return RollingFileSystem(backend=Counting(private_memory(), suspends=request.param)), "/folder"


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
