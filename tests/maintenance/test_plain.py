"""The plain copy: a sealed segment as one file under its plain name, whatever crashes or goes on beside it."""

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollingfs import CorruptChunkError, RollingPolicy, SegmentNotSealedError
from rollingfs.backend.contract import ABSENT
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.folders.collect_tree import TreeCollector
from rollingfs.format import names
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.header import GRACE_S, Adopted, Chunk, Header, Origin, PlainCopy
from rollingfs.maintenance import plain
from rollingfs.maintenance.pieces import plan_pieces
from rollingfs.read.snapshot import View
from rollingfs.runtime.concurrency import drive
from tests.support.faults import CHANGING, CLOCK, Crashed, Fault, FaultBackend, Store, hurry
from tests.support.life import World, private_store

LOG, MOVED = "/folder/log", "/folder/moved"
POLICY = RollingPolicy(max_bytes=100, inline_bytes=10)
SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
CONTENT = b"".join(bytes([65 + number]) * 30 for number in range(8)) + b"tail"
CALLS_MAX = 100
WRITERS = 4


class Counting(BackendWrapper):
    """Counts the bytes that pass through the client; joins as an object store does, or not at all."""

    def __init__(self, inner, *, joins=True, part_bytes_min=0, deletes=True):
        super().__init__(inner)
        self.can_join = joins
        self.join_part_bytes_min = part_bytes_min
        self.can_delete_if = deletes
        self.read_bytes = 0

    async def call(self, verb, *args):
        answer = await super().call(verb, *args)
        self.read_bytes += len(answer) if verb == "read_range" else 0
        return answer


def fill(world, path=LOG):
    """A sealed segment of several chunks and an inline tail."""
    world.create(path, [CONTENT[start : start + 30] for start in range(0, 240, 30)], POLICY)
    world.append(path, b"tail")
    world.seal(path)
    return world


def write(world, path=LOG, **options):
    return drive(world.client.plain_copies.write(path, **options))


def raw(world, path=LOG):
    """What other tools see under a name; None if there is no file."""
    try:
        return drive(world.backend.read(path)).data
    except FileNotFoundError:
        return None


def exists(world, path=LOG):
    try:
        drive(world.client.lookup.view(path, fresh=True))
    except FileNotFoundError:
        return False
    return True


def collect(world, grace_s=0.0):
    return drive(TreeCollector(world.client).collect("/folder", grace_s=grace_s))


# -- the header's line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [PlainCopy(SEGMENT, 7), PlainCopy(SEGMENT, 0, 1_800_000_000_123)])
def test_the_line_of_a_plain_copy_is_read_as_it_was_written(copy):
    header = Header(SEGMENT, 3, plain_copy=copy)
    assert parse_header(format_header(header), "log") == header


def test_the_line_of_the_file_that_was_adopted_is_read_as_it_was_written_and_is_of_one_incarnation():
    header = Header(SEGMENT, 3, origin=Origin(SEGMENT, 1_700_000_000_123))
    assert parse_header(format_header(header), "log") == header
    copied = Header(SEGMENT, 3, adopted=Adopted("t", 2), plain_copy=PlainCopy(SEGMENT, 0))
    assert Header(SEGMENT, 3, adopted=Adopted("t", 2)).origin_ms is None  # it may have been overwritten
    assert copied.origin_ms is None
    assert replace(copied, origin=Origin(SEGMENT, 1)).origin_ms == 1
    assert replace(copied, origin=Origin("c0ffee00-0000-4000-8000-000000000001", 1)).origin_ms is None


def test_a_line_that_was_carried_into_another_incarnation_means_nothing():
    for copy in (PlainCopy("c0ffee00-0000-4000-8000-000000000001", 0), PlainCopy(SEGMENT, 5)):
        assert not Header(SEGMENT, 3, plain_copy=copy).has_plain_copy
    assert not Header(SEGMENT, 3, plain_copy=PlainCopy("c0ffee00-0000-4000-8000-000000000001", 0, 1)).must_settle
    assert Header(SEGMENT, 3, plain_copy=PlainCopy(SEGMENT, 5, 1)).must_settle


