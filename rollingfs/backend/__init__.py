"""Conditional files on one store: the contract, its probe, and adapters for disks, memory, S3 and other filesystems.

In: paths, bytes and tokens of a store. Out: bytes, tokens, listings; of several conditional writes exactly one wins.
Must not be here: knowledge of the content of headers.
"""

from rollingfs.backend.contract import Backend, Blob, FileInfo, Listing, Over, Part, Upload

__all__ = ["Backend", "Blob", "FileInfo", "Listing", "Over", "Part", "Upload"]
