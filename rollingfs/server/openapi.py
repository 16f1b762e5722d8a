"""The OpenAPI document, made of the operations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from rollingfs.server.operations import JSON, KINDS, OCTETS, Operation, Param

TEXT = {"type": "string"}
FIELDS = {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT, "changed": TEXT}
PROBLEM = {"type": "object", "required": list(FIELDS), "properties": FIELDS}
ABOUT_PATH = "The path below the root, with its slashes; a colon in it is written as %3A."
PATH = {"name": "path", "in": "path", "required": True, "schema": {**TEXT, "minLength": 1, "maxLength": 1024}}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The document, version 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.url, {})[one.method.lower()] = _operation(one)
        if one.has_path:
            paths[one.url]["parameters"] = [{**PATH, "description": ABOUT_PATH}]
    info = {"title": "rollingfs", "version": "1", "description": "Segments and streams over HTTP."}
    parts = {"schemas": {"Problem": PROBLEM}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": parts, "security": [{}, {"token": []}]}


def _operation(one: Operation) -> dict[str, Any]:
    outside = [_param(param) for param in one.params if param.where != "body"]
    inside = [param for param in one.params if param.where == "body"]
    done = {str(status): {"description": "done", **_content(media)} for status, media in one.answers.items()}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    said = (inspect.getdoc(one.run) or one.verb).partition("\n\nParameters\n")[0]
    found: dict[str, Any] = {
        "operationId": f"{one.kind}_{one.run.__name__}",
        "summary": " ".join(said.split()).partition(". ")[0],
        "description": said,
        "tags": [one.kind],
        "parameters": outside,
        "responses": {**done, "default": {"description": "refused, or failed", "content": problem}},
    }
    if one.is_upload:
        found["requestBody"] = {"content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}
    elif inside:
        is_required = any(param.required for param in inside)
        found["requestBody"] = {"required": is_required, "content": {JSON: {"schema": _fields(inside)}}}
    return found


def _content(media: str) -> dict[str, Any]:
    kinds = {kind: {"schema": {"type": "object"} if kind == JSON else {}} for kind in media.split()}
    return {"content": kinds} if kinds else {}


def _param(param: Param) -> dict[str, Any]:
    name = param.name.replace("_", "-").title() if param.where == "header" else param.name
    found = {"name": name, "in": param.where, "required": param.required, "schema": KINDS[param.kind]}
    return {**found, "description": param.text}


def _fields(params: list[Param]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {param.name: {**KINDS[param.kind], "description": param.text} for param in params},
        "required": [param.name for param in params if param.required],
        "additionalProperties": False,
    }
