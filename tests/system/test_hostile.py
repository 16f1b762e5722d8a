"""What a party that may write below one folder can do to others: nothing, by whatever file it leaves there.

A client that may write everywhere meets every kind of hostile file below ``mallory``, and does all its work there.
Afterwards no byte of the other folders, nor of another bucket, differs. ``SECURITY.md`` says what is promised.

Rules of the protocol: P1.15, P11.23, P11.24.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.memory import MemoryBackend
from rollingfs.errors import CorruptChunkError, CorruptHeaderError, RollingError
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.header import HEADER_BYTES_MAX, Chunk, Drop, Header, Merge, MergeOutcome, Phase
from rollingfs.format.side_files import Pin, format_pin, pin_path
from rollingfs.format.tokens import quote, seal_text
from rollingfs.runtime.concurrency import drive
from rollingfs.runtime.system import Moment
from rollingfs.segment.files.moves import Marked, MarkLostError, frozen_headers, mark_all, sources_of
from rollingfs.stream.upkeep import Upkeep

TXN, OTHER = (str(uuid.UUID(int=number)) for number in (7, 8))
VICTIM = str(uuid.UUID(int=9))
NO_DATE_MS = 0
"""Of a mark: long ago."""


class Store:
    """Two buckets. In one are the folders of a hostile party and of its neighbours."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.fs = RollingFileSystem(fs=self.backend.fs, header_cache_s=0, commit_timeout_s=1)
        self.root = f"/{uuid.uuid4().hex}"
        self.mallory = f"{self.root}/b/mallory"
        self.victim = f"{self.root}/b/victim"
        self.far = f"{self.root}/other/deep"
        for folder in (self.victim, self.far):
            for name in ("s", "part-0", "x"):
                self.fs.pipe_file(f"{folder}/{name}", b"precious" * 4)
            self.put(f"{folder}/plain", b"plain")
            self.moving(f"{folder}/moving", "elsewhere")
            self.moving(f"{folder}/coming", "../mallory/s", VICTIM)
            self.fs.seal(f"{folder}/part-0")
        self.before = self.bytes_of_others()

    def put(self, path: str, data: bytes) -> None:
        """Write a file, whatever is there."""
        self.backend.fs.pipe_file(path, data)

    def moving(self, path: str, target: str, incarnation: str = OTHER) -> None:
        """Make a segment that somebody is moving right now."""
        merge = Merge(TXN, target, incarnation, Phase.OPEN, 4_000_000_000_000)
        self.put(f"{path}$header", format_header(Header(VICTIM, 3, phase=Phase.MERGING, merge=merge)))

    def header(self, name: str, **fields: object) -> None:
        """Leave a header in the hostile folder."""
        self.put(f"{self.mallory}/{name}$header", format_header(Header(VICTIM, 3, **fields)))  # type: ignore[arg-type]

    def text(self, name: str, line: str) -> None:
        """Leave a header with a line that no client would write."""
        text = format_header(Header(VICTIM, 3)).split(b"\nend crc32c=")[0] + b"\n" + line.encode() + b"\n"
        self.put(f"{self.mallory}/{name}$header", seal_text(text))

    def keep(self) -> None:
        """One round of upkeep in the hostile folder."""
        run, upkeep = self.fs._bridge.run, Upkeep(self.fs._client, grace_s=0)
        for folder in run(upkeep.folders(self.mallory)):
            run(upkeep.keep(folder))

    def bytes_of_others(self) -> dict[str, bytes]:
        """All files that are not below the hostile folder."""
        found = self.backend.fs.find(self.root)
        return {path: self.backend.fs.cat_file(path) for path in found if not path.startswith(f"{self.mallory}/")}


@pytest.fixture
def store() -> Store:
    return Store()


def mark(target: str, incarnation: str = OTHER) -> Callable[[Store], None]:
    """A source that says it is on its way into a target."""
    merge = Merge(TXN, target, incarnation, Phase.OPEN, NO_DATE_MS)
    return lambda store: store.header("s", phase=Phase.MERGING, merge=merge)


def lines(source: str, *, aborted: bool) -> Callable[[Store], None]:
    """A target that says a move took place, or never will."""
    marks = (MergeOutcome(TXN, source),)
    return lambda store: store.header("s", aborts=marks) if aborted else store.header("s", merges=marks)


def ledger(**fields: object) -> Callable[[Store], None]:
    """The memory of a stream."""
    whole = {"rollingfs-stream": 1, "retention": {"min_bytes": 0, "every": 0}, "offload": None}
    whole |= {"trim": {"done": True, "goals": {}}, "subscribers": {}, "segments": [], "cuts": [], **fields}

    def leave(store: Store) -> None:
        store.fs.pipe_file(f"{store.mallory}/s", b"mine")
        store.fs.pipe_file(f"{store.mallory}/$stream", json.dumps(whole).encode())

    return leave


def goal(name: str, incarnation: str | None = VICTIM) -> Callable[[Store], None]:
    return ledger(trim={"done": False, "goals": {name: [32, incarnation]}})


