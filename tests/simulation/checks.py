"""What must be true at the end of a world, and after an erase or a listing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

from rollingfs.format import names
from rollingfs.format.header import Chunk, Header, Page, Phase
from rollingfs.format.side_files import parse_pin
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.meters import REQUEST
from rollingfs.segment.at import lineage
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.erase import Erased
from rollingfs.segment.verbs.rebuild import Rebuilt
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.retention import RetentionPolicy
from tests.simulation.baton import Baton
from tests.simulation.faces import filesystem_of
from tests.simulation.history import TOKENS, Doing, Violation, running, runs_of, token_at
from tests.simulation.model import Call, Seg, by_steps
from tests.simulation.store import Store, Unwatched
from tests.simulation.witness import is_aside
from tests.support.simulation import EPOCH_S
from tests.support.small import verbs

if TYPE_CHECKING:
    from tests.simulation.world import World

LAST_CLOCK_AHEAD_S = 1000 * 24 * 3600.0
SETTLING_S = 60.0
BELIEVED_S = 60.0
"""How long a client believes what a folder says of new segments."""
AWAY = "/moved/away"
MOVED_AWAY_EACH = 4
ROUNDS_MAX = 8
"""Maximum rounds of collection: garbage of segments that hold each other's chunks goes folder by folder."""


# -- after an operation ----------------------------------------------------------------------------------------


def check_erased(world: World, did: Erased, doing: Doing) -> None:
    """No file holds an erased byte that the report does not name."""
    named = {one.file for one in did.remains}
    gone = world.history.gone.get(doing.call.path, frozenset())
    for file, data in world.store.snapshot().items():
        if file in named or is_aside(file):
            continue
        left = gone.intersection(token_at(one.group()) for one in TOKENS.finditer(data))
        if left and not _is_left_behind(world, file, doing):
            raise Violation(f"{file} holds {len(left)} erased tokens, as {min(left)}: {doing}, {did}")


def _is_left_behind(world: World, file: str, doing: Doing) -> bool:
    """Whether its writer crashed, does not know its outcome, or met a fault, and no way leads to its former name."""
    folder = names.parent(names.split_tier(file)[1])
    if file in world.witness.ever_needed or folder == names.chunks_folder(doing.call.path):
        return False
    writer = world.witness.writers.get(file)
    return writer is not None and (writer.is_faulty or writer.told == "unknown")


def check_inherited(world: World, header: Header, doing: Doing) -> None:
    """A new segment has the fields that its folder and those above said, as late as clients believe them."""
    folders = lineage(world.clients[0], names.parent(doing.call.path))
    since_s = doing.began_s - BELIEVED_S
    said = [[one.rolling for one in world.witness.ledgers_since(folder, since_s)] for folder in reversed(folders)]
    was_refused = world.ways[doing.client].refused_s >= doing.began_s - BELIEVED_S
    unread: list[Mapping[str, Any]] = [{}] if doing.is_faulty or was_refused else []
    good = {
        reduce(RollingPolicy.inheriting, fields, world.policy) for fields in product(*(one + unread for one in said))
    }
    if header.policy not in good:
        raise Violation(f"it has {header.policy}, and should have one of {good}: {doing}")
    world.counts["policies inherited"] += header.policy != world.policy


def check_listed(world: World, found: Sequence[dict[str, Any]], doing: Doing) -> None:
    """Each segment is listed as it was at some moment, and only what was absent is missing."""
    folder, infos = doing.call.path, {info["name"]: info for info in found}
    for path in world.paths:
        if names.parent(path) != folder:
            continue
        info, segs = infos.get(path), list(world.history.segs(path, doing))
        if info is None and None not in segs:
            raise Violation(f"{path} is not listed, but was there all the time: {doing}, {segs}")
        if info is None or "error" in info:
            continue
        facts = (info["start_offset"], info["length"], info["size"], info["sealed"])
        if facts not in [(seg.start, seg.length, len(seg.data), seg.sealed) for seg in segs if seg is not None]:
            raise Violation(f"{path} is listed as {facts}, but was never so: {doing}, {segs}")


# -- folders ---------------------------------------------------------------------------------------------------


def check_left_nothing(world: World, doing: Doing) -> None:
    """Each segment of a folder that was removed or moved is gone, or has gone and come back."""
    for path in world.paths:
        is_below = path.startswith(f"{doing.call.path}/")
        if is_below and None not in world.history.segs(path, doing) and not world.history.is_overtaken(path, doing):
            raise Violation(f"{path} was there all the time: {doing}")


def check_copied(world: World, made: str, doing: Doing) -> None:
    """The copy of a folder has each segment as it was at some moment, and misses only what was absent."""
    for path in world.paths:
        if not path.startswith(f"{doing.call.path}/"):
            continue
        copy = made + path[len(doing.call.path) :]
        header = world.witness.headers.get(copy)
        data = None if header is None or header.deleted else world.witness.content(copy, header)
        if data not in [None if seg is None else seg.data for seg in world.history.segs(path, doing)]:
            raise Violation(f"{copy} is no copy of {path}, but {runs_of(data or b'')}: {doing}")
        world.counts["copies"] += data is not None


