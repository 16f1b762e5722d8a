"""The same bytes in better files: collection, consolidation, verification, export, offload, erase, rebuild.

In: a segment's path, or a snapshot of it. Out: what was found and done, as values that can be printed.
Must not be here: anything that changes what a reader reads, but for an erase, which also truncates.
"""

from rollingfs.maintenance.collect import Collector
from rollingfs.maintenance.collected import Collected
from rollingfs.maintenance.erased import Erased, Remains
from rollingfs.maintenance.export import Exported, Exporter
from rollingfs.maintenance.offload import Offloaded
from rollingfs.maintenance.rebuild import Rebuilt
from rollingfs.maintenance.state import SegmentState

__all__ = [
    "Collected",
    "Collector",
    "Erased",
    "Exported",
    "Exporter",
    "Offloaded",
    "Rebuilt",
    "Remains",
    "SegmentState",
]
