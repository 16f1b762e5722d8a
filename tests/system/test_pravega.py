"""The 32 behaviours of Pravega's RollingStorage, good and bad, that rollingfs is checked against.

The numbers in the names are those of the list. Where rollingfs differs, the docstring says how. Tests of the rooms hold
the others:

- 1, 3, 4: writes roll, and full chunks begin no new one: `write/test_chunk_writer`, and 26 here.
- 2: those who opened before see what others wrote: `system/test_fresh_reads`, `fs/test_segment_handle`.
- 5: a wrong expected offset: `write/test_gather`.
- 6: a segment keeps its policy: `fs/test_policy_verbs`.
- 7, 8, 10: create and list: `fs/test_filesystem`, `backend/test_objects_contract`.
- 9: a delete that fails: `write/test_delete`.
- 11, 14, 15, 30: handles of what is gone, offsets outside, what is truncated, epochs: `fs/test_segment_handle`.
- 12: seals: `fs/test_segment_forms`.
- 13: truncations: `fs/test_segment_handle`, `maintenance/test_collect`, `system/test_traces`.
- 16, 19, 20, 24: missing, unsealed, empty, plain sources; calls that fail: `simulation`, `system/test_crashes`.
- 17, 18: what is small shares a chunk, and no chunk is copied: `maintenance/test_erase`, `system/test_traces`.
- 21, 22: truncated sources, concats of concats in every order: `simulation`.
- 23, 28, 29: names made again, crashes, two writes at one offset: `simulation`.
- 32: a segment of many chunks: `system/test_scale`.
- 25, 27: reading across chunks, missing chunks: `fs/test_read_file`, `fs/test_segment_handle`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import fsspec
import pytest

from rollingfs import CorruptHeaderError, RollingFileSystem
from rollingfs.format.tokens import seal_text


@dataclass(frozen=True)
class Place:
    """Where a test's segments lie."""

    protocol: str
    root: str

    def open(self, **options: Any) -> Any:
        """A new filesystem: another writer with its own caches."""
        return RollingFileSystem(self.protocol, skip_instance_cache=True, sync=False, **{"max_bytes": 100, **options})

    @property
    def below(self) -> Any:
        """The filesystem below, to look around rollingfs."""
        return fsspec.filesystem(self.protocol)

    def path(self, name: str = "segment") -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    return Place(request.param, f"/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path))


def make(fs: Any, path: str, data: bytes, *, piece: int = 0, sealed: bool = True) -> str:
    """A segment with `data`, appended in pieces."""
    fs.create(path)
    for start in range(0, len(data), piece or len(data) or 1):
        fs.append(path, data[start : start + (piece or len(data))])
    if sealed:
        fs.seal(path)
    return path


def pattern(size: int, first: int = 0) -> bytes:
    """Bytes in which a wrong offset shows."""
    return bytes((first + index * 7 + index // 251) % 256 for index in range(size))


def whole(fs: Any, path: str) -> bytes:
    """All retained bytes, read by a new reader, which must agree with the file."""
    segment = fs.segment(path)
    data: bytes = segment.read(segment.start, segment.length)
    assert fs.cat_file(path) == data
    return data


# -- reading -------------------------------------------------------------------------------------------------


def test_26_there_is_no_empty_chunk_and_a_header_with_one_is_refused(place: Place) -> None:
    """Pravega reads such a chunk for ever. rollingfs makes none, and its headers cannot hold one."""
    fs = place.open(inline_bytes=0)
    path = make(fs, place.path(), pattern(100), sealed=False)
    fs.concat(path, [make(fs, place.path("empty"), b"")])
    fs.append(path, [b"", pattern(100), b""])
    assert [chunk.length for chunk in fs.segment(path).chunks] == [100, 100]
    assert whole(fs, path) == pattern(100) * 2
    lines = place.below.cat_file(path + "$header").splitlines()[:-2]
    second = next(index for index, line in enumerate(lines) if line.startswith(b"Chunk 100 "))
    lines.insert(second, b"Chunk 100 0 00000000000000000100-000000000000 at=2026-11-20T10:00:00Z")
    place.below.pipe_file(path + "$header", seal_text(b"\n".join(lines) + b"\n"))
    with pytest.raises(CorruptHeaderError, match="line"):
        place.open().cat_file(path)


# -- names -----------------------------------------------------------------------------------------------------


NAMES = [
    *("a&b", "a=b", "50%25", "with  space", "日本-naïve-🦀", "+;,@!"),
    *("$x", "quote'\"", "#hash", "~tilde", "back\\slash"),
]


@pytest.mark.parametrize("name", NAMES)
def test_31_any_legal_name_works(place: Place, name: str) -> None:
    """`&` corrupts Pravega's header."""
    fs = place.open(inline_bytes=0)
    target = make(fs, place.path(f"{name}/{name}"), b"t" * 150, sealed=False)
    source = make(fs, place.path(f"other {name}/{name}"), pattern(250))
    fs.concat(target, [source])
    fs.append(target, b"more", attrs={name: name}, expected_attrs={name: None})
    fs.truncate(target, 200)
    fs.mv(target, place.path(f"moved {name}"))
    fs = place.open()
    assert whole(fs, place.path(f"moved {name}")) == pattern(250)[50:] + b"more"
    assert fs.segment(place.path(f"moved {name}")).attrs == {name: name}
    assert place.path(f"moved {name}") in fs.ls(place.root, detail=False)
