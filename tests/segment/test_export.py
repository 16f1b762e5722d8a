"""Export: what a segment retains as one plain file, whatever lies where, whatever fails or goes on beside it.

Rules of the protocol: P10.26 to P10.32.
"""

import contextlib
import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs import ConflictError, CorruptChunkError, Exported, RollingFileSystem, RollingPolicy
from rollingfs.backend.contract import Over
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.format import names
from rollingfs.format.header import Chunk
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files import copies as passing, copies as pieces
from rollingfs.segment.files.copies import CopyPiece, in_files, plan_pieces
from rollingfs.segment.verbs import export
from tests.support.backends import Counting, Scripted, limit, private_memory
from tests.support.examples import examples, slowly, some
from tests.support.faults import CHANGING, CLOCK, Crashed, Fault, Faulty, Store
from tests.support.life import World

LOG, OTHER, TARGET = "/folder/log", "/folder/other", "/out/file"
POLICY = RollingPolicy(max_bytes=100, inline_bytes=10)
CONTENT = b"".join(bytes([65 + number]) * 30 for number in range(8)) + b"tail"
FOREIGN = b"of another program"
MIB = 2**20


def fill(world: World, path: str = LOG) -> World:
    """A segment of several chunks and an inline tail."""
    world.create(path, [CONTENT[start : start + 30] for start in range(0, 240, 30)], POLICY)
    world.append(path, b"tail")
    return world


def run(world: World, path: str = LOG, target: str = TARGET, **options: Any) -> Exported:
    view = drive(world.client.headers.view(path, fresh=True))
    return drive(export.export(world.client, view, world.backend, target, **options))


def raw(world: World, path: str = TARGET) -> bytes | None:
    """What other tools see under a name; None if there is no file."""
    file = world.backend.inner.fs.store.get(path)
    return file and file.getvalue()


# -- the plan --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(st.lists(st.integers(1, 30), max_size=20), st.integers(0, 30), st.integers(0, 12), st.integers(0, 5))
def test_pieces_hold_each_byte_once_and_suit_the_parts(sizes, start, part_min, tail):
    chunks, end = [], start
    for size in sizes:
        chunks.append(Chunk(end, size, "x", None, 0))
        end += size
    plan = plan_pieces(chunks, start, end + tail, part_min)
    position = start
    for piece in plan:
        assert piece.start == position < piece.end
        assert piece.chunk is None or piece.chunk.start <= piece.start < piece.end <= piece.chunk.end
        position = piece.end
    assert position == end + tail
    assert all(piece.size >= part_min for piece in plan[:-1])
    assert all(before.chunk or after.chunk for before, after in itertools.pairwise(plan))


@pytest.mark.parametrize(
    ("sizes", "start", "plan"),
    [
        ([100, 3, 100], 0, [(0, 100, False), (100, 110, True), (110, 203, False), (203, 205, True)]),
        ([4, 10, 10, 10], 6, [(6, 20, True), (20, 30, False), (30, 40, False)]),
    ],
    ids=["large chunks are not read for a small one between them", "a short first chunk costs no other"],
)
def test_as_little_as_possible_is_read(sizes: list[int], start: int, plan: list[tuple[int, int, bool]]) -> None:
    starts = itertools.accumulate(sizes, initial=start)
    chunks = [Chunk(at, size, "x", None, 0) for at, size in zip(starts, sizes, strict=False)]
    found = plan_pieces(chunks, start, plan[-1][1], 10)
    assert [(piece.start, piece.end, piece.chunk is None) for piece in found] == plan


def parts_of(file: list[CopyPiece]) -> list[int]:
    """The parts that an upload to S3 makes of some pieces."""
    sizes, buffered = [], 0
    for piece in file:
        if piece.chunk is None:
            buffered += piece.size
            while buffered > pieces.READ_PART_BYTES:
                sizes.append(pieces.READ_PART_BYTES)
                buffered -= pieces.READ_PART_BYTES
            continue
        sizes += [buffered, piece.size] if buffered else [piece.size]
        buffered = 0
    return [*sizes, buffered] if buffered else sizes


@settings(max_examples=examples(300))
@given(st.lists(st.integers(1, 60), max_size=40), st.integers(0, 40), st.integers(0, 20), st.integers(4, 40))
def test_uploads_respect_part_counts_and_minimum_sizes(sizes, start, tail, parts_max):
    chunks, end = [], 0
    for size in sizes:
        chunks.append(Chunk(end * MIB, size * MIB, "x", None, 0))
        end += size
    start = min(start, sizes[0] - 1 if sizes else 0)
    chunks[:1] = [replace(chunk, start=start * MIB, length=chunk.length - start * MIB) for chunk in chunks[:1]]
    files = in_files(plan_pieces(chunks, start * MIB, (end + tail) * MIB, 5 * MIB), parts_max)
    flat = [piece for file in files for piece in file]
    bounds = [start * MIB, *(piece.end for piece in flat)]
    assert [(piece.start, piece.end) for piece in flat] == list(itertools.pairwise(bounds))
    assert bounds[-1] == (end + tail) * MIB or not flat
    for file in files:
        parts = parts_of(file)
        assert len(parts) <= parts_max
        assert all(size >= 5 * MIB for size in parts[:-1])
    assert all(sum(parts_of(file)) >= 5 * MIB for file in files[:-1])


