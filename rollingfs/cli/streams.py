"""Commands on streams, which are folders of segments: ``cut``, ``trim``, ``retain``."""

from __future__ import annotations

import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rollingfs.cli import output
from rollingfs.cli.command import Size, Time, parse_duration
from rollingfs.cli.output import WrongUsage, picked, value_of
from rollingfs.cli.session import Session
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.trim import Retained, Trimmed

StreamPath = Annotated[str, typer.Argument(metavar="STREAM", show_default=False, help="A folder of segments.")]
Align = Annotated[str | None, typer.Option(metavar="TEXT", help=r"Cut only behind this delimiter, for example '\n'.")]


def cut(session: Session, stream: StreamPath, at: str | None = None, align: Align = None, kept: bool = False) -> None:
    """Write the ends of the segments of a stream, as a line of JSON that trim takes.

    Parameters
    ----------
    at : DATE
        Before bytes that came later: seconds since 1970, or ISO 8601.
    kept
        The cuts that retention has kept, oldest first.
    """
    if kept and (at is not None or align is not None):
        raise WrongUsage("--kept shows cuts that were taken before: --at and --align mean nothing with it")
    place = session.place(stream)
    found = place.fs.stream(place.path)
    for one in found.cuts() if kept else [found.cut(at=_time(at), align=_delimiter(align))]:
        output.say(str(one))


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    with contextlib.suppress(ValueError):  # it may be a date
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise WrongUsage(f"--at {text}: give seconds since 1970, or a date like 2026-11-20T10:00:00Z") from error


def _delimiter(text: str | None) -> bytes | None:
    r"""Return the bytes of a delimiter on the command line; escapes like ``\n`` mean what they mean in Python."""
    if text is None:
        return None
    try:
        return text.encode().decode("unicode_escape").encode("latin-1")
    except ValueError as error:
        raise WrongUsage(f"--align {text}: {error}") from error


def trim(
    session: Session, stream: StreamPath, cut: Annotated[str, typer.Argument()] = "-", as_bytes: bool = False
) -> None:
    """Truncate every segment of a stream to a cut, and delete sealed segments that are wholly before it.

    Parquet is cut by row groups; whole files, like zip, stay. With --json: name, bytes, deleted,
    waiting, failed, left.

    Parameters
    ----------
    cut : [CUT]
        A file that holds the cut, or its text; - to read it.
    as_bytes
        Cut such files by byte all the same.
    """
    place = session.place(stream)
    found = place.fs.stream(place.path)
    where = value_of("CUT", _cut_text(cut), StreamCut.parse)
    session.interrupted = f"{stream}: interrupted; the next trim or retain finishes this trim"
    with session.progress(f"trimming {stream}"):
        did = found.trim(where, as_bytes=as_bytes)
    gone = "".join(f"; deleted {path}" for path in did.deleted)
    row = picked(did, "bytes deleted waiting failed left")
    session.report({"name": found.path, **row}, f"{stream}: {did.bytes:,} bytes trimmed{gone}")
    _complain(session, did)


def _complain(session: Session, did: Trimmed) -> None:
    for path, error in did.failed.items():
        session.code = output.FAILED
        output.complain(f"{path} was left as it is: {error}")
    for reason in did.left.values() if not session.json else ():
        session.say(reason)


def _cut_text(given: str) -> str:
    if given.lstrip().startswith("{"):
        return given
    text = sys.stdin.read() if given == "-" else Path(given).read_text(encoding="utf-8")
    if not text.strip():
        raise WrongUsage(f"{'standard input' if given == '-' else given} is empty: give the line that cut has written")
    return text


