"""Views for people: maps, notebooks, metrics, telemetry, numbers as text.

In: snapshots, lists of chunks, and counts of a client. Out: text, HTML, SVG, and values for exporters.
Must not be here: calls of a store, except by a lazy list of chunks; handles, open files; colours of a terminal.
"""
