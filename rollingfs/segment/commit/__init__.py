"""The only place where a header is replaced.

In: a path, and a step that makes the next header from the present header. Out: the commit, or an error that
shows whether anything was written.

`store` is the record of the backend, its caches (`header_cache`, `index_pages`) and the slots of its writer (`turns`).
`commits` commits; `recovery` judges what is not confirmed, and settles the merges that are in the way.
`chunk_files` writes the files that a commit names, and `removals` deletes what is not named any more.
Must not be here: the meaning of an operation; that is in `rollingfs.segment.write` and `rollingfs.segment.verbs`.
"""