def check_rebuilt(world: World, path: str, did: Rebuilt, doing: Doing) -> None:
    """What is proven to be committed was once there in the segment that is lost."""
    header = world.witness.headers[path]
    data = world.witness.content(path, header)
    if (header.start, header.length, header.tail) != (did.start, did.end, b""):
        raise Violation(f"{path} is not from {did.start} to {did.end}: {doing}")
    folder, needed = names.chunks_folder(doing.call.path), world.witness.ever_needed
    pages = {file: text for file, text in world.store.snapshot().items() if f"/{names.INDEX_PREFIX}" in file}
    for piece in did.pieces:
        alias, file = names.split_tier(piece.file)
        lost, _, name = file.rpartition("/")
        own = f"{folder}/{name}"
        lists = [page for page, text in pages.items() if names.parent(page) == lost and name.encode() in text]
        was_committed = all(f"{folder}/{page.rpartition('/')[2]}" in needed for page in lists)
        was_committed &= (names.in_tier(alias, own) if alias else own) in needed
        if piece.by not in ("page", "later") or not was_committed:
            continue  # the page of an attempt that did not take place says where its chunks would have been
        made = data[piece.start - did.start : piece.end - did.start]
        if not any(_has(seg, piece.start, made) for seg in world.history.line(doing.call.path)):
            raise Violation(f"{piece} was never part of the segment, {runs_of(made)}: {doing}")
    world.counts["rebuilt by proof"] += bool(did.by_page or did.by_later)
    world.counts["rebuilt"] += 1


def _has(seg: Seg | None, start: int, data: bytes) -> bool:
    """Whether a segment has had such bytes there, of which the first may be truncated."""
    if seg is None:
        return False
    first, last = max(seg.start, start), min(seg.length, start + len(data))
    return first < last and seg.data[first - seg.start : last - seg.start] == data[first - start : last - start]


async def check_moved_away(world: World) -> None:
    """Another program has moved all files below another folder: all segments are there, and can be collected."""
    store = Store(world.store.clock, Unwatched())
    for file, data in world.store.snapshot().items() if world.plan.seed % MOVED_AWAY_EACH == 0 else ():
        alias, hot = names.split_tier(file)
        if hot.endswith(names.TIER_MARK):
            store.put_silently(file, data)  # the root of a tier stays
        else:
            store.put_silently(names.in_tier(alias, f"{AWAY}{hot}") if alias else f"{AWAY}{file}", data)
    client = world.client_on(store, lambda: EPOCH_S + world.now_s + LAST_CLOCK_AHEAD_S)
    for path in world.paths if world.plan.seed % MOVED_AWAY_EACH == 0 else ():
        with contextlib.suppress(FileNotFoundError):
            await collect(client, f"{AWAY}{path}", grace_s=0)
        seg = world.history.state.get(path)
        if seg is not None:
            view = await client.headers.view(f"{AWAY}{path}", fresh=True)
            if bytes(await client.fetcher.read(view, view.start, view.length)) != seg.data:
                raise Violation(f"{path} has other bytes, once another program has moved all files")


# -- the end ---------------------------------------------------------------------------------------------------


async def check_end(world: World) -> None:
    """All marks are resolved, and all garbage is collected: only needed files are left, with the right bytes."""
    # files stay for readers until times by the clocks of clients, which were far ahead
    reader = world.client_on(world.store, lambda: EPOCH_S + world.now_s + LAST_CLOCK_AHEAD_S)
    for _ in range(ROUNDS_MAX):
        before = world.store.snapshot()
        for path in (*world.paths, *world.folders):  # verbs of folders look for segments of their names first
            try:
                await collect(reader, path, grace_s=0)
            except FileNotFoundError as error:
                if path in world.history.state:
                    raise Violation(f"{path}: a collection does not find it: {error}") from error
        if world.store.snapshot() == before:
            break
    for path, seg in world.history.state.items():
        view = await reader.headers.view(path, fresh=True)
        data = bytes(await reader.fetcher.read(view, view.start, view.length))
        if (view.start, data, view.sealed, view.attrs) != (seg.start, seg.data, seg.sealed, seg.attrs):
            raise Violation(f"{path} is {view}, {data!r}, and should be {seg}")
    _check_orphans(world)
    _check_outside(world)
    _check_metrics(world)
    await check_moved_away(world)


async def check_tables(world: World) -> None:
    """Growing Parquet files have the rows that their writers were told of, and shipped logs all lines."""
    if world.tables.written or world.tables.unknown:
        fs = filesystem_of(world.client_on(world.store, world.store.clock))
        await Baton(lambda: world.tables.check(fs)).run()
    if world.shipping.written:
        fs = filesystem_of(world.client_on(world.store, world.store.clock))
        await Baton(lambda: world.shipping.check(fs)).run()


