"""Parquet files that grow: each append adds row groups and one new footer, so that a segment stays one Parquet file.

In: Arrow tables, DataFrames. Out: one commit. Must not be here: readers; to them a segment is any other Parquet file.
pyarrow is imported with the first append, so that the package costs nothing where it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollingfs.format.thrift import MalformedFooterError

if TYPE_CHECKING:
    from rollingfs.parquet.grow import append, rewrite, truncate

__all__ = ["MalformedFooterError", "append", "rewrite", "truncate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollingfs.parquet import grow

    return getattr(grow, name)
