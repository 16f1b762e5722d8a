"""What people look at: maps, notebooks, metrics, telemetry, numbers as text.

In: snapshots, lists of chunks, and what a client has counted. Out: text, HTML, SVG, and values for exporters.
Must not be here: calls of a store, but for those of a lazy list of chunks; handles, open files; colours of a terminal.
"""
