"""The application: routes, who may use them, and errors as problems."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.server import page, segments, streams  # noqa: F401 - the latter two define operations
from rollingfs.server.access import Tokens, check_browser
from rollingfs.server.limits import Limited, Limits
from rollingfs.server.openapi import document
from rollingfs.server.operations import OPERATIONS, Call, Operation, parameters
from rollingfs.server.problems import Refused, problem
from rollingfs.server.store import Store
from rollingfs.server.tails import Watches
from rollingfs.server.webhdfs import PREFIX, handle, remote_exception

READY_S = 5.0
Endpoint = Callable[[Request], Awaitable[Response]]


class Gateway:
    """A server's parts, which requests share.

    Parameters
    ----------
    hosts
        The names by which browsers may call a server without tokens; none for any.
    """

    def __init__(self, fs: RollingFileSystem, root: str, tokens: Tokens, limits: Limits, hosts: Iterable[str]) -> None:
        self.store, self.tokens, self.hosts = Store(fs, root), tokens, tuple(hosts)
        self.watches = Watches(self.store)
        kinds, methods = {one.kind for one in OPERATIONS}, {one.method for one in OPERATIONS}
        routes = [
            Route(f"/v1/{kind}{tail}", self.guarded(self.rest), methods=methods)
            for kind in kinds
            for tail in ("", ":{rest:path}", "/{rest:path}")
        ]
        routes += [
            Route(PREFIX + "{rest:path}", self.guarded(partial(handle, self.store), remote_exception), methods=methods),
            Route("/", self.guarded(partial(page.page, self.store), page.failed)),
            Route("/docs", self.guarded(page.docs, page.failed)),
            *(Route(f"/{name}", FileResponse(Path(__file__).with_name(name))) for name in ("page.css", "page.js")),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.guarded(self.metrics)),
            Route("/openapi.json", self.guarded(self.openapi)),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self.refused}, lifespan=self._life)
        self.limited = Limited(app, limits)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        # the calls of a disk run in threads; some of them wait for memory that others hold
        threads = ThreadPoolExecutor(self.limited.limits.requests + 32, thread_name_prefix="rollingfs-serve")
        asyncio.get_running_loop().set_default_executor(threads)
        yield

    def guarded(self, endpoint: Endpoint, failed: Callable[..., Response] = problem) -> Endpoint:
        """An endpoint whose errors become answers, and which only those reach who may."""

        async def run(request: Request) -> Response:
            try:
                if not self.tokens:
                    check_browser(request.headers, self.hosts)
                request.state.access = self.tokens.access(request.headers, delegation(request))
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:  # noqa: BLE001 - each error becomes an answer
                return failed(error, self.store.root, changes=request.method not in ("GET", "HEAD"))

        return run

    async def refused(self, request: Request, error: Exception) -> Response:
        """The answer for a path or method that there is not."""
        assert isinstance(error, HTTPException)
        return problem(Refused(error.status_code, str(error.detail), dict(error.headers or {})), self.store.root)

    async def rest(self, request: Request) -> Response:
        """An operation of REST."""
        found, path = self._operation(request)
        given = await parameters(request, found.params)
        call = Call(request, self.store, self.watches, request.state.access, path, found.changes)
        done = await found.run(call, **given)
        if found.changes:
            self.watches.nudge(path)
        if isinstance(done, Response):
            return done
        return Response(status_code=204) if done is None else JSONResponse(self.store.shown(done))

    def _operation(self, request: Request) -> tuple[Operation, str]:
        """The operation that a URL means, and the path in it; a colon in a path is written as %3A.

        Raises
        ------
        Refused
            There is none, or not by this method.
        """
        raw = request.scope["raw_path"].partition(b"?")[0].decode("latin-1").removeprefix(request.scope["root_path"])
        kind, slash, rest = raw.removeprefix("/v1/").partition("/")
        if slash:
            text, _, verb = rest.rpartition(":") if ":" in rest else (rest, "", "")
        else:
            (kind, _, verb), text = kind.partition(":"), ""
        has_path = bool(text.strip("/"))
        found = {one.method: one for one in OPERATIONS if (one.kind, one.has_path, one.verb) == (kind, has_path, verb)}
        method = "GET" if request.method == "HEAD" else request.method
        if not found:
            raise Refused(404, "there is no such operation; /openapi.json has all of them")
        if method not in found:
            raise Refused(405, "not by this method", {"Allow": ", ".join(sorted(found))})
        return found[method], unquote(text, errors="surrogateescape").strip("/")

    # -- for operators -------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Say that the process answers."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """Say whether the store answers, and the server does not stop."""
        if self.limited.stopping.is_set():
            return PlainTextResponse("stopping\n", 503)
        try:
            async with asyncio.timeout(READY_S):
                await self.store.fs._exists(self.store.root or "/")
        except (OSError, ValueError):
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """What the filesystem and the server have done, for Prometheus."""
        from rollingfs.server.metrics import exposition

        request.state.access.check("", writes=False)
        own = {"requests_running": self.limited.running, "tails_running": self.limited.following}
        return PlainTextResponse(exposition(self.store.fs.metrics(), own), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        return JSONResponse(document(OPERATIONS))


def delegation(request: Request) -> str | None:
    """The token in a URL, which only WebHDFS may have there."""
    return request.query_params.get("delegation") if request.url.path.startswith(f"{PREFIX}/") else None


def make_app(
    fs: RollingFileSystem,
    root: str,
    *,
    tokens: Iterable[str] = (),
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
) -> Limited:
    """An ASGI application that serves the segments below a root.

    Parameters
    ----------
    root
        The URL or path that clients see as ``/``.
    tokens
        Lines ``TOKEN [read|write] [PREFIX]``; without any, every client may do everything.
    hosts
        The names by which browsers may call a server without tokens; none for any.
    """
    gateway = Gateway(fs, root, Tokens(tokens), limits or Limits(), hosts)
    gateway.limited.on_stop = gateway.watches.stop
    return gateway.limited
