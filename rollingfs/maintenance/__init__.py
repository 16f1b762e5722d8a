"""What keeps a log healthy: collection of what nobody refers to any more."""

from rollingfs.maintenance.collect import Collector
from rollingfs.maintenance.collected import Collected

__all__ = ["Collected", "Collector"]
