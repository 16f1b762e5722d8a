"""The only place where a header is replaced.

In: a path, and a step that makes the next header from the present one. Out: what was committed, or an error that
says whether anything was written.

`store` is the record of the backend, its caches (`header_cache`, `index_pages`) and the writer of chunk files
(`chunk_files`). `loop` commits, and `lost_answers` judges what is not confirmed. In the room `sharing`, several writers
share one commit; the loop makes three calls there. `recovery` resolves merges by the
loop; `committer` resolves those that a commit meets, and most operations commit by it.
Must not be here: what an operation means; that is in `rollingfs.write` and `rollingfs.maintenance`.
"""
