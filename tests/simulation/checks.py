"""What must be true at the end of a world, and after an erase or a listing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rollingfs.format import names
from rollingfs.format.header import Chunk, Page, Phase
from rollingfs.format.pin_codec import parse_pin
from rollingfs.maintenance.erased import Erased
from rollingfs.runtime.meters import REQUEST
from tests.simulation.history import TOKENS, Doing, Violation, token_at
from tests.simulation.witness import EXPORTS
from tests.support.simulation import EPOCH_S

if TYPE_CHECKING:
    from tests.simulation.world import World

LAST_CLOCK_AHEAD_S = 1000 * 24 * 3600.0
ROUNDS_MAX = 8
"""Maximum rounds of collection: garbage of segments that hold each other's chunks goes folder by folder."""


# -- after an operation ----------------------------------------------------------------------------------------


def check_erased(world: World, did: Erased, doing: Doing) -> None:
    """No file holds an erased byte that the report does not name."""
    named = {one.file for one in did.remains}
    gone = world.history.gone.get(doing.call.path, frozenset())
    for file, data in world.store.snapshot().items():
        if file in named or f"/{names.ASK_PREFIX}" in file or file.startswith(EXPORTS):
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


# -- the end ---------------------------------------------------------------------------------------------------


async def check_end(world: World) -> None:
    """All marks are resolved, and all garbage is collected: only needed files are left, with the right bytes."""
    # files stay for readers until times by the clocks of clients, which were far ahead
    reader = world.client_on(world.store, lambda: EPOCH_S + world.now_s + LAST_CLOCK_AHEAD_S)
    for _ in range(ROUNDS_MAX):
        before = world.store.snapshot()
        for path in world.paths:
            try:
                await reader.collector.collect(path, grace_s=0)
            except FileNotFoundError as error:
                if path in world.history.state:
                    raise Violation(f"{path}: a collection does not find it: {error}") from error
        if world.store.snapshot() == before:
            break
    for path, seg in world.history.state.items():
        view = await reader.lookup.view(path, fresh=True)
        data = bytes(await reader.fetcher.read(view, view.start, view.length))
        if (view.start, data, view.sealed, view.attrs) != (seg.start, seg.data, seg.sealed, seg.attrs):
            raise Violation(f"{path} is {view}, {data!r}, and should be {seg}")
    _check_orphans(world)
    _check_outside(world)
    _check_metrics(world)


def _check_orphans(world: World) -> None:
    allowed = {names.in_tier(alias, names.TIER_MARK) for alias in world.store.tiers}
    own = [path(folder) for folder in world.folders for path in (names.listing_path, names.ledger_path)]
    hidden = (EXPORTS, *(f"{path}$" for path in own))
    left = {file for file in world.store.files if not file.startswith(hidden)}
    orphans = left - _needed(world) - allowed - world.witness.outside
    orphans = {file for file in orphans if not _is_blocked(world, file)}
    if orphans:
        raise Violation(f"nobody needs {sorted(orphans)}")


def _is_blocked(world: World, file: str) -> bool:
    """Whether a pin keeps it whose target is absent, and whose source is no more what it was: nobody knows the move."""
    folder, dates = names.parent(names.split_tier(file)[1]), []
    for pin_file in world.store.files:
        if names.parent(pin_file) == folder and f"/{names.PIN_PREFIX}" in pin_file:
            pin = parse_pin(world.store.content(pin_file) or b"", folder, pin_file)
            source = world.witness.headers.get(pin.source)
            is_undone = source is not None and source.segment == pin.incarnation and source.merged != pin.txn
            if pin.target not in world.witness.headers and not is_undone:
                dates.append(world.store.files[pin_file].modified)
    is_kept = bool(dates) and world.store.files[file].modified <= max(dates)
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
