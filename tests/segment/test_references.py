"""What headers refer to, folder by folder: the same as entry by entry, and found out once."""

import dataclasses
import uuid
from functools import partial
from unittest import mock

import pytest

from rollingfs import RollingPolicy
from rollingfs.folders.collect_tree import collect_tree
from rollingfs.format import line_codec, names
from rollingfs.format.header import Merge, Phase
from rollingfs.format.side_files import Pin, format_pin, pin_path
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit import index_pages
from rollingfs.segment.commit.index_pages import Pages
from tests.support.backends import Scripted, private_memory
from tests.support.examples import slowly
from tests.support.life import World

TARGET = "/tree/target"
SMALL = RollingPolicy(max_bytes=4, inline_bytes=0)


def concatenated(world: World, sources: int) -> None:
    """A segment of many chunks in the folders of many others."""
    paths = [world.create(f"/tree/source-{number:03d}", [bytes(4 * 20)]) for number in range(sources)]
    world.concat(world.create(TARGET), paths)


def collect_below(world: World) -> None:
    assert drive(collect_tree(world.client, "/tree", grace_s=0)).failures == ()


@pytest.mark.parametrize("busy", [True, *slowly(False)])
@pytest.mark.parametrize("collect", [lambda world: world.collect(TARGET), *slowly(collect_below)])
def test_target_pages_are_parsed_once_for_all_sources(collect, busy):
    counts = []
    for sources in (10, 40):
        store = Scripted(private_memory())
        concatenated(World(store, SMALL), sources)
        if busy:  # somebody appends to the target whenever a folder is listed
            grow = partial(World(store.inner, SMALL).append, TARGET, b"more")
            store.plan("list", lambda path: "source-" in path, before=grow, times=None)
        with mock.patch.object(line_codec, "parse_chunk_line", wraps=line_codec.parse_chunk_line) as parsed:
            collect(World(store, SMALL))
        counts.append(parsed.call_count)
    assert counts[1] <= 6 * counts[0]


def test_knowledge_is_forgotten_before_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_pages, "FILES_KNOWN_MAX", 300)
    world = World(policy=SMALL)
    concatenated(world, 10)
    known = Pages(world.backend, world.client.runtime)
    header = world.header(TARGET)
    one_by_one = {entry.file for entry in header.entries} | {chunk.file for chunk in world.chunks(TARGET)}
    expected = {names.resolve(TARGET, file) for file in one_by_one}
    assert (header.drops, header.start) == ((), 0)
    for _ in range(3):
        folders = {names.parent(file) for file in expected}
        assert {file for folder in folders for file in drive(known.referred(TARGET, header, folder))} == expected
        assert sum(len(files) for page in known._listed_files.values() for files in page.values()) <= 300


@pytest.mark.parametrize("pieces", [1, 300], ids=["in the header", "in a page"])
def test_a_folder_in_another_case_keeps_files(pieces: int) -> None:
    """As on a disk that ignores case, where references keep the old spelling, and still lead to the file."""
    world = World(policy=SMALL)
    old, new = "/tree/Source", "/tree/SOURCE"
    world.concat(world.create(TARGET), [world.create(old, [bytes(4 * pieces)])])
    folder = names.chunks_folder(new)
    for name in world.files(old):
        world.write(f"{folder}/{name}", drive(world.backend.read(f"{names.chunks_folder(old)}/{name}")).data)
    before = world.files(new)
    assert len(before) > pieces
    world.collect(new)
    assert world.files(new) == before


@pytest.mark.parametrize(("other", "is_evident"), [("/tree/SOURCE", True), ("/tree/other", False)])
def test_a_pin_is_evidence_in_another_case(other: str, is_evident: bool) -> None:
    world = World()
    target, txn = world.create("/far/target"), str(uuid.uuid4())
    source = world.header(world.create(other))
    folder = names.chunks_folder(target)
    world.write(pin_path(folder, txn), format_pin(Pin(txn, "/tree/Source", target, source.segment), folder))
    mark = Merge(txn, "../far/target", world.header(target).segment, Phase.OPEN, 0)
    merging = dataclasses.replace(source, merge=mark)
    assert drive(world.client.commits.merges._is_evident(other, target, merging)) == is_evident
