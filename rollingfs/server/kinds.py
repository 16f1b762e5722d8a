"""What a parameter of an operation can be: the bounds count for requests and stand in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

Offset: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=2**40)]
Wait: TypeAlias = Annotated[float, Field(ge=0, le=60)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096)]
Amount: TypeAlias = Annotated[Offset | Annotated[str, Field(min_length=1)], Field(union_mode="left_to_right")]
Paths: TypeAlias = Annotated[list[Text], Field(min_length=1, max_length=1000)]
Fields: TypeAlias = dict[str, Any]
Maybe: TypeAlias = Amount | None
OFFLOAD = dict.fromkeys(("after_bytes", "after_age", "deletion_lag", "block_bytes"), Amount)
