"""The faces: the fsspec filesystem, and the handles and file objects that users hold.

In: URLs, options and calls as fsspec and users make them, blocking or awaited. Out: the answers that they expect.
A face is a class that users see, like `RollingFileSystem`. `methods` makes its methods of verbs, which are
coroutines. A verb that changes a segment is written once, in `segment_verbs` or `upkeep_verbs`; by path and by handle
it differs only by its `binding`. The other verbs take the `core`: `queries` (asks), `cat_and_get` (bytes),
`folder_operations` (names), `transfers` and `patterns` (copies), `opening`. A verb checks its
arguments and calls the core.
Must not be here: rules of the format or of commits.
"""
