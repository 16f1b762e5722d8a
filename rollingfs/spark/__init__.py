"""Segments in Spark: a Hadoop filesystem for URLs like ``rolling+s3://bucket/events``, and what it needs."""

from rollingfs.spark.configure import configure
from rollingfs.spark.doctor import doctor
from rollingfs.spark.maintain import maintain

__all__ = ["configure", "doctor", "maintain"]
