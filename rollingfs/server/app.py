"""The application: routes, who may use them, and errors as problems."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.server import page, segment_routes, stream_routes  # noqa: F401 - the latter two define operations
from rollingfs.server.access import Tokens, check_browser
from rollingfs.server.operations import OPERATIONS, Call, RestOperation, document, small_body
from rollingfs.server.problems import Json, problem
from rollingfs.server.process import Limited, Limits
from rollingfs.server.served_store import ServedStore
from rollingfs.server.tails import Watches
from rollingfs.server.webhdfs import PREFIX, handle, remote_exception

READY_S = 5.0
CONDITIONS = ("If-Match", "If-None-Match", "If-Unmodified-Since")
Endpoint = Callable[[Request], Awaitable[Response]]


class _Path(Convertor[str]):
    """A path below the root, as it stands in a URL: what follows a colon is a verb."""

    regex = "/*[^:/][^:]*"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape").strip("/")


register_url_convertor("below", _Path())


class Gateway:
    """A server's parts, which requests share.

    Parameters
    ----------
    hosts
        The names by which browsers may call a server without tokens; empty for any.
    """

    def __init__(self, fs: RollingFileSystem, root: str, tokens: Tokens, limits: Limits, hosts: Iterable[str]) -> None:
        self.store, self.tokens, self.hosts = ServedStore(fs, root, limits.body_bytes), tokens, tuple(hosts)
        self.watches = Watches(self.store)
        hdfs = self.guarded(partial(handle, self.store, self.watches), remote_exception)
        routes = [
            *(
                Route(url.replace("}", ":below}"), self.guarded(partial(self.rest, methods)), methods=methods)
                for url, methods in OPERATIONS.items()
            ),
            Route(f"{PREFIX}{{path:path}}", hdfs, methods=("GET", "PUT", "POST", "DELETE")),
            Route("/oauth2/token", self.grant, methods=["POST"]),
            Route("/", self.guarded(partial(page.page, self.store), page.failed)),
            Route("/docs", self.guarded(page.docs, page.failed)),
            *(Route(f"/{name}", FileResponse(Path(__file__).with_name(name))) for name in ("page.css", "page.js")),
            Route("/healthz", PlainTextResponse("ok\n")),
            Route("/readyz", self.ready),
            Route("/metrics", self.guarded(self.metrics)),
            Route("/openapi.json", self.guarded(self.openapi)),
        ]
        self.app = Starlette(
            routes=routes, exception_handlers={HTTPException: lambda _, error: problem(error)}, lifespan=self._life
        )
        self.limited = Limited(self.asked, limits, self.watches.stop)

    async def asked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route by the path as it was sent, so that no quoted character can make a verb or a part of a path."""
        raw = scope.get("raw_path")
        await self.app(scope if raw is None else {**scope, "path": raw.decode("latin-1")}, receive, send)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        # the calls of a disk run in threads; some of them wait for memory that others hold
        threads = ThreadPoolExecutor(self.limited.limits.requests + 32, thread_name_prefix="rollingfs-serve")
        asyncio.get_running_loop().set_default_executor(threads)
        yield

    def guarded(self, endpoint: Endpoint, failed: Callable[..., Response] = problem) -> Endpoint:
        """Return an endpoint whose errors become answers, and which only those reach who may."""

        async def run(request: Request) -> Response:
            try:
                if not self.tokens.known:
                    check_browser(request.headers, self.hosts)
                token = request.query_params.get("delegation") if failed is remote_exception else None
                request.state.access = self.tokens.access(request.headers, token)
                _check_conditions(request)
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:  # noqa: BLE001 - each error becomes an answer
                return failed(error, self.store.root, changes=request.method not in ("GET", "HEAD"))

        return run

    async def rest(self, methods: Mapping[str, RestOperation], request: Request) -> Response:
        """Return an operation of REST."""
        found = methods["GET" if request.method == "HEAD" else request.method]
        path = request.path_params.get("path", "")
        given = await found.given(request)
        call = Call(request, self.store, self.watches, request.state.access, path, found.changes)
        done = await found.run(call, **given)
        if found.changes:
            self.watches.nudge(call.place())
        if isinstance(done, Response):
            return done
        return Response(status_code=204) if done is None else Json(self.store.shown(done))

    async def grant(self, request: Request) -> Response:
        """Let Hadoop's client, which has its token as the secret of OAuth 2, send it as a bearer's."""
        secret = QueryParams(await small_body(request)).get("client_secret", "")
        self.tokens.access(Headers({"Authorization": f"Bearer {secret}"}))
        return Json({"access_token": secret, "token_type": "bearer", "expires_in": 3600})

    # -- for operators -------------------------------------------------------------------------------------

    async def ready(self, request: Request) -> Response:
        """Say whether the store answers, and the server does not stop."""
        said = "stopping" if self.limited.is_stopping else "ok"
        try:
            async with asyncio.timeout(READY_S):
                await self.store.fs._exists(self.store.root or "/")
        except (OSError, ValueError):
            said = "the store does not answer"
        return PlainTextResponse(f"{said}\n", 200 if said == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        """Return the counts of the filesystem and of the server, for Prometheus."""
        request.state.access.check("", writes=False)
        counts = {"metrics": self.store.fs.metrics(), "running": self.limited.running}
        return PlainTextResponse(page.TEMPLATES.get_template("metrics.txt").render(counts))

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return Json(document(OPERATIONS))


def _check_conditions(request: Request) -> None:
    """Refuse a change under a condition of HTTP, which no commit checks.

    Raises
    ------
    HTTPException
        It has one.
    """
    name = next((one for one in CONDITIONS if one in request.headers), None)
    if name is not None and request.method not in ("GET", "HEAD"):
        raise HTTPException(501, f"{name} is no condition of a change here (Expected-Offset is); nothing was changed")


def make_app(
    fs: RollingFileSystem,
    root: str,
    *,
    tokens: Iterable[str] = (),
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
) -> Limited:
    """Return an ASGI application that serves the segments below a root.

    Parameters
    ----------
    root
        The URL or path that clients see as ``/``.
    tokens
        Lines ``TOKEN [read|write] [PREFIX]``; without tokens, every client may do everything.
    hosts
        The names by which browsers may call a server without tokens; empty for any.
    """
    return Gateway(fs, root, Tokens(tokens), limits or Limits(), hosts).limited
