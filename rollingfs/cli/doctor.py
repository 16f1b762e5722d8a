"""The command that examines a store: ``doctor``."""

from __future__ import annotations

import dataclasses
import math

from rich.table import Table
from rich.text import Text

from rollingfs.backend.checkup import NO, RACES, YES, Checkup, examine
from rollingfs.cli import errors, output
from rollingfs.cli.command import Commands
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.session import Session
from rollingfs.errors import visible

commands = Commands("Stores and Spark")

STYLES = {YES: "green", NO: "red"}


@commands("doctor")
def doctor(session: Session, url: str, races: int = RACES, seconds: float = 0.0) -> None:
    """Find out what a store can do, and whether segments are safe there; ends with exit code 3 if they are not.

    It writes some files of its own, 17 MiB in all, into a hidden folder at the URL, and deletes them.

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
    if not found.is_safe:
        session.code = errors.DAMAGED
    if session.json:
        output.write_json(dataclasses.asdict(found))
        return
    output.say(f"{found.store}: {'safe' if found.is_safe else 'NOT SAFE'} to write to")
    output.show(_table(found))
    if not found.is_safe:
        output.complain(found.refusal)


def _table(found: Checkup) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found.findings:
        table.add_row(one.what, Text(one.answer, STYLES.get(one.answer, "")), visible(one.means))
    return table
