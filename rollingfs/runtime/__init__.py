"""How the core's coroutines wait, and how callers reach them.

In: coroutines. Out: their results, in whatever thread or event loop the caller is.
Must not be here: anything that knows of segments, headers or stores.
"""
