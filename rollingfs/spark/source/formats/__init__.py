"""The formats of ``format("rolling")``: what each makes of bytes, and of rows.

In: a range of a segment, or rows. Out: Arrow record batches, or bytes. A new format is a module with a `Format`, and a
line in `MODULES`. Must not be here: streams, commits, and where segments are.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollingfs.spark.source.formats.row_format import Format

__all__ = ["MODULES", "of"]

TEXT, JSON, ARROW, PARQUET, BINARY = "text", "json", "arrow", "parquet", "binary"
MODULES = {TEXT: "text", JSON: "strict_json", ARROW: "arrow_streams", PARQUET: "parquet", BINARY: "binary"}
"""The module of each format. It is imported when the format is used, because maintenance has no Arrow."""


@cache
def of(name: str) -> Format:
    """Return the format of a name."""
    found: Format = import_module(f"{__name__}.{MODULES[name]}").FORMAT
    return found
