"""``offload --follow``: moves segments to a tier while they grow, until a signal ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Sequence
from functools import partial
from types import FrameType

from rollingfs.cli import output
from rollingfs.cli.command import Size, Time
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.session import Session
from rollingfs.cli.stopping import SIGNALS, handling
from rollingfs.fs.follower import Follower
from rollingfs.stream.blocks import OffloadStatus


def follow_all(
    session: Session,
    texts: Sequence[str],
    tier: str | None,
    block_bytes: Size,
    max_delay: Time,
    lag: Time,
) -> None:
    """Follow segments of a store, and print the progress of each."""
    fs, paths = session.places(texts)
    try:
        follower = Follower(
            paths, tier, block_bytes, max_delay, fs=fs, deletion_lag=lag, on_change=partial(tell, session)
        )
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    with _ended_by_signals(follower):
        follower.run()


def tell(session: Session, name: str, status: OffloadStatus) -> None:
    """Say how far a segment is."""
    session.report({"name": name, **dataclasses.asdict(status)}, line_of(name, status))
    output.flush()


def line_of(name: str, status: OffloadStatus) -> str:
    """Return the status of a segment in a line."""
    if status.last_error is not None:
        return f"{name}: tried again soon: {status.last_error}"
    behind = f"{status.lag_bytes:,} bytes, {status.lag_s:.0f} s behind" if status.lag_bytes else "nothing behind"
    return f"{name}: in {status.tier!r} up to offset {status.cold_end:,}; {behind}"


def _ended_by_signals(follower: Follower) -> contextlib.AbstractContextManager[None]:
    """Let the first signal stop the follower after the blocks under way.

    A second signal ends the process.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)  # nothing is lost if the process ends at any moment
        follower.stop()

    return handling(stop)
