"""The backend for disks: conditional writes under a record lock, each flushed before it counts.

In: absolute paths. Out: what `rollingfs.backend.contract` promises.
Must not be here: anything that knows what a header says.
"""

from rollingfs.backend.local.backend import LocalBackend

__all__ = ["LocalBackend"]