# -- the bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 45, 242, 244])
def test_only_what_store_cannot_join_passes_through_client(start):
    for can_join in (True, False):
        world = fill(World(Counting(private_memory(), can_join=can_join), POLICY))
        world.truncate(LOG, start)
        world.backend.clear()
        copied = run(world).copied_bytes
        expected = (0, 244 - max(start, 240)) if can_join else (240 - start // 30 * 30, 244 - start)
        assert (world.backend.read_bytes, copied) == expected


def concat(world: World) -> None:
    fill(world)
    fill(world, OTHER)
    world.truncate(OTHER, 50)
    world.concat(LOG, [OTHER])
    world.append(LOG, b"more" * 20)


def plain_file(world: World) -> str:
    return world.write(LOG, b"plain " * 10)


def others(world: World) -> dict[str, bytes]:
    """All files but those of targets."""
    files = world.backend.inner.fs.store
    return {path: file.getvalue() for path, file in files.items() if not path.startswith("/out/")}


LAYOUTS: dict[str, Callable[[World], object]] = {
    "empty": lambda world: world.create(LOG),
    "one chunk": lambda world: world.create(LOG, [b"x" * 90], POLICY),
    "index pages": lambda world: world.truncate(world.create(LOG, [b"eleven more"] * 300, POLICY), 500),
    "concat": concat,
    "adopted": lambda world: world.append(plain_file(world), b"and more" * 10),
    "plain file": plain_file,
    "empty file": lambda world: world.write(LOG, b""),
    "consolidated": lambda world: fill(world).consolidate(LOG),
    "sealed": lambda world: fill(world).seal(LOG),
    **{f"from {start} on": lambda world, start=start: fill(world).truncate(LOG, start) for start in (45, 242, 244)},
}


@pytest.mark.parametrize("parts_max", [3, *slowly(9_000)])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("store", [{}, {"join_part_bytes_min": 25}, {"join_part_bytes_min": 70}, {"can_join": False}])
def test_every_layout_is_exported_as_it_is_read(store, name, parts_max, limits):
    limits(passing, READ_BYTES_MAX=64)
    limits(export, in_files=lambda plan: in_files(plan, parts_max))
    limits(pieces, COPY_PART_BYTES=80, READ_PART_BYTES=80)
    world = World(Counting(private_memory(), **store), POLICY)
    LAYOUTS[name](world)
    content, before = world.content(LOG), others(world)
    for target, overwrite in (("/out/1", False), ("/out/1", True), ("/out/[2]*", False)):
        told: list[int] = []
        done = run(world, target=target, overwrite=overwrite, progress=told.append)
        assert raw(world, target) == content
        assert (done.path, done.target, done.size, sum(told)) == (LOG, target, len(content), len(content))
        assert done.joined_bytes + done.copied_bytes == len(content)
        assert (world.files(target), others(world)) == ([], before)


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        (LOG, ValueError, "own name"),
        (f"{LOG}$header", ValueError, "reserved"),
        (f"{LOG}$chunks/file", ValueError, "reserved"),
        ("/folder/$removed", ValueError, "reserved"),
        ("/folder/$stream", ValueError, "reserved"),
        (OTHER, FileExistsError, "is a segment"),
        ("/folder", IsADirectoryError, "is a folder"),
        ("/there", FileExistsError, "overwrite=True"),
    ],
)
def test_invalid_target_is_refused_before_anything_is_touched(target, error, match):
    store = Store()
    world = World(Faulty(store), POLICY, CLOCK.time)
    fill(world)
    fill(world, OTHER)
    world.write("/there", FOREIGN)
    world.backend.prepare()
    before = store.snapshot()
    for overwrite in {False, target != "/there"}:
        with pytest.raises(error, match=match):
            run(world, target=target, overwrite=overwrite)
    assert store.snapshot() == before
    assert not any(verb in CHANGING | {"open_write"} for verb, _ in world.backend.trace)


def test_what_is_too_large_for_one_object_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "OBJECT_BYTES_MAX", 243)
    world = fill(World(BackendWrapper(private_memory()), POLICY))
    run(world)  # a disk has no such limit
    limit(world.backend, has_folders=False)
    with pytest.raises(ValueError, match="244 bytes, but one object at most 243"):
        run(world, target="/out/2")


DAMAGES = [(b"", {}), (b"", {"can_join": False}), (b"?", {"can_join": False}), (b"?", {"join_part_bytes_min": 40})]


