"""Spark looks for data sources in top-level modules of such names; the wheel has this module there."""

from rollingfs.spark.source import RollingDataSource as DefaultSource

__all__ = ["DefaultSource"]