async def check_settles(world: World) -> None:
    """Whatever has been, a policy by time drops all in the end, once nobody writes and no subscriber is left."""
    client = world.client_on(world.store, world.store.clock)
    running.set(Doing(0, Call(by_steps, "", is_step=lambda before, after: True), 0, world.history.now))
    for folder in [folder for folder in world.folders if world.ledger(folder) != Ledger()]:
        stream = verbs(client, folder)
        for name in await stream.subscribers():
            await stream.unsubscribe(name)
        await stream.set_offload_policy(OffloadPolicy(""))
        await stream.set_retention(RetentionPolicy(min_age=SETTLING_S, min_bytes=0, every=0))
        for _ in range(3):
            await stream.retain()
            await asyncio.sleep(1.5 * SETTLING_S)
        if size := await stream.size():
            raise Violation(f"{folder} keeps {size} bytes, whatever its policy says: {world.ledger(folder)}")


def _check_orphans(world: World) -> None:
    allowed = {names.in_tier(alias, names.TIER_MARK) for alias in world.store.tiers}
    own = [path(folder) for folder in world.folders for path in (names.listing_path, names.ledger_path)]
    hidden = tuple(f"{path}$" for path in own)
    marks = (f"/{names.REMOVED_NAME}", f"/{names.KEPT_NAME}")
    files = [file for file in world.store.files if not is_aside(file)]
    left = {file for file in files if not file.startswith(hidden) and not file.endswith(marks)}
    orphans = left - _needed(world) - allowed - world.witness.outside
    orphans = {file for file in orphans if not _is_blocked(world, file)}
    if orphans:
        raise Violation(f"nobody needs {sorted(orphans)}")


def _is_blocked(world: World, file: str) -> bool:
    """Whether a pin keeps it whose target is absent, and whose source is no more what it was: nobody knows the move.

    The tombstone of the folder stays as well: it goes once the folder is empty.
    """
    is_header = file.endswith(names.HEADER_SUFFIX)
    hot, dates = names.split_tier(file)[1], []
    folder = names.chunks_folder(names.segment_of_header(hot)) if is_header else names.parent(hot)
    for pin_file in world.store.files:
        if names.parent(pin_file) == folder and f"/{names.PIN_PREFIX}" in pin_file:
            pin = parse_pin(world.store.content(pin_file) or b"", folder, pin_file)
            source = world.witness.headers.get(pin.source)
            is_undone = source is not None and source.segment == pin.incarnation and source.merged != pin.txn
            if pin.target not in world.witness.headers and not is_undone:
                dates.append(world.store.files[pin_file].modified)
    is_kept = bool(dates) and (is_header or world.store.files[file].modified <= max(dates))
    world.counts["files kept by pins of absent targets"] += is_kept
    return is_kept


def _needed(world: World) -> set[str]:
    """The files of all visible segments."""
    witness, needed = world.witness, set()
    for path in world.paths:
        header = witness.headers.get(path)
        if header is None or header.deleted:
            needed |= {path} if path in world.history.state else set()
            continue
        if header.phase is Phase.MERGING:
            raise Violation(f"{path} is still a source")
        loose = [one for one in header.entries if isinstance(one, Chunk)]
        files = {names.locate(path, chunk.file, chunk.tier) for chunk in [*witness.chunks(path, header), *loose]}
        files |= {names.resolve(path, one.file) for one in header.entries if isinstance(one, Page)}
        needed |= {names.header_path(path), *files, *_pins_needed(world, files, path)}
    return needed


def _pins_needed(world: World, files: set[str], path: str) -> set[str]:
    """What protects chunks in other folders: pins, headers of the folders, tombstones of sources."""
    folders = {names.parent(names.split_tier(file)[1]) for file in files} - {names.chunks_folder(path)}
    needed = {names.header_path(names.segment_of_folder(folder)) for folder in folders}
    for file in world.store.files:
        if names.parent(file) in folders and f"/{names.PIN_PREFIX}" in file:
            pin = parse_pin(world.store.content(file) or b"", names.parent(file), file)
            needed |= {file, names.header_path(pin.source)} if pin.target == path else set()
    return needed


def _check_outside(world: World) -> None:
    for path, data in world.outside.items():
        if world.store.content(path) != data:
            raise Violation(f"{path} is not what it was: {world.store.content(path)!r}")


def _check_metrics(world: World) -> None:
    """Each client has counted the calls that its way to the store has seen."""
    for way, client in world.past:
        if way.pending or way.is_dead:
            continue
        counted = {
            name.removeprefix(REQUEST): tally.count
            for name, tally in client.meters.total().items()
            if name.startswith(REQUEST)
        }
        if counted != dict(way.calls):
            raise Violation(f"a client has counted {counted}, and made {dict(way.calls)}")