@pytest.mark.parametrize(("byte", "store"), DAMAGES)
def test_missing_or_damaged_chunk_is_named_and_leaves_nothing(byte, store):
    world = fill(World(Counting(private_memory(), **store), POLICY))
    file = f"{names.chunks_folder(LOG)}/{world.files(LOG)[3]}"
    data = drive(world.backend.read(file)).data
    drive(world.backend.delete([file]))
    if byte:
        world.write(file, byte + data[1:])
    with pytest.raises(CorruptChunkError, match=file[-20:]):
        run(world)
    assert (raw(world), world.files(TARGET)) == (None, [])


# -- others meanwhile ------------------------------------------------------------------------------------------


def client(store: Store) -> World:
    return World(Faulty(store), POLICY, CLOCK.time)


def filled() -> tuple[Store, World]:
    """A store with the segment, and a client whose calls may meet faults, or others."""
    store = Store()
    fill(client(store))
    return store, client(store)


def calls_of_an_export(**options: Any) -> list[tuple[str, Any]]:
    _, world = filled()
    run(world, **options)
    return list(world.backend.trace)


def unless_there(act: Callable[[World], object], world: World) -> None:
    with contextlib.suppress(FileExistsError):
        act(world)


def put(world: World) -> None:
    drive(world.backend.delete([TARGET]))
    world.write(TARGET, FOREIGN)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("meanwhile", "other"), [(put, FOREIGN), (run, CONTENT), (lambda world: world.create(TARGET), None)]
)
def test_whoever_makes_target_between_two_calls_it_is_whole(meanwhile, other):
    """The simulation lets the segment itself change meanwhile."""
    for index in range(len(calls_of_an_export())):
        store, world = filled()
        world.backend.prepare(between={index: partial(unless_there, meanwhile, client(store))})
        is_done = False
        try:
            is_done = run(world).size == len(CONTENT)
        except (FileExistsError, ConflictError) as error:
            said = str(error)
        assert is_done or re.search(f"(export it again|another name|overwrite=True).*{TARGET}|{TARGET}.*it again", said)
        found = raw(client(store))
        is_hidden = drive(client(store).client.headers.load(TARGET)).live
        assert not (is_hidden and (is_done or found)), "a segment would hide it"
        assert found == other or (is_done and found == CONTENT)
        assert client(store).files(TARGET) == []


@pytest.mark.parametrize("joins", [False, True])
def test_plain_file_that_is_replaced_meanwhile_is_not_exported(joins: bool) -> None:
    async def replace_file() -> None:
        await backend.inner.delete([LOG])
        await backend.inner.write(LOG, [b"y" * 60])

    backend = Scripted(private_memory(), can_join=joins)
    backend.plan(("upload.copy", "read_range"), lambda path: path in (TARGET, LOG), before=replace_file, times=None)
    world = World(backend, POLICY)
    plain_file(world)
    with pytest.raises((ConflictError, FileNotFoundError), match="log"):
        run(world)
    assert (raw(world), world.files(TARGET)) == (None, [])


# -- faults ----------------------------------------------------------------------------------------------------


FAULTS = ("BEFORE", "REFUSED", "AFTER", "LOST", "LATE", "CRASH_BEFORE", "CRASH_AFTER")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_after_any_fault_the_export_is_whole_or_absent(fault, replaces):
    for index, (verb, _) in some(enumerate(calls_of_an_export(overwrite=replaces))):
        store, world = filled()
        if replaces:
            drive(store.write(TARGET, [FOREIGN]))
        world.backend.prepare({index: Fault[fault]})
        with contextlib.suppress(OSError, Crashed):
            run(world, overwrite=replaces)
        assert raw(client(store)) in (FOREIGN if replaces else None, CONTENT), (index, verb)
        store.lapse(60)
        again = client(store)
        unless_there(partial(run, overwrite=replaces), again)
        assert raw(again) == CONTENT
        assert again.files(TARGET) == []
        assert client(store).content(LOG) == CONTENT


@pytest.mark.parametrize("is_collected", [True, False])
def test_dead_exports_remains_go_with_the_next_run(tmp_path, is_collected):
    world = fill(World(BackendWrapper(LocalBackend(sync=True)), POLICY), f"{tmp_path}/log")
    upload = drive(world.backend.open_write(f"{tmp_path}/out/file", Over.NOTHING))
    drive(upload.write(b"half"))
    upload._inner._file.close()
    assert len(world.files(f"{tmp_path}/out/file")) == 1
    fs = RollingFileSystem("file")
    assert fs.ls(f"{tmp_path}/out") == []
    if is_collected:
        fs.collect(str(tmp_path), recursive=True, grace=0)
    else:
        run(world, f"{tmp_path}/log", f"{tmp_path}/out/file")
        assert (tmp_path / "out/file").read_bytes() == CONTENT
    assert world.files(f"{tmp_path}/out/file") == []