# -- the plan --------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.lists(st.integers(1, 30), max_size=20), st.integers(0, 30), st.integers(0, 12), st.integers(0, 5))
def test_pieces_hold_every_byte_once_and_only_the_last_is_too_short_for_a_part(sizes, start, part_min, tail):
    chunks, end = [], start
    for size in sizes:
        chunks.append(Chunk(end, size, "x", None, 0))
        end += size
    pieces = plan_pieces(chunks, start, end + tail, part_min)
    position = start
    for piece in pieces:
        assert piece.start == position < piece.end
        assert piece.chunk is None or piece.chunk.start <= piece.start < piece.end <= piece.chunk.end
        position = piece.end
    assert position == end + tail
    assert all(piece.end - piece.start >= part_min for piece in pieces[:-1])
    assert all(before.chunk or after.chunk for before, after in itertools.pairwise(pieces))


def test_bytes_of_large_chunks_are_not_read_for_a_small_one_between_them():
    sizes = [100, 3, 100]
    chunks = [Chunk(sum(sizes[:index]), size, "x", None, 0) for index, size in enumerate(sizes)]
    pieces = plan_pieces(chunks, 0, 205, 10)
    assert [(piece.start, piece.end, piece.chunk is None) for piece in pieces] == [
        (0, 100, False),
        (100, 110, True),
        (110, 203, False),
        (203, 205, True),
    ]


def test_a_short_first_chunk_does_not_cost_all_that_come_after_it():
    chunks = [Chunk(6, 4, "x", None, 0), *(Chunk(start, 10, "x", None, 0) for start in (10, 20, 30))]
    pieces = plan_pieces(chunks, 6, 40, 10)
    assert [(piece.start, piece.end, piece.chunk is None) for piece in pieces] == [
        (6, 20, True),
        (20, 30, False),
        (30, 40, False),
    ]


# -- the bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 45, 242, 244])
@pytest.mark.parametrize("store", [{}, {"part_bytes_min": 25}, {"joins": False}])
def test_the_plain_file_has_what_is_retained_and_the_segment_stays_what_it_is(store, start):
    world = fill(World(Counting(private_store(), **store), POLICY))
    world.truncate(LOG, start)
    before, files = world.header(LOG), world.files(LOG)
    told = []
    drive(world.client.plain_copies.files.replaces(LOG))  # the probe reads what it has written
    world.backend.read_bytes = 0
    copied = write(world, progress=told.append)
    through = world.backend.read_bytes
    assert raw(world) == world.content(LOG) == CONTENT[start:]
    assert (copied.size, copied.joined_bytes + copied.copied_bytes, sum(told)) == (244 - start,) * 3
    if not store:
        assert (through, copied.copied_bytes) == (0, 244 - max(start, 240))
    if not store.get("joins", True):
        assert (through, copied.joined_bytes) == (240 - min(start, 240), 0)
    header = world.header(LOG)
    assert header.has_plain_copy
    assert (header.entries, header.tail, header.start, header.sealed) == (before.entries, before.tail, start, True)
    assert world.files(LOG) == files
    assert write(world).size == 0
    assert collect(world).files == ()
    assert raw(world) == CONTENT[start:]


def test_more_parts_than_one_join_takes_are_joined_in_two_steps(monkeypatch):
    monkeypatch.setattr(plain, "PARTS_MAX", 3)
    world = fill(World(Counting(private_store()), POLICY))
    files = world.files(LOG)
    write(world)
    assert (raw(world), world.files(LOG)) == (CONTENT, files)


