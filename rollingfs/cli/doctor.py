"""Commands for stores and Spark: ``doctor`` examines a store, ``spark-jars`` gathers jars."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.text import Text

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.checkup import NO, RACES, UNKNOWN, YES, Checkup, Finding, examine
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.local.record_lock import record_lock
from rollingfs.cli import output
from rollingfs.cli.output import WrongUsage
from rollingfs.cli.session import Session
from rollingfs.errors import LockedError

PROCESSES = 4
WAIT_S_MAX = 60.0
"""Longest life of a process of the trial."""
REFUSED_S, FREED_S_MAX = 0.2, 10.0
"""Time for which a held lock is asked for; longest time until a killed process has lost it."""
FLUSHES = 5

_HOLDER = """
import sys
from rollingfs.backend.local.record_lock import record_lock
with record_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
_RACER = """
import sys
from rollingfs import RollingFileSystem
fs = RollingFileSystem("file")
for number in range(int(sys.argv[2])):
    for path in sys.argv[3:]:
        fs.append(path, f"{sys.argv[1]} {number}\\n".encode())
"""


def try_disk(folder: str, rounds: int) -> list[Finding]:
    """Try what processes need of a disk, in a folder that is made below `folder` and removed again.

    Parameters
    ----------
    rounds
        The appends of each of four processes to each of two segments.
    """
    place = tempfile.mkdtemp(prefix=".doctor-", dir=folder).replace(os.sep, "/")
    tries: dict[str, Callable[[str], tuple[str, str]]] = {
        "lock between processes": _locks,
        "rename over an open file": _renames,
        "flush": _flushes,
        "four processes at once": partial(_races, rounds=rounds),
    }
    found = []
    try:
        for what, step in tries.items():
            try:
                answer = step(place)
            except (OSError, subprocess.SubprocessError) as error:
                answer = UNKNOWN, f"it failed: {error}"
            found.append(Finding(what, *answer))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


@contextlib.contextmanager
def _running(program: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of this interpreter, which ends with the block."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe, command = subprocess.PIPE, [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(command, env=settings, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def _locks(place: str) -> tuple[str, str]:
    path = f"{place}/lock"
    with _running(_HOLDER, path) as process:
        if not process.stdout or process.stdout.readline().strip() != b"held":
            return UNKNOWN, f"it failed: another process got no lock: {process.communicate()[1].decode()[-200:]}"
        with contextlib.suppress(LockedError), record_lock(path, time.monotonic() + REFUSED_S):
            return NO, "two processes hold one lock, so commits overwrite each other"
    try:
        with record_lock(path, time.monotonic() + FREED_S_MAX):
            return YES, "one process at a time commits to a segment; that of a killed process is free"
    except LockedError:
        return NO, f"the lock of a process was not free {FREED_S_MAX:.0f} s after its end"


def _renames(place: str) -> tuple[str, str]:
    old, new = f"{place}/old", f"{place}/new"
    for path in (old, new):
        disk.new_file(path, False, partial(disk.write_header, data=path.encode()))
    with disk.opened(old) as (descriptor, _):
        system.rename(new, old)
        was = disk.read_exactly(descriptor, 0, len(old))
    with disk.opened(old) as (descriptor, _):
        now = disk.read_exactly(descriptor, 0, len(new))
    if (was, now) == (old.encode(), new.encode()):
        return YES, "a commit replaces a header that readers hold open; they read on in the old one"
    return NO, "a reader does not see a header as it was before or after a commit"


def _flushes(place: str) -> tuple[str, str]:
    taken_s = []

    def fill(descriptor: int) -> None:
        for number in range(FLUSHES):
            disk.write_header(descriptor, b"x" * 4096, number * 4096)
            began_s = time.perf_counter()
            system.flush(descriptor)
            taken_s.append(time.perf_counter() - began_s)

    disk.new_file(f"{place}/flushed", False, fill)
    folders.flush_folder_of(f"{place}/flushed")
    return (
        f"{statistics.median(taken_s) * 1000:.2g} ms",
        "an acknowledged append survives a loss of power, unless the disk takes less time for it than it can",
    )


def _races(place: str, rounds: int) -> tuple[str, str]:
    fs = RollingFileSystem("file", skip_instance_cache=True)
    seen = {f"{place}/grown": b"", f"{place}/replaced": b""}
    for path in seen:
        fs.create(path, RollingPolicy(inline_bytes=0) if path.endswith("replaced") else None)
    end_s = time.monotonic() + WAIT_S_MAX
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(_running(_RACER, who, rounds, *seen)) for who in range(PROCESSES)]
        while are_running := any(racer.poll() is None for racer in racers):
            for path, before in seen.items():
                seen[path] = fs.cat_file(path)
                if not seen[path].startswith(before):
                    return NO, "a reader saw bytes vanish that it had read"
            if time.monotonic() > end_s:
                break
        failed = [racer for racer in racers if not are_running and racer.returncode]
        if are_running or failed:
            said = failed[0].communicate()[1].decode().strip()[-300:] if failed else f"no end after {WAIT_S_MAX:.0f} s"
            return UNKNOWN, f"it failed: {said}"
    wanted = sorted(f"{who} {number}" for who in range(PROCESSES) for number in range(rounds))
    for path in seen:
        if sorted(fs.cat_file(path).decode().splitlines()) != wanted:
            return NO, "appends of several processes were lost, or are there twice"
    return (
        YES,
        f"{2 * len(wanted)} appends, in place and by replaces: none lost, none twice, and a reader saw none vanish",
    )


ROUNDS_A_RACE = 10
"""Appends to a segment on a disk, of each of four processes, for a race of other stores."""
STYLES = {YES: "green", NO: "red"}


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
        session.code = output.DAMAGED
    if session.json:
        output.write_json(dataclasses.asdict(found))
        return
    output.say(f"{found.store}: {'safe' if found.is_safe else 'NOT SAFE'} to write to")
    lines = output.columns([(one.what, one.answer, one.means) for one in found.findings])
    for line, one in zip(lines, found.findings, strict=True):
        text = Text(line)
        text.highlight_regex(rf"(?<=  ){one.answer}(?=  )", STYLES.get(one.answer, ""))
        output.show(text)
    if not found.is_safe:
        output.complain(found.refusal)


def _with_trial(found: Checkup, folder: str, races: int) -> Checkup:
    findings = try_disk(folder, ROUNDS_A_RACE * races)
    wrong = [f"{one.what}: {one.means}" for one in findings if one.answer == NO]
    refusal = "; ".join([found.refusal] * bool(found.refusal) + wrong)
    return dataclasses.replace(
        found, findings=(*found.findings, *findings), is_safe=found.is_safe and not wrong, refusal=refusal
    )


def spark_jars(session: Session, to: Path, s3: bool = True) -> None:
    """Gather the jars that Spark needs for rolling+s3:// and rolling+file://, for machines without Maven.

    The installed Spark fetches the S3 connector that fits; that needs a JDK.

    With --json: jars, a list of paths.

    Parameters
    ----------
    to : --to DIR
        The folder; it is made.
    s3
        Add Hadoop's S3 connector, fetched from Maven.
    """
    from rollingfs.spark.configure import gather

    with session.progress(f"gathering jars in {to}"):
        found = gather(to, s3=s3)
    if session.json:
        output.write_json({"jars": [str(path) for path in found]})
        return
    output.say(f"{len(found)} jars in {to}; give them to Spark:")
    output.say(f"spark-submit --jars {','.join(map(str, found))}")
