"""The examination of a store: what it can do, tried on files of its own, and what follows for users."""

from __future__ import annotations

import contextlib
import errno
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

from rollingfs.backend.contract import Backend, Part
from rollingfs.backend.probe import Abilities, clean, probe_patiently
from rollingfs.backend.race import BrokenPromise
from rollingfs.backend.wrapper import MeteredBackend
from rollingfs.errors import UnsafeBackendError
from rollingfs.format import names
from rollingfs.format.side_files import Label, parse_label
from rollingfs.runtime.concurrency import Runtime
from rollingfs.runtime.meters import Meters
from rollingfs.runtime.values import value_class

RACES = 3
"""More than the probe's one: the user has asked for the check, so it may take longer."""
RACE_S_MAX = 30.0
"""The time that a race may take on a slow store."""
CHECKUP_S_MAX = 120.0
LOOK_PATIENCE_S = 5.0
"""Patience after the probe: all looks may fail, as without ETags of reads, and the verdict is still told in time."""
LATENCY_ROUNDS = 5
LATENCY_BYTES = 4096
UPLOAD_BYTES = 17 * 2**20
"""More than an adapter keeps in memory before it begins an upload."""
YES, NO, UNKNOWN = "yes", "no", "unknown"
CREATE, REPLACE = "conditional create", "conditional replace"


@value_class
class Finding:
    """An ability of a store, or its absence."""

    what: str
    answer: str
    """``"yes"``, ``"no"``, ``"unknown"`` or a measure with its unit."""
    means: str
    """Consequence for users."""


@value_class
class Checkup:
    """The findings about a store."""

    store: str
    is_safe: bool
    """Whether rollingfs writes there."""
    findings: tuple[Finding, ...]
    refusal: str = ""
    """Why it does not."""


@value_class
class _Bench:
    """The store, and a folder in which the examination makes its files."""

    backend: Backend
    folder: str
    made: list[str] = field(default_factory=list)

    def file(self, suffix: str = "") -> str:
        """Return a new name; like the probe's, so that collection deletes what an interrupted examination leaves."""
        self.made.append(f"{self.folder}/{names.PROBE_PREFIX}{uuid.uuid4().hex}{suffix}")
        return self.made[-1]

    async def clean(self) -> None:
        await clean(self.backend, self.made)
        if self.backend.capability.has_folders:
            with contextlib.suppress(FileNotFoundError):  # not every backend makes such a folder
                await self.backend.remove_folder(self.folder)


async def examine(
    backend: Backend, runtime: Runtime, folder: str, races: int = RACES, races_s_min: float = 0.0
) -> Checkup:
    """Examine the store of a folder, without its own content.

    Parameters
    ----------
    folder
        A folder or bucket that is there. The files of the examination are in a hidden folder within it, and go.
    races
        The number of races, as of `rollingfs.backend.probe.probe`.
    races_s_min
        Race again until this time has passed, in seconds.

    Raises
    ------
    FileNotFoundError
        There is no such folder or bucket.
    OSError
        The store failed before the probe had a verdict, or gave no answer within 2 minutes and 30 s a race. (A later
        failure is an unknown finding.)
    """
    limit_s = CHECKUP_S_MAX + RACE_S_MAX * races + races_s_min
    try:
        return await runtime.limit(_examine(backend, runtime, folder, races, races_s_min), limit_s)
    except TimeoutError as error:
        text = f"the store did not answer all questions within {limit_s:.0f} s; it is not known what it can do"
        raise OSError(errno.ETIMEDOUT, text, folder) from error


