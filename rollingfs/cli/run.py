"""Commands by policies and between stores: ``run``, ``offload``, ``onload``, ``roll``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Annotated

import typer

from rollingfs import parquet
from rollingfs.cli import output
from rollingfs.cli.command import FolderOf, PathsOf, Size, Time
from rollingfs.cli.output import WrongUsage
from rollingfs.cli.session import ExpectMark, Session, StorePath, check_mark, stopping
from rollingfs.format.header import GRACE_S
from rollingfs.fs.follower import Follower
from rollingfs.policy import BLOCK_BYTES, DELETION_LAG_S, TIER_DEFAULT
from rollingfs.segment.verbs.offload import Offloaded
from rollingfs.show.readable import count_text
from rollingfs.stream.blocks import OffloadStatus
from rollingfs.stream.upkeep import OFFLOAD, STEPS, Upkeep, Upkept, total, with_rewritten


def tell(session: Session, name: str, status: OffloadStatus) -> None:
    """Say how far a segment is."""
    behind = f"{status.lag_bytes:,} bytes, {status.lag_s:.0f} s behind" if status.lag_bytes else "nothing behind"
    line = f"{name}: in {status.tier!r} up to offset {status.cold_end:,}; {behind}"
    if status.last_error is not None:
        line = f"{name}: tried again soon: {status.last_error}"
    session.report({"name": name, **dataclasses.asdict(status)}, line)
    output.flush()


def run(
    session: Session,
    root: FolderOf,
    every: Time = "30min",
    once: bool = False,
    grace: Time = None,
    readers_grace: Time = "10min",
    follow: bool = False,
    expect_mark: ExpectMark = None,
) -> None:
    """Apply retention, max_age, consolidation, offload policies and collection to all below FOLDER, until stopped.

    A Parquet file that has grown is written again where old footers are more than a tenth of it; that needs pyarrow.

    A line for each stream, and for each segment outside of streams, with work done. Failures are named, and the others
    go on. An idle segment costs the next rounds no request, until it changes, or a day has passed. Rounds do not
    overlap. SIGTERM and Ctrl-C end it after the segments that have begun; a second signal at once.

    With --follow, offload policies are not left to the rounds: a follower moves each block once it is full or max_delay
    old, with the inline bytes, and reports as offload --follow does.

    With --json: round, name, stream, dropped_bytes, deleted, rolled, joined_chunks, joined_to, joined_bytes,
    write_amplification, chunks, moved_bytes, saved_objects, files, collected_bytes, rewritten_bytes and failed of each,
    on a line of its own; then the sums, as name null with streams, segments, seconds and saved_so_far, the objects that
    all rounds of the process have saved.

    Parameters
    ----------
    every : TIME
        Interval between rounds. Rounds never overlap.
    once
        A single round; exit code 1 after a failure.
    grace : TIME
        As of collect: keep younger files (24h); no less with --follow, which writes.
    readers_grace : TIME
        As --grace of consolidate: leave joined files to readers.
    follow
        Offload between the rounds too, block by block, as segments grow.
    """
    if every <= 0:
        raise WrongUsage(f"--every {every:g}: it must be more than 0")
    place = session.place(root)
    check_mark(place, expect_mark)
    session.interrupted = "interrupted at once; what was half done, the next round finishes"
    if follow and once:
        raise WrongUsage("--follow goes on until stopped: leave out --once")
    if follow and grace is not None and grace < GRACE_S:
        raise WrongUsage(f"--grace {grace:g}: less than 24h asserts that no client writes, and --follow writes")
    steps = [step for step in STEPS if step != OFFLOAD or not follow]
    follower = Follower(place.path, fs=place.fs, on_change=partial(tell, session)) if follow else None
    with stopping(*(follower.stop, follower.has_failed) if follower else ()) as stop, follower or nullcontext():
        upkeep = Upkeep(place.core.client, steps, grace_s=grace, readers_grace_s=readers_grace, is_stopped=stop)
        number = saved = 0
        while not (stop() or (once and number)):
            number, began_s, session.code = number + 1, time.monotonic(), output.DONE
            try:
                check_mark(place, expect_mark)
                saved = _round(session, place, number, upkeep, saved)
            except OSError as error:
                if once or number == 1:
                    raise
                output.complain(f"round {number}: {output.in_one_line(error)}")
            output.flush()
            if not (once or stop()):
                stop.wait(_pause_s(time.monotonic() - began_s, every))
        if follower and follower.has_failed():
            output.complain("the follower has ended by an error; what was moved stays moved, run it again for the rest")
    if not once:
        session.code = output.DONE  # it was stopped, as it was meant to be
    elif stop():
        session.code = output.INTERRUPTED


def _pause_s(spent_s: float, every_s: float) -> float:
    """Return the wait for the next round; missed rounds are skipped."""
    missed = int(spent_s // every_s)
    if missed:
        output.complain(
            f"{count_text(missed, 'round')} left out, because this one took {spent_s:.0f} s: raise --every, or run one "
            "process for each part of the tree"
        )
    return every_s - spent_s % every_s


def _round(session: Session, place: StorePath, number: int, upkeep: Upkeep, saved: int) -> int:
    """Do a round; takes and returns the objects that the rounds of this process have saved."""
    began_s = time.monotonic()
    results = []
    for one in _kept(session, place, upkeep):
        results.append(one)
        if _said(one):
            session.report(_fields(one, number), f"{one.path}: {_said(one)}")
    whole = total(results)
    streams = sum(one.is_stream for one in results)
    segments = len(results) - streams
    seconds = time.monotonic() - began_s
    end = "; it was stopped" if upkeep.is_stopped() else ""
    failures = f", {count_text(len(whole.failed), 'failure')}" if whole.failed else ""
    saved += whole.saved_objects
    sums = {"name": None, "streams": streams, "segments": segments, "seconds": seconds, "saved_so_far": saved}
    so_far = f"; {count_text(saved, 'object')} saved so far" if saved and number > 1 else ""
    session.report(
        {**_fields(whole, number), **sums},
        f"round {number}: {count_text(streams, 'stream')} and {count_text(segments, 'other segment')} in {seconds:.1f} "
        f"s: {_said(whole) or 'nothing to do'}{failures}{so_far}{end}",
    )
    return saved


def _kept(session: Session, place: StorePath, upkeep: Upkeep) -> Iterator[Upkept]:
    """Keep all folders below a place, and name unlisted folders."""
    core = place.core
    folders = core.run(upkeep.folders(place.name))
    for path, error in upkeep.tree.unlisted.items():
        failed = Upkept(path, failed={f"list {path}": str(error)})
        _complain(session, failed)
        yield failed

    def rewrite(path: str) -> int:
        return parquet.rewrite(place.fs, path)  # only now it imports Arrow

    for folder in folders:
        if upkeep.is_stopped():
            return
        with session.progress(f"keeping {folder[0]}"):
            results = [with_rewritten(one, rewrite) for one in core.run(upkeep.keep(folder))]
        for one in results:
            _complain(session, one)
            yield one


def offload_by_policies(session: Session, text: str, place: StorePath) -> None:
    """Offload a segment, or everything below a folder, by the policies.

    Raises
    ------
    ValueError
        No segment there has a policy.
    """
    with stopping() as stop:
        results = list(_kept(session, place, Upkeep(place.core.client, (OFFLOAD,), is_stopped=stop)))
    for one in results:
        if one.offloaded.files:
            session.report(_fields(one, 1), f"{one.path}: {_said(one)}")
    whole = total(results)
    if stop():
        session.code = output.INTERRUPTED
        output.complain(f"{text}: interrupted; chunks that were moved stay moved, run it again for the rest")
    elif not whole.has_policy and not whole.failed:
        raise ValueError(
            f"{text}: no offload policy with a tier counts for a segment here, so nothing was moved: give --tier, or "
            "set a policy by: rollingfs policy PATH --tier ALIAS"
        )
    elif not whole.offloaded.files and not whole.failed:
        session.report(_fields(whole, 1) | {"name": place.name}, f"{text}: nothing to do")


def _complain(session: Session, one: Upkept) -> None:
    for what, reason in one.failed.items():
        session.code = output.FAILED
        output.complain(f"cannot {what}: {' '.join(reason.split())}")


def _fields(one: Upkept, number: int) -> dict[str, object]:
    return {"round": number, "name": one.path, "stream": one.is_stream, **one.as_fields()}


def _said(one: Upkept) -> str:
    """Return the work in words, or ""."""
    parts, joined = [], one.consolidated
    if one.dropped_bytes or one.deleted:
        gone = f" with {count_text(len(one.deleted), 'segment')}" if one.deleted else ""
        parts.append(f"retention dropped {one.dropped_bytes:,} bytes{gone}")
    if one.rolled:
        parts.append(f"{count_text(one.rolled, 'idle tail')} made a chunk")
    if joined.replaced:
        parts.append(
            f"{count_text(joined.replaced, 'chunk')} of {joined.bytes:,} bytes joined to {joined.written:,} "
            f"(write amplification {one.write_amplification:.2f})"
        )
    if one.offloaded.chunks:
        parts.append(f"{count_text(one.offloaded.chunks, 'chunk')} of {one.offloaded.bytes:,} bytes moved")
    if one.rewritten_bytes:
        parts.append(f"{one.rewritten_bytes:,} bytes of old Parquet footers freed")
    if one.files:
        parts.append(f"{count_text(one.files, 'file')} of {one.collected_bytes:,} bytes deleted")
    return "; ".join(parts) or ("not all could be done" if one.failed else "")


Upto = Annotated[int | None, typer.Option(metavar="OFFSET", help="Only chunks that end at or before this offset.")]


def offload(
    session: Session,
    path: PathsOf,
    tier: str | None = None,
    upto: Upto = None,
    after_bytes: Size = None,
    after_age: Time = None,
    lag: Time = None,
    follow: bool = False,
    block: Size = None,
    max_delay: Time = None,
) -> None:
    """Move chunks of segments to another store; readers see no difference, and writers may go on.

    Without options, PATH may be a folder too: the policies of its streams and segments decide (see: policy).
    With --follow, the inline bytes move too. It ends when all segments are sealed and moved, or by Ctrl-C or SIGTERM.
    Of a folder, it follows every segment with a policy with a tier (with --tier: all), also later segments.

    With --json: name, chunks, files, bytes and server_bytes of each, on a line of its own; with --follow: name,
    cold_end, assigned, lag_bytes, lag_s, last_error, assigned_at and offloaded_at of each, whenever a block has moved
    or the error has changed.

    Parameters
    ----------
    tier : ALIAS
        A tier of --option tiers.ALIAS.root=URL; by default cold.
    after_bytes : SIZE
        Only chunks before this number of newest bytes.
    after_age : TIME
        Only chunks that are older.
    lag : TIME
        Time to keep the old files for readers that opened it before (4h).
    follow
        Go on as the segments grow, until stopped.
    block : SIZE
        Join neighbours to files of up to this (64MiB).
    max_delay : TIME
        With --follow: move older bytes even if they are fewer.
    """
    alias, deletion_lag = TIER_DEFAULT if tier is None else tier, DELETION_LAG_S if lag is None else lag
    if follow:
        _check_absent("--follow moves all", {"--upto": upto, "--after-bytes": after_bytes, "--after-age": after_age})
        fs, paths = session.places(path)
        try:
            follower = Follower(
                paths, tier, block, max_delay, fs=fs, deletion_lag=lag, on_change=partial(tell, session)
            )
        except ValueError as error:
            raise WrongUsage(str(error)) from error
        with stopping(follower.stop):  # nothing is lost if a second signal ends the process
            follower.run()
        return
    _check_absent("only --follow takes it", {"--max-delay": max_delay})
    session.interrupted = "interrupted; chunks that were moved stay moved, run it again for the rest"
    if all(value is None for value in (tier, upto, after_bytes, after_age, lag, block)):
        for text, place in session.each(path):
            offload_by_policies(session, text, place)
        return
    for text, place in session.each(path):
        with session.progress(f"offloading {text}", place.fs.size(place.path), of_bytes=True) as advance:
            did = place.fs.offload(
                place.path, alias, upto, after_bytes, after_age, deletion_lag, block or BLOCK_BYTES, callback=advance
            )
        _report_moved(session, text, place.name, did, f"moved to {alias!r}")


def onload(session: Session, path: PathsOf, tier: str | None = None, upto: Upto = None, lag: Time = "4h") -> None:
    """Move chunks of segments back from tiers.

    With --json: name, chunks, files, bytes and server_bytes of each, on a line of its own.

    Parameters
    ----------
    tier : ALIAS
        Only from this tier; by default from all.
    lag : TIME
        Time to keep old files, for readers that opened it before.
    """
    session.interrupted = "interrupted; chunks that were moved stay moved, run it again for the rest"
    for text, place in session.each(path):
        with session.progress(f"onloading {text}", place.fs.size(place.path), of_bytes=True) as advance:
            did = place.fs.onload(place.path, tier, upto, deletion_lag=lag, callback=advance)
        _report_moved(session, text, place.name, did, "moved back")


def roll(session: Session, path: PathsOf) -> None:
    """Make the inline bytes of segments chunks now, so that an offload moves them too.

    With --json: name and length of each, on a line of its own.
    """
    for text, place in session.each(path):
        length = place.fs.roll(place.path)
        line = f"{text}: all bytes before offset {length:,} lie in chunks"
        session.report({"name": place.name, "length": length}, line)


def _check_absent(why: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            raise WrongUsage(f"{option}: {why}; leave it out")


def _report_moved(session: Session, text: str, name: str, did: Offloaded, what: str) -> None:
    moved = f"{did.server_bytes:,} bytes by the store, {did.bytes - did.server_bytes:,} through this client"
    line = f"{text}: {count_text(did.chunks, 'chunk')} of {did.bytes:,} bytes {what}; {moved}"
    session.report({"name": name, **dataclasses.asdict(did)}, line)