def pin(target: str) -> Callable[[Store], None]:
    def leave(store: Store) -> None:
        folder = f"{store.mallory}/s$chunks"
        path = names.climb(store.mallory, target)
        store.put(pin_path(folder, TXN), format_pin(Pin(TXN, path, path, VICTIM), folder))
        store.put(f"{folder}/00000000000000000000-5f3a9c21e0b4", b"x")

    return leave


def drops(*files: str) -> Callable[[Store], None]:
    found = tuple(Drop(file, NO_DATE_MS, size=9 if file.endswith("/") else 0) for file in files)
    return lambda store: store.header("s", drops=found)


ELSEWHERE = ["../victim/new", "../victim/s", "../victim/moving", "../../other/deep/x", "../../other/new", "../../new/t"]
FILES: dict[str, Callable[[Store], None]] = {
    **{f"a mark at {target}": mark(target) for target in ELSEWHERE},
    "a mark of the victim's incarnation": mark("../victim/s", VICTIM),
    "a mark above the root": mark("../" * 9 + "x"),
    "a mark at itself": mark("s"),
    **{f"Merged {one}": lines(one, aborted=False) for one in ("../victim/moving", "../../other/deep/moving")},
    **{f"Aborted {one}": lines(one, aborted=True) for one in ("../victim/moving", "../../other/deep/moving")},
    "Merged above the root": lines("../" * 9 + "x", aborted=False),
    "Aborted above the root": lines("../" * 9 + "x", aborted=True),
    **{f"a mark with {word!r}": (lambda store, word=word: store.text("s", f"Merged {TXN} {quote(word)}")) for word in
       ("a\0b", "a$header", "../x$chunks/y", "a/../../victim/moving", "", "a\nb")},
    **{f"a goal {name!r}": goal(name) for name in
       ("../victim/part-0", "../victim/s", "../../other/deep/part-0", "/s", "..", "", "a\0b", "s$header", "$stream")},
    **{f"a pin at {target}": pin(target) for target in ELSEWHERE},
    "drops of others' files": drops("../victim/s$chunks/x", "../../other/deep/x$chunks/x", "../" * 9 + "a$chunks/x"),
    "hints above the root": drops("../" * 9 + "a$chunks/"),
    "a reference with NUL": lambda store: store.text("s", "Chunk 0 4 a%00b at=2026-11-20T10:00:00.000Z"),
    "a reference above the root": lambda store: store.text(
        "s", "Chunk 0 4 " + "../" * 9 + "a$chunks/b at=2026-11-20T10:00:00.000Z"
    ),
    "a deep ledger": lambda store: store.fs.pipe_file(f"{store.mallory}/$stream", b"[" * 100_000),
    "a ledger of another type": lambda store: store.fs.pipe_file(
        f"{store.mallory}/$stream", b'{"rollingfs-stream":1,"retention":{"align":7},"trim":[]}'
    ),
    "deep rows": lambda store: store.put(f"{store.mallory}/$listing$header", b"\0" * 100),
}  # fmt: skip


REFUSALS = (RollingError, FileNotFoundError, FileExistsError)
"""Errors that say what is wrong: ours, and the builtin errors for paths."""


def work(store: Store) -> None:
    """All that somebody with all rights does in the hostile folder."""
    fs, path = store.fs, f"{store.mallory}/s"
    fs.collect(store.mallory, recursive=True, grace=0)
    store.keep()
    for verb in (
        lambda: fs.append(path, b"more"),
        lambda: fs.collect(path, grace=0),
        lambda: fs.cat_file(path),
        lambda: fs.stream(store.mallory).offload_policy,
        lambda: fs.truncate(path, 1),
        lambda: fs.truncate(path, 2, erase=True),
        lambda: fs.mv(path, f"{store.mallory}/t"),
        lambda: fs.seal(f"{store.mallory}/t"),
        lambda: fs.pipe_file(f"{store.mallory}/u", b"u"),
        lambda: fs.concat(f"{store.mallory}/u", [f"{store.mallory}/t"]),
        lambda: fs.find(store.mallory),
        lambda: fs.rm(path),
        lambda: fs.rm(store.mallory, recursive=True),
        lambda: fs.rm(store.mallory, recursive=True, damaged=True),
    ):
        with contextlib.suppress(*REFUSALS):
            verb()


@pytest.mark.parametrize("kind", FILES)
def test_a_hostile_file_changes_nothing_outside_of_its_folder(store: Store, kind: str) -> None:
    FILES[kind](store)
    work(store)
    assert store.bytes_of_others() == store.before


