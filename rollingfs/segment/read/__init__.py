"""From a path or a snapshot, and segment offsets, to bytes.

In: paths, snapshots, ranges. Out: snapshots (kept up to date by `revalidate`); bytes (`ranges`), verified
where a whole chunk was read; the format of a file (`ends`); the content of a folder (`folder_contents`).
Must not be here: anything that writes.
"""
