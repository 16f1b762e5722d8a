"""Operations of REST: functions whose signatures say what clients give. Routes and the OpenAPI document come of them.

A parameter of an operation comes from the query of GET (and of a body of any size), or is a field of a JSON body;
the names in `HEADERS` are headers. Its annotation is its kind; without a default it is required.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import Request

from rollingfs.server.problems import Refused

if TYPE_CHECKING:
    from rollingfs.server.access import Access
    from rollingfs.server.store import Store
    from rollingfs.server.tails import Watches

JSON_BYTES_MAX = 1024 * 1024
NUMBER_MAX = 2**63 - 1
TEXT_CHARS_MAX = 4096
PATHS_MAX = 1000
JSON, OCTETS, EVENTS = "application/json", "application/octet-stream", "text/event-stream"
HEADERS = ("accept", "expected_offset", "idempotency_key", "range", "if_range", "if_none_match", "last_event_id")

Offset: TypeAlias = int
Count: TypeAlias = int
Seconds: TypeAlias = float
Wait: TypeAlias = float
Amount: TypeAlias = int | str
Paths: TypeAlias = list[str]
Fields: TypeAlias = dict[str, Any]

KINDS: Mapping[str, dict[str, Any]] = {
    "Offset": {"type": "integer", "format": "int64", "minimum": 0, "maximum": NUMBER_MAX},
    "Count": {"type": "integer", "minimum": 1, "maximum": 10_000},
    "Seconds": {"type": "number", "minimum": 0, "maximum": 2**40},
    "Wait": {"type": "number", "minimum": 0, "maximum": 60},
    "bool": {"type": "boolean"},
    "str": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS_MAX},
    "Amount": {"type": ["integer", "string"], "minimum": 0, "maximum": NUMBER_MAX, "minLength": 1, "maxLength": 100},
    "Paths": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": PATHS_MAX},
    "Fields": {"type": "object"},
}
"""What a parameter can be, as JSON schemas."""
_TYPES = {"integer": (int,), "number": (int, float), "boolean": (bool,), "string": (str,), "array": (list,)}


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an operation."""

    name: str
    kind: str
    where: str
    required: bool
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A request for an operation."""

    request: Request
    store: Store
    watches: Watches
    access: Access
    path: str
    changes: bool

    def place(self, path: str | None = None) -> str:
        """The filesystem's path for one that the client may use as the operation does."""
        path = self.path if path is None else path.strip("/")
        self.access.check(path, self.changes)
        return self.store.place(path)


@dataclass(frozen=True, slots=True)
class Operation:
    """What clients may ask for; `answers` are media types by status, empty for an answer without a body."""

    method: str
    kind: str
    verb: str
    run: Callable[..., Any]
    has_path: bool
    changes: bool
    is_upload: bool
    answers: Mapping[int, str]

    @property
    def url(self) -> str:
        """The path, as OpenAPI writes it."""
        return f"/v1/{self.kind}{'/{path}' if self.has_path else ''}{f':{self.verb}' if self.verb else ''}"

    @property
    def params(self) -> list[Param]:
        """What it takes, by the signature of its function."""
        texts = dict(re.findall(r"^(\w+)\n    (.+)$", inspect.getdoc(self.run) or "", re.MULTILINE))
        _, *found = inspect.signature(self.run).parameters.values()
        usual = "query" if self.method == "GET" or self.is_upload else "body"
        return [
            Param(
                one.name,
                str(one.annotation).partition(" ")[0],
                "header" if one.name in HEADERS else usual,
                one.default is one.empty,
                texts.get(one.name, ""),
            )
            for one in found
        ]


OPERATIONS: list[Operation] = []


def operation(
    method: str,
    kind: str,
    verb: str = "",
    *,
    has_path: bool = True,
    changes: bool | None = None,
    is_upload: bool = False,
    answers: Mapping[int, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of a `Call` and parameters an operation; what it returns is sent as JSON, unless an answer."""
    does_change = method != "GET" if changes is None else changes

    def keep(run: Callable[..., Any]) -> Callable[..., Any]:
        said = answers or ({204: ""} if method == "DELETE" else {200: JSON})
        OPERATIONS.append(Operation(method, kind, verb, run, has_path, does_change, is_upload, said))
        return run

    return keep


async def parameters(request: Request, params: list[Param]) -> dict[str, Any]:
    """The checked values of an operation's parameters.

    Raises
    ------
    Refused
        One is missing, unknown, or no value of its kind.
    """
    fields = await _json(request) if any(param.where == "body" for param in params) else {}
    known = {param.name: param for param in params}
    for name in [*request.query_params, *fields]:
        if name not in known or known[name].where != ("body" if name in fields else "query"):
            raise Refused(400, f"there is no parameter {name!r} here: it takes {', '.join(known) or 'none'}")
    found = {name: _checked(known[name], value) for name, value in fields.items() if value is not None}
    for param in params:
        source = request.query_params if param.where == "query" else request.headers
        text = source.get(param.name.replace("_", "-") if param.where == "header" else param.name)
        if param.where != "body" and text is not None:
            found[param.name] = _checked(param, _parsed(param.kind, text))
        if param.required and param.name not in found:
            raise Refused(400, f"the parameter {param.name!r} is missing; nothing was changed")
    return found


async def _json(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > JSON_BYTES_MAX:
            raise Refused(413, f"the body has more than {JSON_BYTES_MAX} bytes; nothing was changed")
    try:
        found = json.loads(body, parse_constant=_no_constant) if body else {}
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the body is not JSON; nothing was changed") from error
    if not isinstance(found, dict):
        raise Refused(400, "the body must be a JSON object; nothing was changed")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parsed(kind: str, text: str) -> Any:
    """The value that a text in a URL or header stands for."""
    try:
        return text if kind == "str" else json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _checked(param: Param, value: Any) -> Any:
    schema = KINDS[param.kind]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    is_right = type(value) in [one for kind in kinds for one in _TYPES.get(kind, (dict,))]  # a boolean is not a number
    if is_right and isinstance(value, int | float) and not isinstance(value, bool):
        is_right = schema["minimum"] <= value <= schema["maximum"]
    elif is_right and isinstance(value, str):
        is_right = 1 <= len(value) <= schema["maxLength"]
    elif is_right and isinstance(value, list):
        is_right = 1 <= len(value) <= PATHS_MAX and all(isinstance(one, str) and one for one in value)
    if not is_right:
        raise Refused(400, f"{param.name!r} must be of the kind {json.dumps(schema)}; nothing was changed")
    return value
