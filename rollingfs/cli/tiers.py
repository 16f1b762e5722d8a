"""Commands that move chunks between the hot store and tiers: ``offload``, ``onload``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated

import typer

from rollingfs.cli.command import Commands, Paths
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.run import offload_by_policies
from rollingfs.cli.session import Session
from rollingfs.fs.readable import count_text
from rollingfs.maintenance import Offloaded
from rollingfs.maintenance.offload import DELETION_LAG_S, TIER_DEFAULT
from rollingfs.policy import parse_bytes, parse_seconds

commands = Commands()

Lag = Annotated[str, typer.Option(metavar="TIME", help="Keep the old files so long for readers that opened it before.")]
Upto = Annotated[int | None, typer.Option(metavar="OFFSET", help="Only chunks that end at or before this offset.")]


@commands("offload")
def offload(
    session: Session,
    path: Paths,
    tier: Annotated[
        str | None, typer.Option(metavar="ALIAS", help="A tier of --option tiers.ALIAS.root=URL; by default cold.")
    ] = None,
    upto: Upto = None,
    after_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Only chunks before the newest so many bytes.")
    ] = None,
    after_age: Annotated[str | None, typer.Option(metavar="TIME", help="Only chunks that are older.")] = None,
    lag: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep the old files so long, for readers that opened it before (4h)."),
    ] = None,
) -> None:
    """Move chunks of segments to another store; readers see no difference, and writers may go on.

    Without options, PATH may be a folder too: the policies of its streams and segments decide (see: policy).

    With --json: name, chunks, files, bytes and server_bytes of each, on a line of its own.
    """
    for name, value, parse in (
        ("--after-bytes", after_bytes, parse_bytes),
        ("--after-age", after_age, parse_seconds),
        ("--lag", lag, parse_seconds),
    ):
        _check(name, value, parse)
    session.interrupted = "interrupted; chunks that were moved stay moved, run it again for the rest"
    if all(value is None for value in (tier, upto, after_bytes, after_age, lag)):
        for text in path:
            offload_by_policies(session, text)
        return
    alias, deletion_lag = TIER_DEFAULT if tier is None else tier, DELETION_LAG_S if lag is None else lag
    for text in path:
        place = session.place(text)
        with session.progress(f"offloading {text}", place.fs.size(place.path), of_bytes=True) as advance:
            did = place.fs.offload(
                place.path, alias, upto, after_bytes, after_age, deletion_lag=deletion_lag, progress=advance
            )
        _report(session, text, place.fs._strip(place.path), did, f"moved to {alias!r}")


@commands("onload")
def onload(
    session: Session,
    path: Paths,
    tier: Annotated[str | None, typer.Option(metavar="ALIAS", help="Only from this tier; by default from all.")] = None,
    upto: Upto = None,
    lag: Lag = "4h",
) -> None:
    """Move chunks of segments back from tiers.

    With --json: name, chunks, files, bytes and server_bytes of each, on a line of its own.
    """
    _check("--lag", lag, parse_seconds)
    session.interrupted = "interrupted; chunks that were moved stay moved, run it again for the rest"
    for text in path:
        place = session.place(text)
        with session.progress(f"onloading {text}", place.fs.size(place.path), of_bytes=True) as advance:
            did = place.fs.onload(place.path, tier, upto, deletion_lag=lag, progress=advance)
        _report(session, text, place.fs._strip(place.path), did, "moved back")


def _check(option: str, text: str | None, parse: Callable[[str], object]) -> None:
    try:
        if text is not None:
            parse(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from error


def _report(session: Session, text: str, name: str, did: Offloaded, what: str) -> None:
    moved = f"{did.server_bytes:,} bytes by the store, {did.bytes - did.server_bytes:,} through this client"
    line = f"{text}: {count_text(did.chunks, 'chunk')} of {did.bytes:,} bytes {what}; {moved}"
    session.report({"name": name, **dataclasses.asdict(did)}, line)
