"""Operations of REST, and their bodies: functions whose signatures define routes, parameters and the OpenAPI document.

A parameter of an operation comes from the query of GET and DELETE (and of a body of any size), or is a field of a JSON
body; the names in `HEADERS` and `CONDITIONS` are headers. Pydantic checks them by their annotations.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rollingfs.runtime.values import value_class
from rollingfs.server.problems import JSON, PROBLEM

if TYPE_CHECKING:
    from rollingfs.segment.segment import Segment
    from rollingfs.server.access import Access
    from rollingfs.server.served_store import ServedStore
    from rollingfs.server.tails import Watches


UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a compressed body, unpacked: a few KiB may stand for GiB."""
PIECE_BYTES = 256 * 1024
GZIP_WBITS = 31


class Body:
    """The bytes to append, in parts.

    Parameters
    ----------
    parts
        The bytes as they come.
    newline
        End it with a line feed if that is missing.
    is_keyed
        Compute the checksum for `key`.

    Attributes
    ----------
    size : int
        The bytes so far.
    """

    def __init__(self, parts: AsyncIterable[bytes], *, newline: bool, is_keyed: bool) -> None:
        self._parts = self._ended(parts, newline)
        self._checksum = hashlib.sha256() if is_keyed else None
        self.size = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def _ended(self, parts: AsyncIterable[bytes], newline: bool) -> AsyncIterator[bytes]:
        last = b""
        async for part in parts:
            last = part or last
            yield self._counted(part)
        if newline and last and not last.endswith(b"\n"):
            yield self._counted(b"\n")

    def _counted(self, part: bytes) -> bytes:
        self.size += len(part)
        if self._checksum is not None:
            self._checksum.update(part)
        return part

    def key(self) -> str | None:
        """Return a key that stands for the bytes so far; None without `is_keyed`."""
        return None if self._checksum is None else f"sha256 {self._checksum.hexdigest()}"

    async def check_repeat(self, size: int) -> None:
        """Read the rest, and refuse a body of another size than the append that had its key.

        Raises
        ------
        HTTPException
            It has another size: it is no repeat, and its bytes are not in the segment.
        """
        async for _ in self._parts:
            pass
        if self.size != size:
            text = f"an append of {size} bytes had this key, and this body has {self.size}; nothing was changed"
            raise HTTPException(409, f"{text}: a repeat must be the same, and other data needs another key")


async def unpacked(parts: AsyncIterable[bytes], bytes_max: float) -> AsyncIterator[bytes]:
    """Yield the bytes of a body of gzip, whose members follow each other.

    Parameters
    ----------
    bytes_max
        The limit of the server for a body.

    Raises
    ------
    HTTPException
        It is no gzip, its end is missing, or it has more than `bytes_max` or `UNPACKED_BYTES_MAX` bytes.
    """
    member, size, bytes_max = zlib.decompressobj(GZIP_WBITS), 0, min(bytes_max, UNPACKED_BYTES_MAX)
    async for part in parts:
        left, piece = part, b""
        while left or (len(piece) == PIECE_BYTES and not member.eof):
            if member.eof:
                member = zlib.decompressobj(GZIP_WBITS)
            try:
                piece = member.decompress(left, PIECE_BYTES)
            except zlib.error as error:
                raise HTTPException(400, f"the body is no gzip ({error}); nothing was changed") from error
            left = member.unused_data if member.eof else member.unconsumed_tail
            size += len(piece)
            if size > bytes_max:
                raise HTTPException(413, f"the unpacked body has more than {bytes_max} bytes; nothing was changed")
            yield piece
    if not member.eof:
        raise HTTPException(400, "the end of the gzip body is missing; nothing was changed")


