"""The 32 behaviours of Pravega's RollingStorage, good and bad, that rollingfs is checked against.

One of them has its test here. Tests of the rooms hold the others:

- 1, 3, 4: writes roll, and full chunks begin no new one: `write/test_chunk_writer`.
- 2: those who opened before see what others wrote: `system/test_fresh_reads`, `read/test_revalidate`.
- 5: a wrong expected offset: `write/test_group_commit`.
- 6: a segment keeps its policy: `fs/test_policy_verbs`.
- 7, 8, 10: create and list: `fs/test_folders`, `backend/test_objects_contract`.
- 9: a delete that fails: `segment/test_delete`.
- 11, 14, 30: handles of what is gone, offsets outside, epochs: `fs/test_segment_handle`.
- 15: what is truncated: `read/test_revalidate`.
- 12: seals: `fs/test_segment_forms`.
- 13: truncations: `fs/test_segment_forms`, `segment/test_collect`, `system/test_traces`.
- 16, 19, 20, 24: missing, unsealed, empty, plain sources; calls that fail: `simulation`, `system/test_crashes`.
- 17, 18: what is small shares a chunk, and no chunk is copied: `segment/test_erase`, `system/test_traces`.
- 21, 22: truncated sources, concats of concats in every order: `simulation`.
- 23, 28, 29: names made again, crashes, two writes at one offset: `simulation`.
- 25, 27: reading across chunks, missing chunks: `fs/test_read_file`, `fs/test_segment_handle`.
- 26: there is no empty chunk: `write/test_chunk_writer`, and no header has one: `format/test_codec`.
- 32: a segment of many chunks: `system/test_scale`.
"""

from pathlib import Path

import pytest

from rollingfs import RollingFileSystem

NAMES = [
    *("a&b", "a=b", "50%25", "with  space", "日本-naïve-🦀", "+;,@!"),
    *("$x", "quote'\"", "#hash", "~tilde", "back\\slash"),
]


@pytest.mark.parametrize("protocol", ["memory", "file"])
@pytest.mark.parametrize("name", NAMES)
def test_31_any_legal_name_works(tmp_path: Path, protocol: str, name: str) -> None:
    """`&` corrupts Pravega's header."""
    fs = RollingFileSystem(protocol, max_bytes=100, inline_bytes=0, skip_instance_cache=True)
    target, source, moved = f"{tmp_path}/{name}/{name}", f"{tmp_path}/other {name}/{name}", f"{tmp_path}/moved {name}"
    fs.pipe_file(target, b"t" * 150)
    fs.pipe_file(source, b"s" * 250)
    fs.seal(source)
    fs.concat(target, [source])
    fs.append(target, b"more", attrs={name: name}, expected_attrs={name: None})
    fs.truncate(target, 200)
    fs.mv(target, moved)
    fs = RollingFileSystem(protocol, skip_instance_cache=True)
    assert fs.cat_file(moved) == b"s" * 200 + b"more"
    assert fs.segment(moved).attrs == {name: name}
    assert moved in fs.ls(str(tmp_path), detail=False)
