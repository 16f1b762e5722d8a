"""Pages for people: folders, a segment with its map, and its last lines as they come. No build step, no other host."""

from __future__ import annotations

from functools import partial
from html import escape
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from rollingfs.errors import visible
from rollingfs.segment.read.spot import Spot
from rollingfs.server.operations import OPERATIONS, query_of
from rollingfs.server.problems import headers_of, status_of, text_of
from rollingfs.server.served_store import ServedStore
from rollingfs.show.notebook import segment_html
from rollingfs.show.readable import size_text

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


def failed(error: Exception, root: str, *, changes: bool = False) -> HTMLResponse:
    """Return a page with an error."""
    return _html("rollingfs", status_of(error), headers_of(error), error=text_of(error, root))


async def docs(request: Request) -> HTMLResponse:
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
