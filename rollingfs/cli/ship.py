"""``ship``: local files that grow, appended to segments, each line once."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from rollingfs.cli import output
from rollingfs.cli.command import Commands, Time, parse_when
from rollingfs.cli.errors import WrongUsage, value_of
from rollingfs.cli.running import stopping
from rollingfs.cli.session import Session
from rollingfs.ship import Shipper, observe
from rollingfs.show.readable import count_text

commands = Commands("Write")

FilesOf = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE... TARGET", show_default=False, help="Local files or patterns in quotes; then where they go."
    ),
]


@commands("ship")
def ship(
    session: Session,
    files: FilesOf,
    once: bool = False,
    into: bool = False,
    commit_on: str = "1s,8MiB",
    prefix: str = "",
    partial_after: Time = None,
    source: str | None = None,
    seal_on_rotate: bool = False,
    delete_after: bool = False,
) -> None:
    """Follow local files, and append their new lines to segments, each line exactly once.

    The commit that appends lines also sets the position in the file, so a shipper may be killed, or started twice.
    Files that are rotated, compressed or cut are followed. TARGET is a segment; or a folder with a segment for each
    file, if it ends with a slash, or there are several files. With --json: name, size and commits.

    Parameters
    ----------
    once
        Ship the lines that are there, and end.
    into
        TARGET is one segment for all files.
    commit_on : WHEN
        Commit by time, bytes or lines.
    prefix : TEXT
        Put a text before each line, with {host}, {file} or {path} in it.
    partial_after : TIME
        Ship a line without its end after this time; by default it waits for its end.
    source : NAME
        A name for this host's positions. Hosts that ship files of equal names into one segment need it.
    seal_on_rotate
        Make TARGET a folder with a segment for each rotated file, which is sealed when the next file begins.
    delete_after
        Delete a rotated file once it is committed, and sealed with --seal-on-rotate. Linux only.
    """
    *paths, target = files
    if not paths:
        raise WrongUsage("give the files, and then a segment or a folder that they go to")
    place = session.place(target)
    when = value_of("--commit-on", commit_on, parse_when)
    try:
        shipper = Shipper(
            place.fs,
            paths,
            place.path,
            into=into,
            commit_on=when,
            prefix=prefix,
            partial_after_s=partial_after,
            source=source,
            seal_on_rotate=seal_on_rotate,
            delete_after=delete_after,
            say=output.complain,
        )
    except (KeyError, ValueError) as error:
        raise WrongUsage(str(error)) from error
    if find_spec("opentelemetry") is not None:  # without a provider of metrics it has no effect
        observe(shipper)
    with stopping() as stop:
        (shipper.once if once else shipper.follow)(stop)
    said = f"{target}: {shipper.bytes:,} bytes in {count_text(shipper.commits, 'commit')}"
    session.report({"name": place.name, "size": shipper.bytes, "commits": shipper.commits}, said)