@pytest.mark.parametrize("kind", FILES)
def test_hostile_file_does_not_stop_upkeep_of_its_neighbours(store: Store, kind: str) -> None:
    FILES[kind](store)
    fs, good = store.fs, f"{store.mallory}/zoe/log"
    fs.pipe_file(good, b"z")
    chunks = names.chunks_folder(good)
    store.put(f"{chunks}/00000000000000000000-5f3a9c21e0b4", b"garbage")
    fs.collect(store.mallory, recursive=True, grace=0)
    assert not store.backend.fs.exists(f"{chunks}/00000000000000000000-5f3a9c21e0b4")
    store.put(f"{chunks}/00000000000000000001-5f3a9c21e0b4", b"garbage")
    store.keep()
    assert not store.backend.fs.exists(f"{chunks}/00000000000000000001-5f3a9c21e0b4")


def test_mark_with_evidence_in_the_target_is_resolved(store: Store) -> None:
    """The counterpart: a real mover's mark, whose move another client takes back."""
    source, target = f"{store.mallory}/s", f"{store.victim}/new"
    mark("../victim/new")(store)
    folder = names.chunks_folder(target)
    incarnation = drive(store.fs._client.headers.load(source)).header.segment
    store.put(pin_path(folder, TXN), format_pin(Pin(TXN, source, target, incarnation), folder))
    store.fs.append(source, b"more")
    assert drive(store.fs._client.headers.load(target)).header.aborts == (MergeOutcome(TXN, "../mallory/s"),)


def test_forged_line_in_another_incarnation_takes_no_source(store: Store) -> None:
    source, merge = f"{store.victim}/leaving", Merge(TXN, "../mallory/s", OTHER, Phase.OPEN, NO_DATE_MS)
    store.put(f"{source}$header", format_header(Header(VICTIM, 3, phase=Phase.MERGING, merge=merge)))
    lines("../victim/leaving", aborted=False)(store)
    store.fs.collect(f"{store.mallory}/s")  # it settles the line
    store.fs.append(source, b"still here")
    assert store.fs.cat_file(source) == b"still here"


def test_tree_moved_upwards_works_though_lines_climb(store: Store) -> None:
    lines("../" * 9 + "x", aborted=False)(store)
    path = f"{store.mallory}/s"
    store.fs.append(path, b"0123456789")
    store.fs.truncate(path, 3)
    store.fs.collect(path, grace=0)
    store.fs.mv(path, f"{store.mallory}/t")
    assert store.fs.cat_file(f"{store.mallory}/t") == b"3456789"
    store.fs.pipe_file(f"{store.mallory}/t", b"anew")
    store.fs.rm(f"{store.mallory}/t")
    assert not store.fs.exists(f"{store.mallory}/t")


def test_mover_killed_between_folders_leaves_evidence_to_undo(store: Store) -> None:
    source, target = f"{store.mallory}/s", f"{store.victim}/new"
    store.fs.pipe_file(source, b"mine")
    sources = sources_of([source], target, {})
    drive(mark_all(store.fs._client, sources, OTHER, time.monotonic() + 60, sealed=False))
    marked = drive(store.fs._client.headers.load(source)).header
    store.put(f"{source}$header", format_header(replace(marked, merge=replace(marked.merge, at_ms=NO_DATE_MS))))
    store.fs.invalidate_cache()
    store.fs.append(source, b" still")
    assert store.fs.cat_file(source) == b"mine still"
    with pytest.raises(MarkLostError):
        drive(
            frozen_headers(
                store.fs._client,
                drive(store.fs._client.headers.load(target)),
                Marked(sources, [one.mark for one in sources], [], None, Moment.now(), OTHER),
            )
        )


def test_a_move_between_folders_leaves_no_evidence_behind(store: Store) -> None:
    store.fs.pipe_file(f"{store.mallory}/s", b"mine")
    store.fs.mv(f"{store.mallory}/s", f"{store.victim}/new")
    assert not [path for path in store.bytes_of_others() if "pin-" in path]


def test_huge_chunk_or_header_is_refused_early(tmp_path: Path) -> None:
    fs = RollingFileSystem("file", header_cache_s=0, sync=False)
    (tmp_path / "s$chunks").mkdir()
    file = "00000000000000000000-5f3a9c21e0b4"
    (tmp_path / "s$chunks" / file).write_bytes(b"x" * 1000)
    (tmp_path / "s$header").write_bytes(format_header(Header(VICTIM, 1, entries=(Chunk(0, 2**62, file, None, 0),))))
    with (tmp_path / "h$header").open("wb") as header:
        header.write(b"rollingfs 1\n")
        header.truncate(3 * 2**30)
    with pytest.raises(CorruptChunkError, match="ends at byte 1000"):
        fs.cat_file(f"{tmp_path}/s")
    with pytest.raises(CorruptHeaderError, match="has more than"):
        fs.append(f"{tmp_path}/h", b"x")
    assert len(fs._bridge.run(fs._backend.read(f"{tmp_path}/h$header")).data) == HEADER_BYTES_MAX + 1


def test_what_store_names_cannot_steer_terminal_through_log(store: Store, caplog: Any) -> None:
    store.put(f"{store.mallory}/\x1b[2J$header", b"nonsense")
    store.fs.collect(store.mallory, recursive=True)
    assert "\\x1b[2J" in caplog.text
    assert "\x1b" not in caplog.text
