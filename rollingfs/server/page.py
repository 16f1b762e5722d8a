"""Pages for people: folders, a segment with its map, and its last lines as they come. No build step, no other host."""

from __future__ import annotations

import inspect
from html import escape
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse

from rollingfs.errors import visible
from rollingfs.server.operations import OPERATIONS
from rollingfs.server.problems import status_of, text_of
from rollingfs.server.store import Store
from rollingfs.show.readable import size_text

LAST_BYTES = 8 * 1024
POLICY = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'"
PROTECTION = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}


async def page(store: Store, request: Request) -> HTMLResponse:
    """What lies at a path."""
    path = request.query_params.get("path", request.state.access.prefix).strip("/")
    request.state.access.check(path, writes=False)
    place = store.place(path)
    info = {"type": "directory"} if not path else await store.fs._info(place)
    body = await (_folder(store, path, place) if info["type"] == "directory" else _segment(store, path))
    parts = path.split("/") if path else []
    steps = [("rollingfs", ""), *((part, "/".join(parts[: at + 1])) for at, part in enumerate(parts))]
    title = " / ".join(_link(name, target) for name, target in steps)
    return _html(path or "rollingfs", title, body)


def failed(error: Exception, root: str, *, changes: bool = False) -> HTMLResponse:
    """A page that says what went wrong."""
    said = f"<p class=error>{_text(text_of(error, root))}</p>"
    return _html("rollingfs", _link("rollingfs", ""), said, status_of(error), getattr(error, "headers", None))


async def docs(request: Request) -> HTMLResponse:
    """All operations."""
    cells = [(one.method, one.url, (inspect.getdoc(one.run) or "").partition("\n")[0]) for one in OPERATIONS]
    rows = ["<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in cells]
    note = '<p>All parameters are in <a href="/openapi.json">the OpenAPI document</a>.</p>'
    return _html("operations", f"{_link('rollingfs', '')} / operations", f"{note}<table>{''.join(rows)}</table>")


def _html(title: str, heading: str, body: str, status: int = 200, headers: Any = None) -> HTMLResponse:
    head = f"<!doctype html><meta charset=utf-8><title>{_text(title)}</title><link rel=stylesheet href=/page.css>"
    return HTMLResponse(f"{head}<h1>{heading}</h1>{body}", status, {**(headers or {}), **PROTECTION})


def _text(value: Any) -> str:
    return escape(visible(str(value)))


def _link(name: str, path: str) -> str:
    return f'<a href="/?path={quote(path, safe="/")}">{_text(name)}</a>'


async def _folder(store: Store, path: str, place: str) -> str:
    rows = []
    for one in await store.listed(place):
        name = store.name(one["name"])
        cells = [_link(name.rpartition("/")[2] + "/" * (one["type"] == "directory"), name)]
        if "error" in one:
            cells.append(f"<span class=error>{_text(store.name(one['error']))}</span>")
        elif one["type"] != "directory":
            state = "sealed" if one.get("sealed") else "open"
            numbers = (size_text(one["size"]), f"{one.get('start_offset', 0):,}", f"{one.get('length', 0):,}")
            cells += [state, *numbers, f"{one.get('chunks', 0):,}"]
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    head = "".join(f"<th>{name}</th>" for name in ("name", "state", "size", "start", "length", "chunks"))
    stream = await _retention(store, place) if rows else "<p>Nothing lies here.</p>"
    return f"{stream}<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


async def _retention(store: Store, place: str) -> str:
    found = await store.fs.stream(place)._get_retention()
    return "" if found is None else f"<p>A stream; its retention: {_text(found.as_fields())}</p>"


async def _segment(store: Store, path: str) -> str:
    handle = await store.fs._segment(store.place(path))
    view = await store.look(path)
    first = max(view.start, view.length - LAST_BYTES)
    data = b"".join([piece async for piece in store.pieces(view, first, view.length)])
    skipped = data.find(b"\n") + 1 if first > view.start else 0
    whole = len(data) if view.sealed else data.rfind(b"\n") + 1
    lines = data[skipped:whole].decode(errors="replace")
    tail = f"/v1/segments/{quote(path, safe='/')}:tail?offset={first + whole}"
    facts = handle._repr_html_().replace(_text(view.path), _text(path))
    return (
        f'{facts}<p><a href="/v1/segments/{quote(path, safe="/")}">download</a> · '
        f"<span id=state>{_text(view.state)}</span></p>"
        f'<pre id=log data-tail="{escape(tail)}">{_lines(lines)}</pre><script src="/page.js"></script>'
    )


def _lines(text: str) -> str:
    return "".join(f"{_text(line)}\n" for line in text.split("\n")[:-1] or [])
