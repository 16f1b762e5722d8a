"""Requests through obstore, which signs and sends without Python.

In: what obstore gives for a request, and the errors that it raises. Out: the same, safe at a fork and at the end of the
process; errors with a status and a code. Must not be here: anything of one kind of store.
"""
