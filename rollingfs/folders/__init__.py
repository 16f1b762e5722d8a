"""The names that users see: listings, and operations on whole folders.

In: folders' paths. Out: entries as fsspec has them.
Must not be here: anything about the inside of a segment.
"""