def test_what_may_still_grow_has_no_plain_copy():
    world = World(policy=POLICY)
    world.create(LOG, [b"x" * 30])
    version = world.header(LOG).version
    with pytest.raises(SegmentNotSealedError, match="log is not sealed; seal"):
        write(world)
    assert (world.header(LOG).version, raw(world)) == (version, None)
    with pytest.raises(FileNotFoundError):
        write(world, "/folder/nothing")
    with pytest.raises(FileNotFoundError, match="another has its name"):
        write(world, segment=SEGMENT)


def test_a_file_that_is_not_the_segments_is_left_alone():
    world = fill(World(policy=POLICY))
    drive(world.backend.write(LOG, [b"somebody else's"]))
    with pytest.raises(FileExistsError, match="not the segment's"):
        write(world)
    assert raw(world) == b"somebody else's"
    assert not world.header(LOG).is_copying


def test_a_folder_that_has_the_plain_name_is_named(tmp_path):
    world = World(LocalBackend(sync=False), POLICY)
    path = f"{tmp_path}/log"
    for each in (path, f"{path}/below"):
        world.create(each, [b"x" * 30])
        world.seal(each)
    with pytest.raises(FileExistsError, match="A folder has its plain name"):
        write(world, path)
    assert not world.header(path).is_copying
    assert write(world, f"{path}/below").size == 30


def test_the_file_that_was_adopted_gives_way_to_the_copy():
    world = World(policy=POLICY)
    drive(world.backend.write(LOG, [b"plain "]))
    world.append(LOG, b"and more" * 10)
    world.seal(LOG)
    assert raw(world) == b"plain "
    write(world)
    assert raw(world) == world.content(LOG) == b"plain " + b"and more" * 10


def test_a_missing_chunk_is_named_and_no_copy_is_left():
    world = fill(World(policy=POLICY))
    lost = f"{names.chunks_folder(LOG)}/{world.files(LOG)[3]}"
    drive(world.backend.delete([lost]))
    with pytest.raises(CorruptChunkError, match="missing"):
        write(world)
    assert raw(world) is None
    drive(world.client.segments.delete(LOG))
    assert not exists(world)


def test_what_is_too_large_for_one_object_is_refused(monkeypatch):
    monkeypatch.setattr(plain, "COPY_BYTES_MAX", 243)
    world = fill(World(policy=POLICY))
    with pytest.raises(ValueError, match="244 bytes: at most 243"):
        write(world)
    assert (raw(world), world.header(LOG).plain_copy) == (None, None)


# -- the end of a copy -----------------------------------------------------------------------------------------


def remove(world):
    drive(world.client.segments.delete(LOG))
    assert not exists(world)


def rename(world):
    content = world.content(LOG)
    drive(world.client.concats.rename(LOG, MOVED))
    assert not exists(world)
    assert world.content(MOVED) == content
    assert not world.header(MOVED).has_plain_copy


def concat(world):
    content = world.content(LOG)
    world.create(MOVED, [b"before "], POLICY)
    drive(world.client.concats.concat(MOVED, [LOG]))
    assert not exists(world)
    assert world.content(MOVED) == b"before " + content


def overwrite(world):
    drive(world.client.segments.overwrite(LOG, [b"new content"]))
    assert world.content(LOG) == b"new content"


def replace_by_rename(world):
    world.create(MOVED, [b"other"], POLICY)
    drive(world.client.concats.rename(MOVED, LOG))
    assert world.content(LOG) == b"other"


def truncate(world):
    world.truncate(LOG, 100)
    assert world.content(LOG) == CONTENT[100:]


ENDS = [remove, rename, concat, overwrite, replace_by_rename, truncate]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("deletes", [True, False])
def test_a_copy_goes_with_its_segment_and_once_it_is_stale(end, deletes):
    world = fill(World(Counting(private_store(), deletes=deletes), POLICY))
    write(world)
    end(world)
    assert raw(world) == (None if deletes and end in (remove, rename, concat) else CONTENT)
    world.backend.shift_s = 2 * GRACE_S
    would_go = drive(TreeCollector(world.client).collect("/folder", dry_run=True)).files
    assert (LOG in would_go) == (raw(world) is not None)
    collect(world)
    assert raw(world) == (None if deletes else CONTENT)  # hidden, where a store has no conditional delete
    assert exists(world) == (end not in (remove, rename, concat))


