"""Conditional files on one store: the contract, and adapters for disks, memory, S3 and any other fsspec filesystem.

In: a store's paths and bytes. Out: bytes, tokens, listings; conditional writes that exactly one of several wins.
Must not be here: anything that knows what a header says.
"""

from rollingfs.backend.contract import Backend, Blob, FileInfo, Listing, Over, Part, Upload

__all__ = ["Backend", "Blob", "FileInfo", "Listing", "Over", "Part", "Upload"]
