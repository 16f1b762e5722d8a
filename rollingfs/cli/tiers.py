"""Commands that move chunks between the hot store and tiers: ``offload``, ``onload``, ``roll``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import typer

from rollingfs.cli.command import PathsOf, Size, Time
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.run import follow_all, offload_by_policies
from rollingfs.cli.session import Session
from rollingfs.policy import BLOCK_BYTES, DELETION_LAG_S, TIER_DEFAULT
from rollingfs.segment.verbs.offload import Offloaded
from rollingfs.show.readable import count_text

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
        follow_all(session, path, tier, block, max_delay, lag)
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
        _report(session, text, place.name, did, f"moved to {alias!r}")


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
        _report(session, text, place.name, did, "moved back")


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


def _report(session: Session, text: str, name: str, did: Offloaded, what: str) -> None:
    moved = f"{did.server_bytes:,} bytes by the store, {did.bytes - did.server_bytes:,} through this client"
    line = f"{text}: {count_text(did.chunks, 'chunk')} of {did.bytes:,} bytes {what}; {moved}"
    session.report({"name": name, **dataclasses.asdict(did)}, line)
