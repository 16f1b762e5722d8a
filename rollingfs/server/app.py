"""The application: routes, who may use them, errors as problems, and the page of a path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from html import escape
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rollingfs.errors import visible
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.segment import Spot
from rollingfs.server import segment_routes, stream_routes  # noqa: F401 - the latter two define operations
from rollingfs.server.access import Tokens, access_of, check_browser, parse_tokens
from rollingfs.server.operations import OPERATIONS, Call, RestOperation, document, query_of, small_body
from rollingfs.server.problems import headers_of, json_answer, problem, status_of, text_of
from rollingfs.server.process import Limited, Limits
from rollingfs.server.served_store import ServedStore
from rollingfs.server.tails import Watches
from rollingfs.server.webhdfs import PREFIX, handle, remote_exception
from rollingfs.show.notebook import segment_html
from rollingfs.show.readable import size_text

READY_S = 5.0
CONDITIONS = ("If-Match", "If-None-Match", "If-Unmodified-Since")
"""Conditions of HTTP, which no commit checks: a change under one is refused."""
Endpoint = Callable[[Request], Awaitable[Response]]
Check = Callable[[], object]


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
    check
        Called before each change; raises `OSError` to refuse it.
    """

    def __init__(
        self, store: ServedStore, tokens: Tokens, limits: Limits, hosts: Iterable[str], check: Check | None
    ) -> None:
        self.store, self.tokens, self.hosts, self.check = store, tokens, tuple(hosts), check
        self.watches = Watches(self.store)
        hdfs = self.guarded(partial(handle, self.store, self.watches), remote_exception)
        routes = [
            *(
                Route(url.replace("}", ":below}"), self.guarded(partial(self.rest, methods)), methods=methods)
                for url, methods in OPERATIONS.items()
            ),
            Route(f"{PREFIX}{{path:path}}", hdfs, methods=("GET", "PUT", "POST", "DELETE")),
            Route("/oauth2/token", self.grant, methods=["POST"]),
            Route("/", self.guarded(partial(page, self.store), failed_page)),
            Route("/docs", self.guarded(docs_page, failed_page)),
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
            changes = request.method not in ("GET", "HEAD")
            try:
                if not self.tokens:
                    check_browser(request.headers, self.hosts)
                token = request.query_params.get("delegation") if failed is remote_exception else None
                request.state.access = access_of(self.tokens, request.headers, token)
                if changes:
                    await self._check_change(request.headers)
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:  # noqa: BLE001 - each error becomes an answer
                return failed(error, self.store.root, changes=changes)

        return run

    async def _check_change(self, headers: Headers) -> None:
        if (name := next((one for one in CONDITIONS if one in headers), None)) is not None:
            text = f"{name} is no condition of a change here (Expected-Offset is); nothing was changed"
            raise HTTPException(501, text)
        try:
            if self.check is not None:
                await asyncio.to_thread(self.check)
        except OSError as error:
            raise HTTPException(503, error.strerror) from error

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
        return Response(status_code=204) if done is None else json_answer(self.store.shown(done))

    async def grant(self, request: Request) -> Response:
        """Let Hadoop's client, which has its token as the secret of OAuth 2, send it as a bearer's."""
        secret = QueryParams(await small_body(request)).get("client_secret", "")
        access_of(self.tokens, Headers({"Authorization": f"Bearer {secret}"}))
        return json_answer({"access_token": secret, "token_type": "bearer", "expires_in": 3600})

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
        return PlainTextResponse(TEMPLATES.get_template("metrics.txt").render(counts))

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return json_answer(document(OPERATIONS))


def make_app(
    fs: RollingFileSystem,
    root: str,
    *,
    tokens: Iterable[str] = (),
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    check: Check | None = None,
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
    check
        Called before each change; raises `OSError` to refuse it.
    """
    limits = limits or Limits()
    store = ServedStore(fs, root, limits.body_bytes)
    return Gateway(store, parse_tokens(tokens), limits, hosts, check).limited


# -- the page of a path, for people --------------------------------------------------------------------------

LAST_BYTES = 8 * 1024
POLICY = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'"
PROTECTION = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
TEMPLATES.finalize = lambda value: value if isinstance(value, Markup) else visible(str(value))
TEMPLATES.filters["size"] = size_text
TEMPLATES.filters["quoted"] = partial(quote, errors="surrogateescape")


def _html(title: str, status: int = 200, headers: Any = None, **shown: Any) -> HTMLResponse:
    text = TEMPLATES.get_template("page.html").render(title=title, **shown)
    return HTMLResponse(text, status, {**(headers or {}), **PROTECTION})


async def page(store: ServedStore, request: Request) -> HTMLResponse:
    """Return the page of a path."""
    path = query_of(request).get("path", request.state.access.prefix).strip("/")
    request.state.access.check(path, writes=False)
    place = store.place(path)
    info = {"type": "directory"} if not path else await store.fs._info(place)
    found = await (_folder(store, place) if info["type"] == "directory" else _segment(store, place))
    parts = path.split("/") if path else []
    steps = [(part, "/".join(parts[: at + 1])) for at, part in enumerate(parts)]
    return _html(path or "rollingfs", steps=steps, path=path, **found)


def failed_page(error: Exception, root: str, *, changes: bool = False) -> HTMLResponse:
    """Return a page with an error."""
    return _html("rollingfs", status_of(error), headers_of(error), error=text_of(error, root))


async def docs_page(request: Request) -> HTMLResponse:
    """Return all operations."""
    return _html("operations", operations=OPERATIONS)


async def _folder(store: ServedStore, place: str) -> dict[str, Any]:
    entries = await store.listed(place)
    found: dict[str, Any] = store.shown({"entries": entries, **(await store.retention(place) if entries else {})})
    return found


async def _segment(store: ServedStore, place: str) -> dict[str, Any]:
    view = await store.look(place)
    first = max(view.start, view.length - LAST_BYTES)
    data = b"".join([piece async for piece in store.pieces(view, first, view.length)])
    skipped = data.find(b"\n") + 1 if first > view.start else 0
    whole = len(data) if view.sealed else data.rfind(b"\n") + 1
    text = data[skipped:whole].decode(errors="replace").removesuffix("\n")
    facts = segment_html(view, time()).replace(escape(place), escape(store.name(place)))
    spot = Spot.at(view, first + whole, data[:whole])
    return {"view": view, "map": facts, "lines": text.split("\n") if whole > skipped else [], "spot": spot}