def retain(
    session: Session,
    stream: StreamPath,
    by_size: Size = None,
    by_time: Time = None,
    max_: str | None = None,
    max_size: Size = None,
    max_time: Time = None,
    min_size: Size = None,
    min_time: Time = None,
    every: Time = None,
    align: Align = None,
    dry_run: bool = False,
    yes: bool = False,
    as_bytes: bool = False,
) -> None:
    """Run the retention of a stream once: take a cut if it is time, and trim by its policy.

    --by-size or --by-time store a policy first; if its first run would drop more than half of the stream, they ask, or
    need --yes. With both, the stricter counts. With --json: the work of the run.

    Parameters
    ----------
    by_size : SIZE
        From now on keep the newest bytes, like 10GiB.
    by_time : TIME
        Time to keep bytes from now on, like 7d; with --by-size, no more.
    max_ : MAX
        Keep unread bytes of subscribers up to MAX.
    max_size : SIZE
        The same, as bytes.
    max_time : TIME
        The same, as a time.
    min_size : SIZE
        Keep the newest bytes in any case.
    min_time : TIME
        Minimum time to keep bytes.
    every : TIME
        Interval between cuts (30min).
    dry_run
        Only report the work.
    yes : -y
        Do not ask, whatever a new policy drops.
    as_bytes
        As of trim.
    """
    limits = {"min_age": min_time, "min_bytes": min_size, "max_age": max_time, "max_bytes": max_size}
    policy = _policy(by_size, by_time, max_, limits, every, align)
    place = session.place(stream)
    found = place.fs.stream(place.path)
    stored = found.retention
    if policy is None and stored is None:
        found.segments()  # raises if there is no such folder
        if place.fs.get_policy(place.path).retention is None:
            raise ValueError(f"{stream}: the stream has no retention policy; store one by --by-size or --by-time")
    is_new = policy is not None and policy != stored
    if is_new and not dry_run and not yes:
        _ask(session, stream, found.retain(dry_run=True, policy=policy, as_bytes=as_bytes))
    session.interrupted = f"{stream}: interrupted; the next run finishes this one"
    with session.progress(f"retaining {stream}"):
        if is_new and not dry_run:
            found.retention = policy
        did = found.retain(dry_run=dry_run, policy=policy if dry_run else None, as_bytes=as_bytes)
    _report(session, stream, found.path, did)


def _ask(session: Session, stream: str, expected: Retained) -> None:
    """Ask before a new policy drops more than half of a stream.

    Raises
    ------
    WrongUsage
        No person can be asked.
    """
    whole = expected.size + expected.bytes
    if 2 * expected.bytes <= whole:
        return
    would = f"{stream}: this policy would drop {expected.bytes:,} of {whole:,} bytes now"
    if not (session.is_watched and sys.stdin.isatty()):
        raise WrongUsage(f"{would}; no policy was stored, and nothing was dropped: give --yes if that is meant")
    if not typer.confirm(f"{would}. Store it and drop them?", err=True):
        raise ValueError(f"{stream}: no policy was stored, and nothing was dropped")


def _report(session: Session, stream: str, path: str, did: Retained) -> None:
    dry_run = did.dry_run
    done = "would drop" if dry_run else "dropped"
    gone = "".join(f"; {'would delete' if dry_run else 'deleted'} {path}" for path in did.deleted)
    taken = "a cut taken, " if did.taken is not None and not dry_run else ""
    session.report(
        {"name": path, **picked(did, "taken trimmed bytes deleted size failed left dry_run")},
        f"{stream}: {taken}{done} {did.bytes:,} bytes, {did.size:,} left{gone}",
    )
    _complain(session, did)


def _policy(
    by_size: Size, by_time: Time, most: str | None, limits: dict[str, Time], every: Time, align: str | None
) -> RetentionPolicy | None:
    if by_size is None and by_time is None:
        if any(given is not None for given in (most, *limits.values(), every, align)):
            raise WrongUsage("limits, --every and --align are parts of a policy: give --by-size or --by-time with them")
        return None
    if by_size is not None and by_time is not None:
        if most is not None:
            raise WrongUsage(
                "--max means bytes or a time: with both --by-size and --by-time, give --max-size, --max-time"
            )
        kept: dict[str, Any] = {"keep_age": by_time, "keep_bytes": by_size}
    elif by_size is not None:
        kept = {"min_bytes": by_size, "max_bytes": most}
    else:
        kept = {"min_age": by_time, "max_age": most}
    fields = kept | {name: given for name, given in limits.items() if given is not None}
    value_of("--max", None if by_time is None else most, parse_duration)
    try:
        return RetentionPolicy(**fields, every=every, align=_delimiter(align))
    except ValueError as error:
        raise WrongUsage(str(error)) from error
