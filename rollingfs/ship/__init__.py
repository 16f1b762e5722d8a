"""``rollingfs ship``: local files that grow, appended to segments, each line once.

In: names of files, a filesystem, a segment for each file or for all. Out: commits that append new lines and set
the position of the file, on condition of the position that was seen.
Must not be here: state on the local disk, and rules of a commit; the position is an attribute of the segment.
"""

from rollingfs.ship.route import Lag
from rollingfs.ship.shipper import Shipper, observe

__all__ = ["Lag", "Shipper", "observe"]
