"""The OpenAPI document, made of the operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollingfs.server.operations import JSON, OCTETS, Operation
from rollingfs.server.problems import PROBLEM

TEXT = {"type": "string"}
FIELDS = {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT, "changed": TEXT}
ABOUT_PATH = "The path below the root, with its slashes; a colon in it is written as %3A."
PATH = {"name": "path", "in": "path", "required": True, "description": ABOUT_PATH}
PATH["schema"] = {**TEXT, "minLength": 1, "maxLength": 1024}


def document(operations: Mapping[str, Mapping[str, Operation]]) -> dict[str, Any]:
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


def _operation(one: Operation) -> dict[str, Any]:
    schema, said = one.model.model_json_schema(), one.about
    required = schema.get("required", [])
    done = {str(status): {"description": "done", **_content(media)} for status, media in one.answers.items()}
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


def _content(media: str) -> dict[str, Any]:
    kinds = {kind: {"schema": {"type": "object"} if kind == JSON else {}} for kind in media.split()}
    return {"content": kinds} if kinds else {}
