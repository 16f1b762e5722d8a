"""Segments: a verb is a module with a documented coroutine.

In: `At` (the store, its caches, its commits and readers: made once for each filesystem), a path, and the verb's own
arguments. Out: a value that contains the result of the verb.
`verbs/` has a module for each verb, ``async def verb(at, path, …)`` with its private helpers. A verb never imports
another verb: callers compose them. An erase is the exception: it ends with a collection.
`files/` has the work on chunk files that verbs share.
Must not be here: names of folders, streams, and the faces of filesystems.
"""
