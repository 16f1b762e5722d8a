"""What keeps a log healthy: collection of what nobody refers to any more."""

from rollingfs.maintenance.collect import Collected, Collector

__all__ = ["Collected", "Collector"]