JSON_BYTES_MAX = 1024 * 1024
OCTETS, EVENTS = "application/octet-stream", "text/event-stream"
HEADERS = ("accept", "content_encoding", "expected_offset", "idempotency_key", "last_event_id")
CONDITIONS = ("range", "if_range", "if_match", "if_none_match")
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass
class Call:
    """A request for an operation."""

    request: Request
    store: ServedStore
    watches: Watches
    access: Access
    path: str
    changes: bool

    def place(self, path: str | None = None) -> str:
        """Return the filesystem's path for a client's path, if its rights allow it."""
        path = self.path if path is None else path.strip("/")
        self.access.check(path, self.changes)
        return self.store.place(path)

    async def look(self, path: str | None = None) -> Segment:
        """Return a segment or plain file as it is now."""
        return await self.store.look(self.place(path))


@value_class
class RestOperation:
    """Operation for clients; `answers` are media types by status, empty for an answer without a body."""

    run: Callable[..., Any]
    model: type[BaseModel]
    tag: str
    changes: bool
    is_upload: bool
    has_json: bool
    answers: Mapping[int, str]

    @property
    def headers(self) -> set[str]:
        """Return the parameters that are headers."""
        return {one.alias for one in self.model.model_fields.values() if one.alias}

    @property
    def about(self) -> str:
        """Return the first line of its documentation."""
        return (inspect.getdoc(self.run) or "").partition("\n\nParameters\n")[0]

    async def given(self, request: Request) -> dict[str, Any]:
        """Return the parameters of a request.

        Raises
        ------
        HTTPException
            A parameter is missing, unknown, or no value of its kind.
        """
        query = query_of(request)
        try:
            if not self.has_json:
                sent = {name: request.headers[name] for name in self.headers if name in request.headers}
                return _given(self.model.model_validate_strings(query | sent))
            if query:
                raise HTTPException(400, "this operation takes a JSON body and no query; nothing was changed")
            return _given(self.model.model_validate_json(await small_body(request) or b"{}"))
        except ValidationError as error:
            [first, *_] = error.errors(include_url=False, include_context=False, include_input=False)
            where = ".".join(map(str, first["loc"])) or "the body"
            raise HTTPException(400, f"{where}: {first['msg']}; nothing was changed") from error


def query_of(request: Request) -> dict[str, str]:
    """Return the query of a request; a name that is not UTF-8 comes as the disk's names come."""
    query = request.scope["query_string"].decode("latin-1")
    return dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))


def _given(found: BaseModel) -> dict[str, Any]:
    """Return the parameters that a client has named; null is a value."""
    return {name: getattr(found, name) for name in found.model_fields_set}


async def small_body(request: Request) -> bytes:
    """Return the body of a request that holds no data of segments.

    Raises
    ------
    HTTPException
        It is too large.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > JSON_BYTES_MAX:
            raise HTTPException(413, f"the body has more than {JSON_BYTES_MAX} bytes; nothing was changed")
    return body


OPERATIONS: dict[str, dict[str, RestOperation]] = {}
"""By URL, as OpenAPI writes it, and by method."""


def operation(
    method: str,
    url: str,
    *,
    is_upload: bool = False,
    answers: Mapping[int, str] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of a `Call` and parameters an operation; what it returns is sent as JSON, unless an answer.

    Parameters
    ----------
    fields
        Annotations of optional parameters that the function takes as keywords.
    """
    has_json = method in ("POST", "PUT", "PATCH") and not is_upload
    said = answers or ({204: ""} if method == "DELETE" else {200: JSON})

    def keep(run: Callable[..., Any]) -> Callable[..., Any]:
        changes = method != "GET" and "{path}" in url
        model, tag = _model(run, fields or {}), url.split("/")[2].partition(":")[0]
        OPERATIONS.setdefault(url, {})[method] = RestOperation(run, model, tag, changes, is_upload, has_json, said)
        return run

    return keep


