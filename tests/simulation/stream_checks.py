"""What cuts, trims and retention may do to a stream, and must say of it."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import TYPE_CHECKING

from rollingfs.format import names
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.trim import Retained, Trimmed
from tests.simulation.history import TOKENS, Doing, Violation, running, token_at
from tests.simulation.model import Seg, State

if TYPE_CHECKING:
    from tests.simulation.world import World


def check_step(world: World, doing: Doing, before: State, after: State) -> None:
    """A run of retention alone has dropped no more than the policy lets go that it found."""
    if not doing.call.is_retaining or not doing.is_alone or world.is_waiting:
        return
    for path, old in before.items():
        new, folder = after.get(path), names.parent(path)
        policy = doing.policies.get(folder)
        lost = len(old.data) - (0 if new is None else len(new.data))
        is_open = folder == "/top/sub" and world.was_refused(doing)  # what it inherits; `check_remembered` knows both
        if policy is None or not lost or is_open:
            continue
        if old.segment is None and world.ledger(folder).retention is None:
            raise Violation(f"{path} is a plain file, and a folder above speaks of segments: {doing}")
        left = sum(len(seg.data) for one, seg in after.items() if names.parent(one) == folder)
        if left < (policy.min_bytes or 0):
            raise Violation(f"{folder} has {left} bytes left, by {policy}: {doing}")
        age_s, has_maxima = _age_s(world, old.data[:lost]), (policy.max_age, policy.max_bytes) != (None, None)
        is_by_age = policy.keep_bytes is None and not has_maxima
        if age_s < max(policy.min_age or 0.0, policy.keep_age or 0.0 if is_by_age else 0.0):
            raise Violation(f"{path} has lost bytes that are {age_s} s old, by {policy}: {doing}")
        world.counts["bytes dropped by policies"] += lost
        if world.is_unread(path, old, old.start + lost):
            world.counts["unread bytes dropped by maxima"] += lost
            if not _is_over(world, policy, folder, doing):
                raise Violation(f"{path} has lost unread bytes, by {policy}: {doing}")


def check_remembered(world: World, folder: str, before: Ledger, after: Ledger) -> None:
    """What a run of retention stores lets go nothing younger than the least age, and is cut behind whole records.

    The memory has the policy that counts, so this holds whatever else goes on.
    """
    doing = running.get()
    if doing is None or not doing.call.is_retaining:
        return
    policies = [after.under(above).retention for above in world.inherited(folder, doing)]
    least_s = min((one.min_age or 0.0) if one is not None else 0.0 for one in policies)
    for name, goal in after.goals.items():
        seg = world.history.state.get(f"{folder}/{name}")
        if goal == before.goals.get(name) or seg is None or goal.segment not in seg.ids:
            continue
        if (age_s := _age_s(world, seg.data[: max(goal.offset - seg.start, 0)])) < least_s:
            raise Violation(f"{folder}/{name} is to lose bytes that are {age_s} s old, by {policies}: {goal}, {doing}")
        world.counts["goals of retention"] += 1
    known = {(name, cut.incarnation(name), offset) for cut in before.cuts for name, offset in cut.items()}
    for name, offset in after.cuts[-1].items() if after.cuts and None not in policies else ():
        incarnation = after.cuts[-1].incarnation(name)
        if (name, incarnation, offset) not in known:
            aligns = {one.align for one in policies if one is not None}
            world.counts["aligned offsets of retention"] += None not in aligns
            _check_place(world, f"{folder}/{name}", offset, incarnation, aligns, doing)


def _age_s(world: World, data: bytes) -> float:
    """How long all of these bytes have been there, at least; without any, for ever."""
    tokens = [token_at(one.group()) for one in TOKENS.finditer(data)]
    return world.store.clock() - max((world.history.written_s[token] for token in tokens), default=-math.inf)


def _check_place(
    world: World, path: str, offset: int, incarnation: str | None, aligns: Set[bytes | None], doing: Doing
) -> None:
    """A cut lies where a segment ended at some moment, or behind its last delimiter; a truncation may have come after.

    Of several ways to align it, any is good.
    """
    segs = [seg for seg in world.history.segs(path, doing) if seg is not None and incarnation in seg.ids]
    places = {
        min(max(_end_of(seg, align), later.start), seg.length)
        for place, seg in enumerate(segs)
        for later in segs[place:]
        for align in aligns
    }
    if offset not in places:
        raise Violation(f"{path} never ended at {offset}, by {aligns}, but at {places}: {doing}, {segs}")


def _end_of(seg: Seg, align: bytes | None) -> int:
    """Where a segment ends, or the last whole record in it."""
    if align is None:
        return seg.length
    place = seg.data.rfind(align)
    return seg.start + (place + len(align) if place >= 0 else 0)


def _is_over(world: World, policy: RetentionPolicy, folder: str, doing: Doing) -> bool:
    """Whether a folder held more than a maximum, or older bytes, when a run of retention began."""
    paths = [path for path in world.paths if names.parent(path) == folder]
    found = [seg for path in paths if (seg := world.history.at(path, doing.began)) is not None]
    tokens = [token_at(one.group()) for seg in found for one in TOKENS.finditer(seg.data)]
    age_s = world.store.clock() - min(world.history.written_s[token] for token in tokens)
    is_large = policy.max_bytes is not None and sum(len(seg.data) for seg in found) > policy.max_bytes
    return is_large or (policy.max_age is not None and age_s > policy.max_age)


def check_cut(world: World, cut: StreamCut, doing: Doing, align: bytes | None) -> None:
    """Each segment is cut where it ended at some moment, or its last record; only what was absent is missing."""
    for path in world.paths:
        if names.parent(path) != doing.call.path:
            continue
        segs = list(world.history.segs(path, doing))
        if path not in cut:
            # what cannot be read is left out, and what is another segment than listed when it is read for delimiters
            is_another = align is not None and len({seg.ids for seg in segs if seg is not None}) > 1
            if None not in segs and not doing.is_faulty and not is_another:
                raise Violation(f"{path} is not in {cut}, but was there all the time: {doing}")
        else:
            _check_place(world, path, cut[path], cut.incarnations[path], {align}, doing)


def check_trimmed(world: World, cut: StreamCut, did: Trimmed, doing: Doing) -> None:
    """All that lay before the cut is gone, and the report says how much this call has dropped."""
    _check_dropped(did, doing)
    for path, incarnation in cut.incarnations.items() if doing.is_alone and not did.failed else ():
        seg = world.history.state.get(path)
        is_left = seg is not None and (seg.start < cut[path] or (seg.sealed and seg.length == cut[path]))
        if seg is not None and is_left and incarnation in seg.ids:
            raise Violation(f"{path} was not trimmed to {cut[path]}: {doing}, {seg}")


def check_retained(world: World, did: Retained, doing: Doing) -> None:
    """The report says how much the run has dropped, and what is left."""
    _check_dropped(did, doing)
    state, folder = world.history.state, doing.call.path
    found = [seg for path, seg in state.items() if names.parent(path) == folder]
    if world.ledger(folder).retention is None and not did.dry_run:  # that of a folder above leaves plain files alone
        found = [seg for seg in found if seg.segment is not None]
    size = sum(len(seg.data) for seg in found)
    if doing.is_alone and not doing.is_faulty and not did.failed and did.size != size:
        raise Violation(f"{folder} has {size} bytes left: {doing}, {did}")


def _check_dropped(did: Trimmed | Retained, doing: Doing) -> None:
    """A segment that failed may have lost bytes all the same, if a delete after the commit failed."""
    if did.bytes != doing.dropped and not (did.failed and did.bytes < doing.dropped):
        raise Violation(f"it has dropped {doing.dropped} bytes, and says {did}: {doing}")