def test_a_stale_copy_is_replaced_by_a_new_one():
    world = fill(World(policy=POLICY))
    write(world)
    truncate(world)
    assert write(world).size == 144
    assert raw(world) == CONTENT[100:]
    collect(world)
    assert raw(world) == CONTENT[100:]


def test_a_reader_of_an_older_snapshot_is_not_disturbed():
    world = fill(World(policy=POLICY))
    loaded = drive(world.client.headers.load(LOG))
    write(world)
    assert drive(world.client.fetcher.read(View(LOG, loaded.header, loaded.token), 0, 244)) == CONTENT


# -- crashes, faults, and others meanwhile ---------------------------------------------------------------------


@pytest.fixture
def _virtual_time(monkeypatch):
    hurry(monkeypatch)


def client(store):
    return World(FaultBackend(store), POLICY, CLOCK.time)


def trace_of_a_write():
    world = client(Store())
    fill(world)
    fresh = client(world.backend.inner)
    fresh.backend.prepare()
    write(fresh)
    assert len(fresh.backend.trace) <= CALLS_MAX
    return [index for index, (_, path) in enumerate(fresh.backend.trace) if "/probe-" not in str(path)], fresh


def changing_calls():
    calls, world = trace_of_a_write()
    return [index for index in calls if world.backend.trace[index][0] in CHANGING]


def no_copy_is_left(store, path=LOG):
    """After a day, and a collection."""
    world = client(store)
    store.lapse(2 * GRACE_S)
    collect(world)
    collect(world)
    assert raw(world, path) is None
    named = set()
    for segment in (LOG, MOVED):
        if exists(world, segment):
            found = world.header(segment)
            named |= {
                names.resolve(segment, chunk.file) for chunk in drive(world.client.pages.unfold(segment, found.entries))
            }
    there = {file for file in store.files() if "$chunks/" in file}
    assert {file for file in there if "/pin-" not in file and "/index-" not in file} == named


def filled(faults):
    """A store with the segment, and a client that meets faults at some of its calls."""
    store = Store()
    fill(client(store))
    world = client(store)
    world.backend.prepare(faults)
    return store, world


def with_a_crash(index, crash):
    """A store on which the client that wrote the copy died at one of its calls."""
    store, broken = filled({index: crash})
    with pytest.raises(Crashed):
        write(broken)
    return store


@pytest.mark.usefixtures("_virtual_time")
@pytest.mark.parametrize("crash", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("then", [write, *ENDS])
def test_what_a_crash_breaks_off_is_finished_or_goes_with_the_segment(then, crash):
    for index in changing_calls():
        store = with_a_crash(index, crash)
        store.lapse(1)
        healer = client(store)
        assert healer.content(LOG) == CONTENT
        then(healer)
        if then is write:
            assert raw(healer) == CONTENT
            assert healer.header(LOG).has_plain_copy
            remove(client(store))
        no_copy_is_left(store)


@pytest.mark.usefixtures("_virtual_time")
def test_what_a_crash_leaves_of_a_live_segment_is_collected():
    for index in changing_calls():
        store = with_a_crash(index, Fault.CRASH_AFTER)
        whole = client(store).header(LOG).has_plain_copy
        collect(client(store), GRACE_S)
        store.lapse(2 * GRACE_S)
        collect(client(store), GRACE_S)
        assert raw(client(store)) == (CONTENT if whole else None)
        assert client(store).content(LOG) == CONTENT


@pytest.mark.slow
@pytest.mark.usefixtures("_virtual_time")
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.CONFLICT, Fault.BUSY, Fault.LATE])
def test_any_fault_is_ridden_out_or_finished_by_the_next_run(fault):
    for index in trace_of_a_write()[0]:
        store, world = filled({index: fault})
        with contextlib.suppress(OSError):
            write(world)
        store.lapse(60)
        write(client(store))
        assert raw(client(store)) == client(store).content(LOG) == CONTENT
        assert client(store).header(LOG).has_plain_copy
        remove(client(store))
        no_copy_is_left(store)