async def _examine(backend: Backend, runtime: Runtime, folder: str, races: int, races_s_min: float) -> Checkup:
    if backend.capability.has_folders and not await backend.is_folder(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder: make it, or name another", folder)
    hasty = MeteredBackend(backend, Meters(), LOOK_PATIENCE_S)
    bench = _Bench(hasty, names.chunks_folder(f"{folder.rstrip('/')}/doctor-{uuid.uuid4().hex[:8]}"))
    store = await backend.store_name(bench.folder) or backend.unstrip(folder)
    try:
        refusal, able, findings = await _probed(backend, runtime, bench.folder, races, races_s_min)
        findings.append(_judged("conditional delete", None if able is None else able.delete_if))
        findings.append(_judged("whole reads beside a replace", None if able is None else able.reads_whole))
        for what, look in _LOOKS.items():
            findings.append(await _found(what, look, bench))
    finally:
        with contextlib.suppress(OSError):  # a failure before says more; collection deletes what stays
            await bench.clean()
    return Checkup(store, not refusal, tuple(findings), refusal)


# -- conditions ----------------------------------------------------------------------------------------------


async def _probed(
    backend: Backend, runtime: Runtime, folder: str, races: int, races_s_min: float
) -> tuple[str, Abilities | None, list[Finding]]:
    right = {
        CREATE: "of several writers that make a segment, one wins",
        REPLACE: "concurrent appends never overwrite each other",
    }
    began_s, able = time.monotonic(), Abilities(delete_if=True)
    try:
        while True:
            found = await probe_patiently(backend, folder, runtime, races)
            able = Abilities(able.delete_if and found.delete_if, able.reads_whole and found.reads_whole)
            if not backend.capability.must_race or time.monotonic() - began_s >= races_s_min:
                break
    except UnsafeBackendError as error:
        cause = error.__cause__
        verb = cause.verb if isinstance(cause, BrokenPromise) else ""
        answers = {CREATE: NO if verb in ("create", "") else YES, REPLACE: UNKNOWN if verb == "create" else NO}
        wrong = "rollingfs refuses to write here, because writers could lose each other's data"
        means = {YES: right[CREATE], NO: f"{wrong}: {cause}" if cause else wrong, UNKNOWN: "create is refused already"}
        return str(error), None, [Finding(what, answer, means[answer]) for what, answer in answers.items()]
    return "", able, [Finding(what, YES, means) for what, means in right.items()]


MEANS = {
    "conditional delete": (
        "collect deletes tombstones, and plain files that a segment hides",
        "collect leaves tombstones (small files), and plain files that a segment hides",
    ),
    "whole reads beside a replace": (
        "a reader sees a header before or after a commit",
        "a reader may see two headers mixed, or old bytes with a new token, and reads again",
    ),
    "copy on the server": (
        "the first append to a plain file moves no bytes through this client",
        "the first append to a plain file moves its bytes through this client",
    ),
    "join on the server": (
        "consolidate and export move no bytes through this client",
        "consolidate and export move all bytes through this client",
    ),
    "metadata of files": (
        "rebuild finds the places of chunks after the loss of a header",
        "rebuild knows chunks only by their names after the loss of a header",
    ),
    "delete of several files": (
        "rm, truncate and collect free what nobody refers to",
        "what rm, truncate and collect should delete stays, and costs",
    ),
    "complete listings": (
        "ls and collect see a file as soon as it is written",
        "ls may miss new segments, and collect may leave garbage",
    ),
    "listing of unfinished uploads": (
        "collect aborts interrupted uploads once they are older than the grace",
        "the parts of interrupted uploads stay until a lifecycle rule of the store deletes them",
    ),
}
"""Consequences of yes, and of no."""


def _judged(what: str, can: bool | None) -> Finding:
    """Return an ability; None: the probe has refused the store before it was tried."""
    if can is None:
        return Finding(what, UNKNOWN, "it matters only where rollingfs writes")
    return Finding(what, YES if can else NO, MEANS[what][not can])


# -- what else ------------------------------------------------------------------------------------------------

Look = Callable[[_Bench], Awaitable[bool | tuple[str, str]]]
"""Whether the store has an ability; or the answer of a finding, and what it means."""


async def _found(what: str, look: Look, bench: _Bench) -> Finding:
    if not getattr(bench.backend.capability, _NEEDS.get(what, ""), True):
        return _judged(what, False)
    try:
        found = await look(bench)
    except OSError as error:
        return Finding(what, UNKNOWN, f"it failed: {error}")
    return _judged(what, found) if isinstance(found, bool) else Finding(what, *found)


async def _copies(bench: _Bench) -> bool:
    source, target = bench.file(), bench.file()
    await bench.backend.write(source, [b"copied"])
    await bench.backend.copy(source, target, (await bench.backend.stat(source)).token)
    return (await bench.backend.read(target)).data == b"copied"


async def _joins(bench: _Bench) -> bool:
    source, target = bench.file(), bench.file()
    await bench.backend.write(source, [b"joined"])
    upload = await bench.backend.open_write(target)
    try:
        await upload.copy(Part(source, 1, 6))  # one part may be small
        await upload.finish()
    finally:
        await upload.abort()
    return (await bench.backend.read(target)).data == b"oined" and bench.backend.capability.can_join


async def _labels(bench: _Bench) -> bool | tuple[str, str]:
    file, label = bench.file(), Label(str(uuid.uuid4()), 0, 0)
    try:
        await bench.backend.write(file, [b"labelled"], label.metadata())
    except OSError as error:
        return NO, f"appends that write a chunk fail: {error}"
    return parse_label(await bench.backend.metadata(file)) == label


async def _deletes(bench: _Bench) -> bool:
    files = [bench.file() for _ in range(3)]
    for file in files:
        await bench.backend.write(file, [b"deleted"])
    await bench.backend.delete(files)
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            await bench.backend.stat(file)
            return False
    return True


async def _lists(bench: _Bench) -> bool:
    file = bench.file()
    await bench.backend.write(file, [b"listed"])
    was_seen = file in await _names(bench)
    await bench.backend.delete([file])
    return was_seen and file not in await _names(bench)


async def _names(bench: _Bench) -> set[str]:
    try:
        return {entry.path for entry in (await bench.backend.list(bench.folder)).entries}
    except FileNotFoundError:
        return set()


async def _uploads(bench: _Bench) -> bool | tuple[str, str]:
    if bench.backend.capability.has_folders:
        return NO, "there are none: an interrupted upload leaves a file, which collect deletes"
    if not bench.backend.capability.can_list_uploads:
        return False
    file = bench.file()
    upload = await bench.backend.open_write(file)
    try:
        await upload.write(bytes(UPLOAD_BYTES))
        return file in {found.path for found in await bench.backend.list_uploads(bench.folder)}
    finally:
        await upload.abort()


# -- measures -------------------------------------------------------------------------------------------------


async def _clock(bench: _Bench) -> tuple[str, str]:
    before = time.time()
    there = await bench.backend.now(bench.file())
    here = (before + time.time()) / 2
    if not there:
        return UNKNOWN, "files have no dates here: no file is ever old, and collect deletes nothing"
    return (
        f"{there - here:+.1f} s",
        "the store's clock against this one, to a second; ages of files count by the store's alone",
    )


async def _reading(bench: _Bench) -> tuple[str, str]:
    file = bench.file()
    await bench.backend.write(file, [bytes(LATENCY_BYTES)])
    taken_s = [await _timed(bench.backend.read(file)) for _ in range(LATENCY_ROUNDS)]
    return _text(taken_s), "a read has its first byte no sooner"


async def _writing(bench: _Bench) -> tuple[str, str]:
    file = bench.file(names.HEADER_SUFFIX)
    taken_s = [await _timed(bench.backend.create(file, bytes(LATENCY_BYTES)))]
    for number in range(1, LATENCY_ROUNDS):
        token = (await bench.backend.read(file)).token
        taken_s.append(await _timed(bench.backend.replace(file, b"%d" % number + bytes(LATENCY_BYTES), token)))
    rate = 1 / max(statistics.median(taken_s), 1e-6)
    shown = f"{float(f'{rate:.2g}'):,.0f}" if rate >= 1 else f"{rate:.1g}"
    return _text(taken_s), f"one segment takes no more than {shown} commits a second"


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began


def _text(taken_s: Sequence[float]) -> str:
    return f"{statistics.median(taken_s) * 1000:.2g} ms"


_NEEDS = {"copy on the server": "can_copy", "join on the server": "can_join", "metadata of files": "has_metadata"}
"""Fields of the capability without which there is no look."""
_LOOKS: dict[str, Look] = {
    "copy on the server": _copies,
    "join on the server": _joins,
    "metadata of files": _labels,
    "delete of several files": _deletes,
    "complete listings": _lists,
    "listing of unfinished uploads": _uploads,
    "clock": _clock,
    "read of 4 KiB": _reading,
    "write of 4 KiB": _writing,
}
