"""A filesystem whose verbs are awaited: loops that follow one another, loops side by side, and its close."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from botocore.exceptions import HTTPClientError

from rollingfs import RollingFileSystem
from rollingfs.backend.objects.request_errors import LastingError, is_transient
from rollingfs.backend.objects.s3.botocore import from_botocore
from tests.support.clouds import new_google_bucket
from tests.support.servers import new_bucket

# a loop that ends without `close` leaves its connections to the garbage collection
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

VERBS: dict[str, Callable[[RollingFileSystem, str], Awaitable[object]]] = {
    "append": lambda fs, root: fs._append(f"{root}/a", b"y"),
    "cat": lambda fs, root: fs._cat_file(f"{root}/a"),
    "exists": lambda fs, root: fs._exists(f"{root}/none"),
    "ls": lambda fs, root: fs._ls(root, detail=False),
    "create": lambda fs, root: fs._create(f"{root}/b"),
    "pipe": lambda fs, root: fs._pipe_file(f"{root}/c", bytes(2**21)),
    "rm": lambda fs, root: fs._rm(f"{root}/c"),
    "close": lambda fs, root: fs.close(),
    "find": lambda fs, root: fs._find(root),
}


@pytest.fixture(params=["s3", pytest.param("gs", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest) -> tuple[RollingFileSystem, str]:
    """An asynchronous filesystem, and a bucket."""
    options = request.getfixturevalue("seaweed" if request.param == "s3" else "fake_google")
    bucket = new_bucket(options) if request.param == "s3" else new_google_bucket(options)
    return RollingFileSystem(request.param, options, asynchronous=True, skip_instance_cache=True), bucket


def test_asyncio_runs_may_share_a_filesystem_in_turn(place: Any) -> None:
    fs, root = place

    async def begin() -> None:
        await fs._pipe_file(f"{root}/a", b"x")
        assert not await fs._exists(f"{root}/none")

    asyncio.run(begin())
    found = {name: asyncio.run(verb(fs, root)) for name, verb in VERBS.items()}
    assert (found["append"], found["cat"], found["exists"]) == (1, b"xy", False)
    assert (found["ls"], found["find"]) == ([f"{root}/a"], [f"{root}/a", f"{root}/b"])


def test_loop_beside_an_active_one_is_refused_immediately(place: Any) -> None:
    fs, root = place
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert asyncio.run_coroutine_threadsafe(fs._ls(root), loop).result(60) == []
        with pytest.raises(OSError, match="in use on another event loop, which runs, so nothing was sent"):
            asyncio.run(fs._ls(root))
        with pytest.raises(OSError, match="in use on another event loop"):
            asyncio.run(fs.close())
        asyncio.run_coroutine_threadsafe(fs.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
    assert asyncio.run(fs._ls(root)) == []


def test_closed_filesystem_leaves_no_connection_and_opens_new_ones(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, root = place
    sessions: list[ClientSession] = []
    begin = ClientSession.__init__

    def begun(self: ClientSession, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        sessions.append(self)

    monkeypatch.setattr(ClientSession, "__init__", begun)

    async def work() -> list[bool]:
        async with fs as entered:
            assert entered is fs
            await fs._pipe_file(f"{root}/a", b"x")
        found = [bool(sessions) and all(session.closed for session in sessions)]
        assert await fs._ls(root, detail=False) == [f"{root}/a"]
        found.append(not sessions[-1].closed)
        await fs.close()
        return [*found, sessions[-1].closed]

    assert asyncio.run(work()) == [True] * 3


def test_blocking_and_disk_filesystems_can_be_closed_too() -> None:
    for protocol in ("memory", "file"):
        asyncio.run(RollingFileSystem(protocol, skip_instance_cache=True).close())


def test_a_closed_loop_is_no_failure_that_passes() -> None:
    found = from_botocore(HTTPClientError(error=RuntimeError("Event loop is closed")))
    assert isinstance(found, LastingError)
    assert not is_transient(found)
