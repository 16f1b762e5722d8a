"""Parquet files that grow: each append adds row groups and a new footer, so that a segment stays a Parquet file.

In: Arrow tables, DataFrames. Out: a commit. `thrift`, `footer` and `chunks` are below the verbs that join and cut.
Must not be here: readers, for which a segment is any other Parquet file.
pyarrow is imported with the first append, so that the package can be imported without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollingfs.parquet.thrift import MalformedFooterError

if TYPE_CHECKING:
    from rollingfs.parquet.grow import append, rewrite, truncate

__all__ = ["MalformedFooterError", "append", "rewrite", "truncate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollingfs.parquet import grow

    return getattr(grow, name)