def other_write(world):
    write(world)


def collect_meanwhile(world):
    collect(world, GRACE_S)


@pytest.mark.usefixtures("_virtual_time")
@pytest.mark.parametrize("meanwhile", [other_write, collect_meanwhile, *ENDS])
def test_whatever_happens_between_two_calls_no_copy_outlives_what_it_is_of(meanwhile):
    for index in trace_of_a_write()[0]:
        store = Store()
        fill(client(store))
        world, other = client(store), client(store)
        world.backend.prepare(between={index: lambda other=other: meanwhile(other)})
        with contextlib.suppress(FileNotFoundError, SegmentNotSealedError, ConflictError):
            write(world)
        assert not world.backend.between
        after = client(store)
        if meanwhile in (other_write, collect_meanwhile, truncate):
            expected = CONTENT[100:] if meanwhile is truncate else CONTENT
            assert after.content(LOG) == raw(after) == expected or index == 0
            store.lapse(2 * GRACE_S)
            collect(after)
            copy = raw(after)
            assert copy == (after.content(LOG) if after.header(LOG).has_plain_copy else None)
            remove(after)
        no_copy_is_left(store)


class Meanwhile(BackendWrapper):
    """Others act, once, just before or just after the request that makes the plain file."""

    def __init__(self, inner, then, *, after=False, joins=True, replaces=True, deletes=True):
        super().__init__(inner)
        self.can_join = joins
        self.can_delete_if = deletes
        self.then = then
        self.after = after
        self.replaces = replaces

    async def call(self, verb, *args):
        if verb == "join" and not self.replaces and args[2:] not in ((), (ABSENT,)):
            raise UnsafeBackendError("this store knows no such condition")
        is_made = (verb == "join" and args[1] == LOG) or (verb == "upload.finish" and args[0] == LOG)
        if is_made and not self.after:
            self.act()
        answer = await super().call(verb, *args)
        if is_made and self.after:
            self.act()
        return answer

    def act(self):
        if self.then is not None:
            then, self.then = self.then, None
            then(self.inner)


FOREIGN = b"of another program"


def put(store, content=FOREIGN):
    """As other programs write: whatever is there."""
    drive(store.delete([LOG]))
    drive(store.write(LOG, [content]))


def put_as_long(store):
    put(store, bytes(len(CONTENT)))


def put_what_begins_alike(store):
    put(store, CONTENT[:-1] + b"!")


def removed_and_another_file_there(store):
    remove(World(store, POLICY))
    put(store)


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_came_after_the_segment_was_deleted_is_left_alone(after, joins):
    store = private_store()
    world = World(Meanwhile(store, removed_and_another_file_there, after=after, joins=joins), POLICY)
    fill(World(store, POLICY))
    with pytest.raises(FileNotFoundError):
        write(world)
    assert world.backend.then is None
    assert raw(world) == world.content(LOG) == FOREIGN


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("foreign", [put, put_as_long, put_what_begins_alike])
@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_others_put_there_just_before_or_after_the_join_is_not_lost(after, foreign, joins):
    store = private_store()
    world = World(Meanwhile(store, foreign, after=after, joins=joins), POLICY)
    fill(World(store, POLICY))
    with pytest.raises(FileExistsError, match="not the segment's"):
        write(world)
    theirs = raw(world)
    assert world.backend.then is None
    assert theirs != CONTENT
    assert world.header(LOG).adopted is None
    assert not world.header(LOG).is_copying
    assert world.content(LOG) == CONTENT
    world.backend.shift_s = 2 * GRACE_S
    collect(world)
    assert raw(world) == theirs
    remove_segment(world)
    collect(world)
    assert raw(world) == world.content(LOG) == theirs


