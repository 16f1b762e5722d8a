"""Stores that look first and act then, the mistake that only a race finds; and one that compares bare ETags."""

import asyncio
import contextlib
import http.client
import random
import time
from typing import Any

from rollingfs.backend import shared_errors
from tests.support.backends import Scripted, private_memory
from tests.support.proxy import Handler

GAP_S = 0.05
"""Time between the look and the act."""
CONDITIONS = ("if-match", "if-none-match")


def careless(verb: str, *, suspends: bool = True, share: float = 1.0, gap_s: float = GAP_S) -> Scripted:
    """A store in memory that looks first and acts then in one verb, ``"create"`` or ``"replace"``.

    Parameters
    ----------
    share
        The share of races where it does: as of the races of a fast store, in which two requests meet by chance.
    """
    backend = Scripted(private_memory(), suspends=suspends, must_race=True)
    inner = backend.inner
    fate: dict[tuple[str, ...], bool] = {}

    async def look_first(path: str, data: Any, *token: str) -> str:
        if not fate.setdefault((path, *token), random.random() < share):
            return await getattr(inner, verb)(path, data, *token)
        if token:
            shared_errors.check_token(path, (await inner.stat(path)).token, *token)
        else:
            with contextlib.suppress(FileNotFoundError):
                await inner.stat(path)
                raise shared_errors.name_taken(path)
        if suspends:
            await asyncio.sleep(gap_s)
        else:
            time.sleep(gap_s)
        await inner.delete([path])
        return await inner.create(path, data)

    backend.plan(verb, instead=look_first, times=None, probes=True)
    return backend


class CarelessHandler(Handler):
    """Takes the condition off a PUT, and decides it by a HEAD before; for a server that checks no signatures (moto)."""

    def _forward(self) -> None:
        condition = next((name for name in CONDITIONS if self.command == "PUT" and self.headers.get(name)), None)
        if condition is None:
            super()._forward()
            return
        wanted = self.headers[condition]
        del self.headers[condition]
        found = self._etag()
        if (found is not None) if condition == "if-none-match" else found != wanted:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = b"<Error><Code>PreconditionFailed</Code><Message>looked first</Message></Error>"
            self._answer(412, [("Content-Type", "application/xml")], text)
            return
        time.sleep(GAP_S)
        super()._forward()

    def _etag(self) -> str | None:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=60)  # type: ignore[attr-defined]
        with contextlib.closing(connection) as upstream:
            upstream.request("HEAD", self.path, headers={"Authorization": self.headers.get("Authorization", "")})
            answer = upstream.getresponse()
            return answer.getheader("ETag") if answer.status == 200 else None

    do_PUT = _forward  # noqa: N815 - http.server's name


class BareTagHandler(Handler):
    """Compares the ETag of a condition without its quotes, as Ceph RGW 16.2 and 18.2 do; for moto."""

    def _forward(self) -> None:
        if self.command == "PUT" and (wanted := self.headers.get("If-Match")):
            del self.headers["If-Match"]
            self.headers["If-Match"] = f'"{wanted}"'  # so a quoted one is never equal
        super()._forward()

    do_PUT = _forward  # noqa: N815 - http.server's name
