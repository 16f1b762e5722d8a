"""From a path or a snapshot, and segment offsets, to bytes.

In: paths, snapshots, ranges. Out: snapshots (`snapshot`, kept up to date by `revalidate`); bytes (`ranges`), verified
where a whole chunk was read; what lives in a folder (`contents`).
Must not be here: anything that writes.
"""
