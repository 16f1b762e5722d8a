"""The option ``--expect-mark``: a folder whose disk is not mounted is not taken for an empty folder."""

from __future__ import annotations

import asyncio
import errno
from typing import Annotated, Any

import typer

from rollingfs.cli.session import Place

ExpectMark = Annotated[
    str | None, typer.Option(metavar="FILE", help="Change nothing unless this file is in FOLDER: is it mounted?")
]
READING = ("GET", "HEAD", "OPTIONS")
"""Methods of HTTP without changes."""


def check_mark(place: Place, mark: str | None) -> None:
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


def guarded(app: Any, place: Place, mark: str | None) -> Any:
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
