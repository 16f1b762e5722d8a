"""Requests through obstore, which signs and sends without Python.

In: answers and errors of obstore. Out: the same, safe at a fork and at the end of the
process; errors with a status and a code. Must not be here: code for a single kind of store.
"""
