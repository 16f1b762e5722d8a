"""The same bytes in better files: collection, consolidation, verification, export, offload.

In: a segment's path, or a snapshot of it. Out: what was found and done, as values that can be printed.
Must not be here: anything that changes what a reader reads.
"""

from rollingfs.maintenance.collect import Collector
from rollingfs.maintenance.collected import Collected
from rollingfs.maintenance.export import Exported, Exporter
from rollingfs.maintenance.offload import Offloaded
from rollingfs.maintenance.state import SegmentState

__all__ = ["Collected", "Collector", "Exported", "Exporter", "Offloaded", "SegmentState"]
