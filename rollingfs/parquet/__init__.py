"""Parquet files that grow: each append adds row groups and a new footer, so that a segment stays a Parquet file.

In: Arrow tables, DataFrames. Out: a commit. Must not be here: readers, for which a segment is any other Parquet file.
pyarrow is imported with the first append, so that the package can be imported without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

from rollingfs.parquet_footer.thrift import MalformedFooterError as MalformedFooterError

if TYPE_CHECKING:
    from rollingfs.parquet.grow import append as append, rewrite as rewrite, truncate as truncate

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"grow": ["append", "rewrite", "truncate"]})
__all__.append("MalformedFooterError")