def _model(run: Callable[..., Any], fields: Mapping[str, Any]) -> type[BaseModel]:
    """Return the parameters of a function, but the first, with their descriptions."""
    texts = dict(re.findall(r"^(\w+)\n    (.+)$", inspect.getdoc(run) or "", re.MULTILINE))
    hints = get_type_hints(run, include_extras=True)
    found: dict[str, Any] = {
        name: (kind | None, Field(None, description=texts.get(name))) for name, kind in fields.items()
    }
    _, *params = inspect.signature(run).parameters.values()
    for one in params:
        if one.kind is not one.VAR_KEYWORD:
            default = ... if one.default is one.empty else one.default
            alias = one.name.replace("_", "-").title() if one.name in HEADERS + CONDITIONS else None
            found[one.name] = (hints[one.name], Field(default, alias=alias, description=texts.get(one.name)))
    return create_model(run.__name__, __config__=STRICT, **found)


TEXT = {"type": "string"}
FIELDS = {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT, "changed": TEXT}
ABOUT_PATH = "The path below the root, with its slashes; a colon in it is written as %3A."
PATH = {"name": "path", "in": "path", "required": True, "description": ABOUT_PATH}
PATH["schema"] = {**TEXT, "minLength": 1, "maxLength": 1024}


def document(operations: Mapping[str, Mapping[str, RestOperation]]) -> dict[str, Any]:
    """Return the document, version 3.1."""
    paths = {
        url: {method.lower(): _operation(one) for method, one in methods.items()}
        | ({"parameters": [PATH]} if "{path}" in url else {})
        for url, methods in operations.items()
    }
    problem = {"type": "object", "required": list(FIELDS), "properties": FIELDS}
    parts = {"schemas": {"Problem": problem}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    info = {"title": "rollingfs", "version": "1", "description": "Segments and streams over HTTP."}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": parts, "security": [{}, {"token": []}]}


def _operation(one: RestOperation) -> dict[str, Any]:
    schema, said = one.model.model_json_schema(), one.about
    required = schema.get("required", [])
    done: dict[str, Any] = {}
    for status, media in one.answers.items():
        kinds = {kind: {"schema": {"type": "object"} if kind == JSON else {}} for kind in media.split()}
        done[str(status)] = {"description": "done"} | ({"content": kinds} if kinds else {})
    problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, Any] = {
        "operationId": f"{one.tag}_{one.run.__name__}",
        "summary": " ".join(said.split()).partition(". ")[0],
        "description": said,
        "tags": [one.tag],
        "responses": {**done, "default": {"description": "refused, or failed", "content": problem}},
    }
    if one.is_upload:
        found["requestBody"] = {"content": {OCTETS: {"schema": {**TEXT, "format": "binary"}}}}
    if one.has_json:
        return {**found, "requestBody": {"required": bool(required), "content": {JSON: {"schema": schema}}}}
    found["parameters"] = [
        {"name": name, "in": "header" if name in one.headers else "query", "required": name in required, "schema": each}
        for name, each in schema["properties"].items()
    ]
    return found


Offset: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=2**40)]
Wait: TypeAlias = Annotated[float, Field(ge=0, le=60)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096)]
Encoding: TypeAlias = Literal["identity", "gzip"]
Size: TypeAlias = Annotated[Offset | Annotated[str, Field(min_length=1)], Field(union_mode="left_to_right")]
Age: TypeAlias = Annotated[
    Offset | Annotated[float, Field(ge=0)] | Annotated[str, Field(min_length=1)], Field(union_mode="left_to_right")
]
"""Seconds, whole or not, as they are answered, or text."""
Paths: TypeAlias = Annotated[list[Text], Field(min_length=1, max_length=1000)]
Fields: TypeAlias = dict[str, Any]
OFFLOAD: dict[str, Any] = {"after_bytes": Size, "after_age": Age, "deletion_lag": Age, "block_bytes": Size}
POLICY: dict[str, Any] = {"max_bytes": Size, "max_age": Age, "inline_bytes": Size}
RETENTION: dict[str, Any] = {
    f"{kind}_{of}": Age if of == "age" else Size for kind in ("min", "keep", "max") for of in ("age", "bytes")
}
RETENTION |= {"every": Age, "align": Text}
"""The fields of policies."""
