"""The format of the files on a backend: bytes to values, values to bytes, `Header` to `Header`.

In: bytes and frozen values. Out: bytes and frozen values, or an error that names the path and the line.
Must not be here: I/O, clocks, locks, waits of any kind. ``docs/protocol/`` specifies the format.
"""