def remove_segment(world):
    """The file of its name comes to life."""
    drive(world.client.segments.delete(LOG))


@pytest.mark.parametrize(
    "store", [{}, {"replaces": False}, {"deletes": False}, {"joins": False}, {"joins": False, "deletes": False}]
)
def test_a_file_that_others_put_over_a_stale_copy_is_not_lost_when_that_is_replaced(store):
    inner = private_store()
    write(fill(World(inner, POLICY)))
    world = World(Meanwhile(inner, put, **store), POLICY)
    truncate(world)
    with pytest.raises(FileExistsError, match="not the segment's"):
        write(world)
    assert raw(world) == FOREIGN
    assert world.content(LOG) == CONTENT[100:]


@pytest.mark.usefixtures("_virtual_time")
@pytest.mark.parametrize("foreign", [put, put_as_long, put_what_begins_alike])
@pytest.mark.parametrize("then", [rename, concat, replace_by_rename, overwrite, collect, remove_segment])
def test_a_file_that_others_put_there_after_a_crash_is_not_taken_for_the_copy(then, foreign):
    calls, trace = changing_calls(), trace_of_a_write()[1].backend.trace
    joined = next(index for index in calls if trace[index][0] == "join" and trace[index][1][-1].path.startswith(LOG))
    store = with_a_crash(joined, Fault.CRASH_BEFORE)
    assert client(store).header(LOG).is_copying
    foreign(store)
    theirs = raw(client(store))
    with pytest.raises(FileExistsError, match="not the segment's"):
        write(client(store))
    if then is rename:
        drive(client(store).client.concats.rename(LOG, MOVED))
    elif then is concat:
        client(store).create(MOVED, [b"before "], POLICY)
        drive(client(store).client.concats.concat(MOVED, [LOG]))
    else:
        then(client(store))
    store.lapse(2 * GRACE_S)
    collect(client(store))
    collect(client(store))
    assert raw(client(store)) == theirs
    if then in (rename, concat, remove_segment):
        assert client(store).content(LOG) == theirs


@pytest.mark.usefixtures("_virtual_time")
def test_what_a_dead_writer_has_joined_is_committed_without_writing_it_again():
    last = changing_calls()[-1]
    store = with_a_crash(last, Fault.CRASH_BEFORE)
    assert raw(client(store)) == CONTENT
    assert client(store).header(LOG).is_copying
    told = []
    world = client(store)
    assert write(world, progress=told.append).size == 0
    assert sum(told) == len(CONTENT)
    assert world.header(LOG).has_plain_copy
    assert not any(verb == "join" and LOG in map(str, args) for verb, args in world.backend.trace)


def test_a_store_that_joins_over_whatever_is_there_writes_no_plain_copy():
    class Careless(BackendWrapper):
        async def call(self, verb, *args):
            if verb == "join":
                await super().call("delete", [args[1]])
            return await super().call(verb, *args)

    world = fill(World(Careless(private_store()), POLICY))
    version, files = world.header(LOG).version, world.files(LOG)
    with pytest.raises(UnsafeBackendError, match="a new file over an existing one did not fail"):
        write(world)
    assert (raw(world), world.header(LOG).version, world.files(LOG)) == (None, version, files)


def test_a_store_without_any_condition_for_what_is_there_keeps_its_stale_copy():
    world = fill(World(Meanwhile(private_store(), None, replaces=False, deletes=False), POLICY))
    write(world)
    truncate(world)
    version = world.header(LOG).version
    with pytest.raises(UnsafeBackendError, match="delete it with another tool"):
        write(world)
    assert (raw(world), world.header(LOG).version) == (CONTENT, version)
    drive(world.backend.delete([LOG]))
    assert write(world).size == 144
    assert raw(world) == CONTENT[100:]


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("end", [remove, rename, concat])
def test_a_copy_that_came_too_late_does_not_come_to_life(end, deletes):
    inner = private_store()
    fill(World(inner, POLICY))
    late = Meanwhile(inner, lambda store: end(World(store, POLICY)), joins=False, deletes=deletes)
    world = World(late, POLICY)
    with pytest.raises(FileNotFoundError):
        write(world)
    assert raw(world) == (None if deletes else CONTENT)
    assert not exists(world)


