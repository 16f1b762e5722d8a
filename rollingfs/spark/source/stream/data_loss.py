"""Bytes that are gone before a query has read them: an error, or a line in the log."""

from __future__ import annotations

import logging

from rollingfs.errors import SegmentTruncatedError
from rollingfs.spark.source.options import Options

logger = logging.getLogger("pyspark_rollingfs")


class DataLossError(SegmentTruncatedError):
    """Bytes are gone before the query has read them; with ``failOnDataLoss=false`` it goes on without them."""


def lose(options: Options, what: str) -> None:
    """Raise, or log that the query goes on, as the options say.

    Raises
    ------
    DataLossError
        The options do not say to go on without the bytes.
    """
    if options.fails_on_data_loss:
        raise DataLossError(f"{what}; option failOnDataLoss=false goes on without them")
    logger.warning("%s; going on without (failOnDataLoss=false)", what)
