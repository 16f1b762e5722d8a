"""Backends: the contract, and adapters for local disks, memory, S3 and any other fsspec filesystem."""

from rollingfs.backend.contract import Backend, Blob, FileInfo, Listing, Part, Upload

__all__ = ["Backend", "Blob", "FileInfo", "Listing", "Part", "Upload"]