def test_writers_at_the_same_moment_agree():
    store = private_store()
    fill(World(store, POLICY))
    with ThreadPoolExecutor(WRITERS) as pool:
        worlds = [World(store, POLICY) for _ in range(WRITERS)]
        copies = [result.result() for result in [pool.submit(write, world) for world in worlds]]
    assert sum(copy.size > 0 for copy in copies) == 1
    assert raw(worlds[0]) == CONTENT
    assert worlds[0].header(LOG).has_plain_copy


# -- stores ----------------------------------------------------------------------------------------------------


def test_other_tools_on_a_disk_read_the_copy_and_it_is_not_the_chunks_file(tmp_path):
    fs = fsspec.filesystem("rolling", target_protocol="file", max_bytes=1000, inline_bytes=10, skip_instance_cache=True)
    path = f"{tmp_path}/log"
    fs.create(path)
    for number in range(30):
        fs.append(path, bytes([number]) * 100)
    fs.truncate(path, 250)
    fs.seal(path)
    segment = fs.segment(path)
    told = []
    done = segment.consolidate(grace=0, plain=True, progress=told.append)
    assert (done.plain_bytes, sum(told)) == (2750, 2 * 2750)
    assert (tmp_path / "log").read_bytes() == fs.cat_file(path)
    assert (tmp_path / "log").stat().st_nlink == 1
    assert segment.consolidate(plain=True).plain_bytes == 0
    assert fs.ls(str(tmp_path), detail=False) == [path]
    fs.mv(path, f"{path}-moved")
    assert not (tmp_path / "log").exists()
    assert fs.size(f"{path}-moved") == 2750
    fs.rm(f"{path}-moved")
    fs.collect(str(tmp_path), recursive=True, grace=0)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_file_is_consolidated_already(tmp_path):
    fs = fsspec.filesystem("rolling", target_protocol="file", skip_instance_cache=True)
    (tmp_path / "plain").write_bytes(b"x" * 10)
    for options in ({}, {"plain": True}):
        assert fs.segment(f"{tmp_path}/plain").consolidate(**options).written == 0
    world = World(policy=POLICY)
    drive(world.backend.write(LOG, [b"plain"]))
    assert world.consolidate(LOG).written == 0
    with pytest.raises(FileNotFoundError):
        world.consolidate("/folder/nothing")


def test_an_open_segment_is_not_touched_by_a_consolidation_that_asks_for_a_plain_copy(tmp_path):
    fs = fsspec.filesystem("rolling", target_protocol="file", max_bytes=1000, inline_bytes=0, skip_instance_cache=True)
    fs.create(f"{tmp_path}/log")
    fs.append(f"{tmp_path}/log", b"x")
    fs.append(f"{tmp_path}/log", b"y")
    with pytest.raises(SegmentNotSealedError):
        fs.segment(f"{tmp_path}/log").consolidate(plain=True)
    assert len(fs.segment(f"{tmp_path}/log").chunks) == 2


