"""Waits of the core's coroutines, ways of callers to them, clocks, counts of calls, immutable values.

In: coroutines. Out: their results, in the thread or on the event loop of the caller.
Must not be here: I/O on a store, or the format of a header.
"""
