"""Types of parameters of operations, with bounds for requests and for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

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
