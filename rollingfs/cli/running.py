"""Commands that run until they are stopped: SIGTERM and Ctrl-C, and the option ``--expect-mark``."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Annotated, Any

import typer

from rollingfs.cli.session import StorePath

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.2
"""Time between two looks during a pause."""


class Stop:
    """Whether the command is to end. A second signal ends it at once, as Ctrl-C ends any command."""

    def __init__(self) -> None:
        self.is_wanted = False

    def __call__(self) -> bool:
        return self.is_wanted

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than the command is to go on."""
        deadline_s = time.monotonic() + seconds
        while not self.is_wanted and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Turn the first SIGTERM or Ctrl-C into a wish to end. Only the main thread can."""
    stop = Stop()
    with handling(stop._on_signal):
        yield stop


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler take SIGTERM and Ctrl-C. Only the main thread can."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


ExpectMark = Annotated[
    str | None, typer.Option(metavar="FILE", help="Change nothing unless this file is in FOLDER: is it mounted?")
]
READING = ("GET", "HEAD", "OPTIONS")
"""Methods of HTTP without changes."""


def check_mark(place: StorePath, mark: str | None) -> None:
    """Refuse a folder that lacks the file by which its store is known.

    Raises
    ------
    FileNotFoundError
        It is missing, as where a disk is not mounted.
    """
    if mark is None or place.fs.isfile(path := f"{place.path.rstrip('/')}/{mark}"):
        return
    why = "The store is not there (its mark is missing): is it mounted? Nothing was changed"
    raise FileNotFoundError(errno.ENOENT, why, path)


def guarded(app: Any, place: StorePath, mark: str | None) -> Any:
    """Return an ASGI application that answers 503 to requests which may change something while the mark is missing."""
    if mark is None:
        return app

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] not in READING:
            try:
                await asyncio.to_thread(check_mark, place, mark)
            except OSError as error:
                headers = [(b"content-type", b"text/plain; charset=utf-8")]
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send({"type": "http.response.body", "body": f"{error}\n".encode(errors="replace")})
                return
        await app(scope, receive, send)

    return checked
