"""How the core's coroutines wait, and how callers reach them; clocks; what is counted of calls; immutable values.

In: coroutines. Out: their results, in the thread or on the event loop of the caller.
Must not be here: I/O on a store, or the format of a header.
"""
