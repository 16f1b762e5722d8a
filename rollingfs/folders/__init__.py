"""The names that users see: listings, and operations on whole folders.

In: paths of folders, as the backend names them. Out: entries as fsspec has them.
Must not be here: anything about the inside of a segment.
"""