@pytest.mark.parametrize("size", [100, 2000])
def test_on_a_disk_a_file_that_others_put_there_meanwhile_is_not_lost_and_no_half_copy_is_seen(tmp_path, size):
    store = LocalBackend(sync=False)
    log = f"{tmp_path}/log"
    seen = []

    class Watching(BackendWrapper):
        async def call(self, verb, *args):
            answer = await super().call(verb, *args)
            if verb in ("upload.write", "read_range"):
                seen.append((tmp_path / "log").exists())
            if verb == "upload.write" and args[0] == log and is_foreign:
                (tmp_path / "theirs").write_bytes(FOREIGN)
                (tmp_path / "theirs").rename(tmp_path / "log")
            return answer

    world = World(Watching(store), POLICY)
    world.backend.can_join = False
    world.create(log, [bytes([number % 251]) * 50 for number in range(size // 50)], POLICY)
    world.seal(log)
    is_foreign = True
    with pytest.raises(FileExistsError, match="not the segment's"):
        write(world, log)
    assert (tmp_path / "log").read_bytes() == FOREIGN
    (tmp_path / "log").unlink()
    is_foreign = False
    seen.clear()
    write(world, log)
    assert not any(seen)
    assert (tmp_path / "log").read_bytes() == world.content(log)
    assert not any("tmp" in file for file in world.files(log))


class MeanwhileOnS3(BackendWrapper):
    """Another tool writes the plain name between the last check and the request that makes the file."""

    def __init__(self, inner, path):
        super().__init__(inner)
        self.path = path
        self.foreign = b""

    async def call(self, verb, *args):
        if self.foreign and ((verb == "join" and args[1] == self.path) or (verb, args[0]) == ("open_write", self.path)):
            foreign, self.foreign = self.foreign, b""
            await self._write_before_the_end(foreign)
        return await super().call(verb, *args)

    async def _write_before_the_end(self, foreign):
        client = self.inner._client
        call, put = client.call, client.put

        async def before(bucket, key):
            if key == self.path.partition("/")[2]:
                client.call, client.put = call, put
                await put(bucket, key, [foreign])

        async def hooked_call(name, **arguments):
            if name == "complete_multipart_upload":
                await before(arguments["Bucket"], arguments["Key"])
            return await call(name, **arguments)

        async def hooked_put(bucket, key, *arguments):
            await before(bucket, key)
            return await put(bucket, key, *arguments)

        client.call, client.put = hooked_call, hooked_put


MIB = 2**20


@pytest.mark.parametrize(
    ("chunk", "count"),
    [
        pytest.param(1000, 3, id="one request"),
        pytest.param(9 * MIB, 2, id="joined"),
        pytest.param(3 * MIB, 6, id="uploaded in parts", marks=pytest.mark.slow),
    ],
)
def test_on_s3_a_file_that_another_tool_puts_between_the_check_and_the_join_is_not_lost(
    s3_options, bucket, chunk, count
):
    path = f"{bucket}/log"
    below = fsspec.filesystem("rolling", target_protocol="s3", target_options=s3_options, skip_instance_cache=True)
    backend = MeanwhileOnS3(below._backend, path)
    fs = fsspec.filesystem("rolling", backend=backend, max_bytes=chunk, inline_bytes=0, skip_instance_cache=True)
    s3 = fsspec.filesystem("s3", **s3_options, skip_instance_cache=True, use_listings_cache=False)
    content = b"".join(bytes([65 + number]) * chunk for number in range(count))
    fs.create(path, policy=RollingPolicy(max_bytes=chunk, inline_bytes=0))
    fs.append(path, content)
    fs.seal(path)
    copies = fs._client.plain_copies
    # MinIO deletes unconditionally; moto completes uploads over any file unless there is to be none
    assert fs._bridge.run(copies.files.replaces(path)) is not fs._bridge.run(copies.files.deletes(path))
    backend.foreign = FOREIGN
    with pytest.raises(FileExistsError, match="not the segment's"):
        fs._bridge.run(copies.write(path))
    assert (s3.cat_file(path), backend.foreign) == (FOREIGN, b"")
    assert fs.cat_file(path) == content
    s3.rm_file(path)
    fs._bridge.run(copies.write(path))
    assert s3.cat_file(path) == content
    fs.truncate(path, 10)  # and over the older copy
    backend.foreign = FOREIGN
    with pytest.raises(FileExistsError, match="not the segment's"):
        fs._bridge.run(copies.write(path))
    assert (s3.cat_file(path), backend.foreign) == (FOREIGN, b"")
    s3.rm_file(path)
    fs._bridge.run(copies.write(path))
    assert s3.cat_file(path) == fs.cat_file(path) == content[10:]
