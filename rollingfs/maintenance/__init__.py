"""The same bytes in better files: collection, consolidation, verification, export, offload, erase, rebuild.

In: a segment's path, or a snapshot of it. Out: what was found and done, as values that can be printed.
Must not be here: anything that changes what a reader reads, but for an erase, which also truncates.
"""
