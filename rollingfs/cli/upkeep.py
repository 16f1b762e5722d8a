"""Commands that keep segments healthy, or save their bytes, and their policies.

``consolidate``, ``export``, ``rebuild``, ``collect``, ``verify`` and ``policy``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from fsspec.callbacks import Callback

from rollingfs import Collected
from rollingfs.cli import output
from rollingfs.cli.command import PathOf, PathsOf, Size, Time, parse_duration
from rollingfs.cli.output import WrongUsage, picked, value_of
from rollingfs.cli.session import Session, StorePath
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.collect_tree import tree_at
from rollingfs.format.policies import PolicyChange
from rollingfs.fs.core import core
from rollingfs.policy import FOREVER, KEEP, MAX_AGE_S_MAX, OffloadPolicy, RollingPolicy
from rollingfs.segment.verbs.rebuild import Rebuilt
from rollingfs.segment.verbs.verify import Verified, damaged
from rollingfs.show.readable import count_text

if TYPE_CHECKING:
    from rollingfs.fs.filesystem import RollingFileSystem

Recursive = Annotated[bool, typer.Option("-r", "--recursive", help="All segments at or below the path.")]


def consolidate(session: Session, path: PathsOf, grace: Time = "10min") -> None:
    """Join small neighbouring chunks into chunks of the segment's max_bytes.

    With --json: name, replaced, written, joined_bytes and copied_bytes of each, on a line of its own.

    Parameters
    ----------
    grace : TIME
        Time to keep the old files for readers that opened it before.
    """
    session.interrupted = "interrupted; joined chunks stay joined, the other chunks are unchanged"
    for text, place in session.each(path):
        segment = place.fs.segment(place.path)
        with session.progress(f"consolidating {text}", segment.size, of_bytes=True) as advance:
            did = segment.consolidate(grace=grace, callback=advance)
        moved = f"{did.joined_bytes:,} bytes joined by the store, {did.copied_bytes:,} through this client"
        session.report(
            {"name": segment.path, **dataclasses.asdict(did)},
            f"{text}: {count_text(did.replaced, 'chunk')} became {did.written:,}; {moved}",
        )


def export(session: Session, segment: str, target: str, overwrite: bool = False) -> None:
    """Write the bytes of a segment as a plain file under another name, for other tools.

    The file appears when it is whole. On the same store, the store joins the chunks.

    With --json: path, target, size, joined_bytes, copied_bytes and length.

    Parameters
    ----------
    segment : SEGMENT
        A segment or plain file.
    target : TARGET
        A path or URL, on this or on another store.
    overwrite
        Replace a file that is there.
    """
    session.interrupted = "interrupted; nothing is at the target, unless the file was just being finished"
    place, other = session.place(segment), session.place(target)
    found = place.fs.segment(place.path)
    options: dict[str, Any] = {}
    if other.fs is not place.fs:
        options = {name: other.fs.storage_options[name] for name in ("target_protocol", "target_options")}
    with session.progress(f"exporting {segment}", found.size, of_bytes=True) as advance:
        did = place.fs.export(place.path, other.path, overwrite=overwrite, callback=advance, **options)
    moved = f"{did.joined_bytes:,} bytes joined by the store, {did.copied_bytes:,} through this client"
    session.report(dataclasses.asdict(did), f"{segment}: {did.size:,} bytes written to {target}; {moved}")


def rebuild(
    session: Session,
    path: PathOf,
    to: str,
    start: Annotated[int, typer.Option(min=0)],
    leave_out: list[str] | None = None,
    incarnation: list[str] | None = None,
    dry_run: bool = False,
) -> None:
    """Make a segment of the chunks of a segment with a lost header; old files stay as they are.

    Ends with exit code 3 if there are gaps. With --json: name, to, start, end, chunks, by_page, by_later,
    by_label, by_name, pieces, gaps, left, lost and is_dry_run.

    Parameters
    ----------
    to : --to NEW
        The name of the new segment.
    leave_out : FILE
        A file that is not part of it, or an index page that is not to count; or several, by a pattern (`'stage-*'`).
    incarnation : UUID
        Only files of this incarnation.
    dry_run
        Only report the work.
    start : --start N
        The offset at which the lost segment began.
    """
    session.interrupted = "interrupted; nothing was made, unless it was just being finished"
    fs, (old, new) = session.places([path, to])
    with session.progress(f"reading {path}", None, of_bytes=True) as advance:
        did = fs.rebuild(old, new, start, leave_out or (), incarnation or (), dry_run, callback=advance)
    _report_rebuilt(session, path, to, {"name": core(fs).strip(old), "to": core(fs).strip(new)}, did)


def _report_rebuilt(session: Session, text: str, to: str, named: dict[str, str], did: Rebuilt) -> None:
    if did.gaps:
        session.code = output.DAMAGED
    holds = f"{to} {'would hold' if did.is_dry_run else 'holds'} bytes {did.start:,} to {did.end:,} of {text}"
    session.report(
        {**named, **dataclasses.asdict(did)},
        f"{holds}, {count_text(did.chunks, 'chunk')}: {did.by_page:,} bytes placed by index pages, "
        f"{did.by_later:,} by metadata of later files, "
        f"{did.by_label:,} by their own metadata, {did.by_name:,} by names alone",
    )
    if session.json:
        return
    for one in did.pieces:
        rivals = f"; it may also be {' or '.join(one.rivals)}" if one.rivals else ""
        session.say(f"placed by {one.by}: bytes {one.start:,} to {one.end:,}: {one.file}{rivals}")
    for gap in did.gaps:
        session.say(f"gap: no file has bytes {gap.start:,} to {gap.end:,}")
    for left in did.left:
        at = "" if left.start is None else f" (offset {left.start:,})"
        session.say(f"left: {left.file}{at}: {left.reason}")
    for lost in did.lost:
        session.say(f"lost: {lost}")


def collect(
    session: Session, path: PathsOf, recursive: Recursive = False, grace: Time = None, dry_run: bool = False
) -> None:
    """Delete files without a reference.

    With --json: name, files, bytes, young, folders, reasons and failures of each, on a line of its own.

    Parameters
    ----------
    grace : TIME
        Keep younger files (24h); less asserts that no client writes.
    dry_run
        Only report the work.
    """
    session.interrupted = "interrupted; only garbage was deleted, run it again for the rest"
    for text, place in session.each(path):
        with session.progress(f"collecting {text}"):
            did = place.fs.collect(place.path, grace=grace, dry_run=dry_run, recursive=recursive)
        _report_collected(session, text, place.name, did, dry_run)


def _report_collected(session: Session, text: str, name: str, did: Collected, dry_run: bool) -> None:
    if dry_run and not session.json:
        for file in did.files:
            output.say(f"{file}: {did.reasons.get(file, 'nobody refers to it')}")
    young = f"; {did.young:,} more are younger than the grace" if did.young else ""
    done = "would be deleted" if dry_run else "deleted"
    session.report(
        {
            "name": name,
            **picked(did, "files bytes young folders reasons"),
            "failures": did.failures,
            "dry_run": dry_run,
        },
        f"{text}: {count_text(len(did.files), 'file')}, {did.bytes:,} bytes, {done}{young}",
    )
    for failure in did.failures:
        session.code = output.FAILED
        output.complain(f"{failure.path} is not collected: {failure.reason}")


def verify(session: Session, path: PathsOf, recursive: Recursive = False) -> None:
    """Read every chunk and report damage; exit code 3: damage was found.

    With --json: name, ok, error and chunks (a row each) of each segment, on a line of its own.
    """
    for text, place in session.each(path):
        found = _segments_below(session, place) if recursive else [place.path]
        total = sum(_size_of(place.fs, one) for one in found) if session.is_watched else 0
        with session.progress(f"verifying {text}", total, of_bytes=True) as advance:
            for one in found:
                try:
                    _verify_one(session, place.fs, one, advance)
                except (FileNotFoundError, PermissionError) as error:
                    if not recursive:
                        raise
                    if isinstance(error, PermissionError):  # a tombstone, or a segment deleted meanwhile, is no news
                        _complain_of(session, one, error)


def _complain_of(session: Session, path: str, error: OSError) -> None:
    """Name a path that cannot be verified; the others are still verified."""
    session.code = max(session.code, output.FAILED)
    output.complain(f"{path} is not verified: {output.in_one_line(error)}")


def _verify_one(session: Session, fs: RollingFileSystem, path: str, advance: Callback) -> None:
    name = core(fs).strip(path)
    rows: Sequence[Verified] = ()
    error = None
    try:
        rows = fs.segment(path).verify(callback=advance)
    except CorruptHeaderError as corrupt:
        error = output.in_one_line(corrupt)
    bad = damaged(rows)
    if bad or error:
        session.code = output.DAMAGED
    if session.json:
        chunks = [dataclasses.asdict(row) for row in rows]
        output.write_json({"name": name, "ok": not bad and not error, "error": error, "chunks": chunks})
        return
    for row in bad:
        is_other = row.found_size is not None and row.found_size != row.size
        sizes = f": {row.found_size:,} bytes rather than {row.size:,}" if is_other else ""
        session.say(f"{name}: bytes {row.start:,} to {row.start + row.length:,}: {row.file} is {row.state}{sizes}")
    if error:
        session.say(f"{name}: {error}")
    elif not bad:
        session.say(f"{name}: {count_text(len(rows), 'chunk')}, all there and whole")


def _size_of(fs: RollingFileSystem, path: str) -> int:
    """Return bytes to verify of a segment; 0 if it cannot be read: verifying it reports that."""
    try:
        return fs.segment(path).size
    except (CorruptHeaderError, FileNotFoundError, PermissionError):
        return 0


def _segments_below(session: Session, place: StorePath) -> list[str]:
    """Return the segments at or below a path, also those whose header cannot be read, is a tombstone, or is gone.

    Raises
    ------
    FileNotFoundError
        There is neither a segment nor a folder.
    """
    tree = place.core.run(tree_at(place.core.client, place.name))
    for folder, error in tree.unlisted.items():
        _complain_of(session, folder, error)
    return sorted(tree.segments)


NEVER = "never"


def policy(
    session: Session,
    path: PathOf,
    tier: str | None = None,
    after_bytes: Size = None,
    after_age: Time = None,
    lag: Time = None,
    block_bytes: Size = None,
    max_delay: Time = None,
    no_offload: bool = False,
    max_bytes: Size = None,
    max_age: str | None = None,
    inline_bytes: Size = None,
    consolidate: bool | None = None,
    inherit: list[str] | None = None,
) -> None:
    """Show the policies of a segment or folder; with options, change them first.

    Of --tier, --after-bytes, --after-age, --lag, --block-bytes and --max-delay, the given options become the offload
    policy of this level, in place of the old. Missing fields come from the folders, the nearest first, then the
    filesystem. A folder's policy of chunks is carried to all segments below it at once.

    With --json: name; rolling, offload and retention in force; the offload of segment, folder and filesystem; and
    sources, the level of each field.

    Parameters
    ----------
    tier : ALIAS
        Move chunks to this tier; '' to move no chunk.
    after_bytes : SIZE
        Move chunks before this number of newest bytes.
    after_age : TIME
        Move chunks that are older.
    lag : TIME
        Time to keep the old files (4h).
    block_bytes : SIZE
        Join chunks that move to files of up to this (64MiB).
    max_delay : TIME
        Longest wait for a full block; then move the tail too.
    no_offload
        Remove the offload policy of this level.
    max_bytes : SIZE
        The largest chunk of the segment.
    max_age : TIME|never
        The oldest inline tail of the segment, or 'never'.
    inline_bytes : SIZE
        The longest inline tail of the segment.
    consolidate
        Whether run joins small chunks of the segment (default: yes).
    inherit : FIELD
        Of max_bytes, max_age, inline_bytes, consolidate: leave it to the next level.
    """
    fields = {
        "tier": tier,
        "after_bytes": after_bytes,
        "after_age": after_age,
        "deletion_lag": lag,
        "block_bytes": block_bytes,
        "max_delay": max_delay,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if given and no_offload:
        raise WrongUsage("--no-offload removes the policy: give no --tier and no other option of such a policy with it")
    seconds = value_of("--max-age", None if max_age == NEVER else max_age, parse_duration)
    for name, value in {"max-bytes": max_bytes, "max-age": seconds, "inline-bytes": inline_bytes}.items():
        value_of(f"--{name}", value, partial(_rolling_with, name.replace("-", "_")))
    age = KEEP if max_age is None else (None if max_age == NEVER else max_age)
    try:
        offload = OffloadPolicy(**given) if given else (None if no_offload else KEEP)
        change = PolicyChange(offload, max_bytes, age, inline_bytes, consolidate, tuple(inherit or ()))
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    place = session.place(path)
    session.interrupted = f"{path}: interrupted; show the policy again to see whether it changed"
    if not change.changes_nothing:
        changed = {name: getattr(change, name) for name in ("max_bytes", "max_age", "inline_bytes", "consolidate")}
        place.fs.set_policy(place.path, offload, inherit=change.inherit, **changed)
    found = place.fs.get_policy(place.path)
    if session.json:
        fields = picked(found, "rolling offload segment folder filesystem sources")
        kept = None if found.retention is None else found.retention.as_fields()
        output.write_json({"name": place.name, **fields, "retention": kept})
        return
    if found.rolling is not None:
        output.say(f"rolling: {policy_text(found.rolling)}")
    output.say(f"offload: {_words(found.offload)}")
    if found.retention is not None:
        kept = found.retention.as_fields()
        output.say("retention: " + " ".join(f"{name}={_amount(name, value)}" for name, value in kept.items()))
    for kind, sources in found.sources.items():
        for name, where in sources.items():
            output.say(f"  {kind} {name}: from {where}")


def _rolling_with(name: str, value: Any) -> RollingPolicy:
    return RollingPolicy(**{name: value})


def policy_text(policy: RollingPolicy) -> str:
    """Return a rolling policy in words."""
    age = NEVER if policy.max_age is None else f"{policy.max_age:g}s"
    text = f"max_bytes={policy.max_bytes:,} max_age={age} inline_bytes={policy.inline_bytes:,}"
    return text if policy.consolidate else f"{text} consolidate=no"


def _words(policy: OffloadPolicy | None) -> str:
    if policy is None:
        return "no policy"
    fields = policy.as_fields() | ({} if policy.tier is None else {"tier": policy.tier or "(none: nothing moves)"})
    return " ".join(f"{name}={_amount(name, value)}" for name, value in fields.items())


def _amount(name: str, value: Any) -> str:
    if name in ("tier", "align"):
        return str(value)
    if value == MAX_AGE_S_MAX:
        return FOREVER
    return f"{value:,}" if name.endswith("_bytes") else f"{value:g}s"
