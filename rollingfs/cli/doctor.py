"""The command that examines a store: ``doctor``."""

from __future__ import annotations

import dataclasses
import math

from rich.table import Table
from rich.text import Text

from rollingfs.backend.checkup import NO, RACES, YES, Checkup, examine
from rollingfs.cli import errors, output
from rollingfs.cli.command import Commands
from rollingfs.cli.disk_trial import try_disk
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.session import Session
from rollingfs.errors import visible

commands = Commands("Stores and Spark")

ROUNDS_A_RACE = 10
"""Appends to a segment on a disk, of each of four processes, for a race of other stores."""
STYLES = {YES: "green", NO: "red"}


@commands("doctor")
def doctor(session: Session, url: str, races: int = RACES, seconds: float = 0.0) -> None:
    """Find out what a store can do, and whether segments are safe there; ends with exit code 3 if they are not.

    It writes some files of its own, 17 MiB in all, into a hidden folder at the URL, and deletes them. On a disk it
    tries locks, renames over open files, flushes, and four processes at once.

    With --json: store, is_safe, refusal, and findings with what, answer and means.

    Parameters
    ----------
    url : URL
        A bucket or a folder.
    races : N
        The number of races of each kind. More races find a store whose mistakes are rarer.
    seconds : SECONDS
        Race again until this time has passed.
    """
    if races < 1 or not 0 <= seconds < math.inf:
        raise WrongUsage("--races is at least 1, and --seconds is not negative")
    place = session.place(url)
    path, core = place.name, place.core
    backend = core.backend
    if not path and not backend.capability.has_folders:
        raise WrongUsage(f"{url}: name a bucket")
    session.interrupted = "interrupted; small files of the examination may have stayed, which collect -r deletes"
    with session.progress(f"examining {url}"):
        found = core.run(examine(backend, core.client.runtime, path, races, seconds))
        if found.store.startswith("file://"):
            found = _with_trial(found, path, races)
    if not found.is_safe:
        session.code = errors.DAMAGED
    if session.json:
        output.write_json(dataclasses.asdict(found))
        return
    output.say(f"{found.store}: {'safe' if found.is_safe else 'NOT SAFE'} to write to")
    output.show(_table(found))
    if not found.is_safe:
        output.complain(found.refusal)


def _with_trial(found: Checkup, folder: str, races: int) -> Checkup:
    findings = try_disk(folder, ROUNDS_A_RACE * races)
    wrong = [f"{one.what}: {one.means}" for one in findings if one.answer == NO]
    refusal = "; ".join([found.refusal] * bool(found.refusal) + wrong)
    return dataclasses.replace(
        found, findings=(*found.findings, *findings), is_safe=found.is_safe and not wrong, refusal=refusal
    )


def _table(found: Checkup) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found.findings:
        table.add_row(one.what, Text(one.answer, STYLES.get(one.answer, "")), visible(one.means))
    return table
