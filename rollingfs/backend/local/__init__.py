"""The backend for disks: conditional writes under a record lock, each flushed before it counts.

In: absolute paths. Out: the promises of `rollingfs.backend.contract`.
Must not be here: knowledge of the content of headers.
"""

from rollingfs.backend.local.backend import LocalBackend

__all__ = ["LocalBackend"]
