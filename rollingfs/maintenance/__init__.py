"""The same bytes in better files: collection, consolidation, verification.

In: a segment's path. Out: what was found and done, as values that can be printed.
Must not be here: anything that changes what a reader reads.
"""

from rollingfs.maintenance.collect import Collector
from rollingfs.maintenance.collected import Collected

__all__ = ["Collected", "Collector"]
