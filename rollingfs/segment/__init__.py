"""Segments: a verb is a module with a documented coroutine.

In: `At` (the store, its caches, its commits and readers: made once for each filesystem), a path, and the verb's own
arguments. Out: a value that contains the result of the verb.
`verbs/` has a module for each verb, ``async def verb(at, path, …)`` with its private helpers. A verb never imports
another verb: callers compose them. Two compose themselves: an append may create, and an
erase may truncate and collects.
`files/` has the work that verbs share.
Must not be here: names of folders, streams, and the faces of filesystems.
"""
