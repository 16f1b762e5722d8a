"""The names that users see: listings, and operations on whole folders.

In: paths of folders, as the backend names them. Out: entries as fsspec has them.
Must not be here: chunk files, and changes of a header; only a damaged header is deleted here.
"""
