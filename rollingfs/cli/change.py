"""Commands that change segments: ``append``, ``truncate``, ``seal``, ``concat``, ``mv``, ``rm``, ``ship``."""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BufferedReader
from typing import Annotated, cast

import typer
from fsspec.callbacks import Callback

from rollingfs import Erased
from rollingfs.cli import output
from rollingfs.cli.command import OffsetOf, PathOf, PathsOf, Time, parse_when
from rollingfs.cli.output import WrongUsage, value_of
from rollingfs.cli.piped import Pipe
from rollingfs.cli.session import Session, StorePath, stopping
from rollingfs.errors import NoSegmentError
from rollingfs.format.transitions import MISSING, Guard
from rollingfs.fs.core import core
from rollingfs.fs.write_buffer import CommitOn
from rollingfs.segment.files.intakes import addition
from rollingfs.segment.verbs.append import append as append_segment
from rollingfs.segment.write.ingest import PIECE_BYTES, Intake
from rollingfs.ship import Shipper, observe
from rollingfs.show.readable import count_text

UNCHANGED = "interrupted; finished paths are done, the others are unchanged"


def append(
    session: Session,
    path: PathOf,
    expected_offset: OffsetOf = None,
    create: bool = True,
    commit_on: str | None = None,
    timestamps: bool = False,
) -> None:
    """Append standard input to a segment, all or nothing, in a single commit at its end.

    A missing segment is made. With --json: name, offset and size of the data.

    Parameters
    ----------
    create
        Make the segment if it is not there.
    expected_offset
        Append only if the segment ends at this offset.
    commit_on : WHEN
        For a pipe that does not end: commit whole lines by time, bytes or lines (5s,64KiB or line), each exactly once.
        A store that fails is waited for. At the end, at SIGTERM and at Ctrl-C the rest is committed.
    timestamps
        Put the time before each line; with --commit-on.
    """
    place = session.place(path)
    if commit_on is not None:
        if expected_offset is not None:
            raise WrongUsage("--expected-offset is for a single commit: leave out --commit-on")
        _pipe(session, place, value_of("--commit-on", commit_on, parse_when), create, timestamps)
        return
    if timestamps:
        raise WrongUsage("--timestamps is for lines that are committed as they come: give --commit-on")
    session.interrupted = f"{place.path}: interrupted; the append is not committed"
    source = cast(BufferedReader, sys.stdin.buffer)
    is_typed = source.isatty()
    with session.progress(path, _size(source), of_bytes=True, shown=not is_typed) as advance:
        try:
            offset, size = _append(place, source, Guard(expected_offset=expected_offset), create, advance)
        except NoSegmentError as error:
            why = f"{MISSING}, so nothing was written: leave out --no-create to make it"
            raise NoSegmentError(error.errno, why, error.filename) from error
    session.report({"name": place.name, "offset": offset, "size": size}, f"{path}: {size:,} bytes at offset {offset:,}")


def _pipe(session: Session, place: StorePath, when: CommitOn, create: bool, stamps: bool) -> None:
    path = place.core.to_write(place.path)
    with stopping() as stop:
        pipe = Pipe(place.core, path, sys.stdin.fileno(), when, stamps, stop)
        pipe.bind(create)
        pipe.run()
    text = f"{place.path}: {pipe.written:,} bytes"
    session.report({"name": path, "size": pipe.written, "commits": pipe.commits}, f"{text} in {pipe.commits:,} commits")


def _size(source: BufferedReader) -> int | None:
    """Return the size of standard input, if it is a regular file."""
    try:
        status = os.fstat(source.fileno())
    except OSError:  # a stand-in without a descriptor
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _append(place: StorePath, source: BufferedReader, guard: Guard, create: bool, advance: Callback) -> tuple[int, int]:
    """Append all of a file; returns the offset and the size of the appended bytes.

    The file is read here, not in the library: over S3 the library would read in a thread, which Ctrl-C cannot wake.
    """
    core = place.core
    path = core.to_write(place.path)
    intake: Intake = addition(core.client, path, guard, create=create)
    try:
        while data := source.read1(PIECE_BYTES):  # takes what has come, so that progress is shown at once
            core.run(intake.take(data))
            advance.relative_update(len(data))
        core.run(intake.flush())
    except BaseException:
        core.run(intake.abort())
        raise
    size = intake.size
    written = core.run(append_segment(core.client, path, intake, guard=guard, create=create), commits=path)
    return written.offset, size


def truncate(
    session: Session,
    path: PathOf,
    offset: Annotated[int, typer.Argument(min=0, show_default=False)],
    erase: bool = False,
    as_bytes: bool = False,
) -> None:
    """Drop the bytes of a segment before an offset.

    With --json: name, start_offset, and the bytes that wait for collect; with --erase: name, start_offset, gone, bytes,
    rewritten_files, rewritten_bytes, remains (a row for each file) and versions.

    Parameters
    ----------
    erase
        Leave no dropped byte in any file, and report the rest elsewhere.
    as_bytes
        Also cut files of formats whose parts are no files, like Parquet and zip.
    offset : OFFSET
        The segment then begins there.
    """
    place = session.place(path)
    if erase:
        session.interrupted = "interrupted; run it again to finish it"
        _report_erased(session, path, place, place.fs.truncate(place.path, offset, erase=True, as_bytes=as_bytes))
        return
    waiting = place.fs.truncate(place.path, offset, as_bytes=as_bytes)
    start = place.fs.info(place.path)["start_offset"]
    rest = f"; {waiting:,} bytes wait for collect" if waiting else ""
    session.report(
        {"name": place.name, "start_offset": start, "waiting": waiting}, f"{path}: begins at offset {start:,}{rest}"
    )


def _report_erased(session: Session, text: str, place: StorePath, did: Erased) -> None:
    row = dataclasses.asdict(did)
    session.report(
        {"name": place.name, "start_offset": row.pop("start"), "gone": did.is_gone, **row},
        f"{text}: begins at offset {did.start:,}; {did.bytes:,} bytes erased, "
        f"{count_text(did.rewritten_files, 'file')} written anew",
    )
    if session.json:
        return
    for one in did.remains:
        until = "" if one.until is None else f" ({datetime.fromtimestamp(one.until, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        what = "had erased bytes" if one.held else "may have erased bytes"
        session.say(f"{one.file}: {one.size:,} bytes, {what}; {one.reason}{until}")
    for alias, kept in did.versions.items():
        if kept is not False:
            store = f"the store of tier {alias!r}" if alias else "the store"
            how = "keeps" if kept else "does not say whether it keeps"
            session.say(f"{text}: {store} {how} former versions of files, which may have erased bytes")


def seal(session: Session, path: PathsOf) -> None:
    """Let segments take no more bytes.

    With --json: name and length of each, on a line of its own.
    """
    session.interrupted = UNCHANGED
    for text, place in session.each(path):
        length = place.fs.seal(place.path)
        session.report({"name": place.name, "length": length}, f"{text}: sealed at length {length:,}")


def concat(
    session: Session,
    target: str,
    source: list[str],
    create: bool = False,
    as_bytes: bool = False,
    as_format: str | None = None,
    newline: bool = False,
) -> None:
    """Append sealed segments to another, in this order, moving no bytes; they are gone afterwards.

    With --json: name of the target and the offset at which the first source begins.

    Parameters
    ----------
    target : TARGET
        An open segment that the bytes join.
    source : SOURCE...
        Sealed segments on the same store.
    create
        Make the target if it is not there, in the commit that joins the first sources.
    as_bytes
        Also join files of formats that do not join, like Parquet and zip.
    as_format : FORMAT
        parquet: make a single Parquet file of all, by a new footer. arrow-stream: a single Arrow stream.
    newline
        End text with a line feed before the next part.
    """
    session.interrupted = "interrupted; run it again with the sources that are still there"
    fs, (to, *sources) = session.places([target, *source])
    with session.progress(f"joining {count_text(len(sources), 'segment')}"):
        offset = fs.concat(to, sources, as_bytes=as_bytes, as_format=as_format, create=create, newline=newline)
    session.report(
        {"name": core(fs).strip(to), "offset": offset, "sources": len(sources)},
        f"{target}: {count_text(len(sources), 'segment')} joined at offset {offset:,}",
    )


def mv(session: Session, source: PathsOf, target: str, overwrite: bool = False) -> None:
    """Give segments or folders another name; no bytes are moved.

    Several sources, and patterns, go into the folder TARGET.

    Parameters
    ----------
    target : TARGET
        The new name, or a folder, on the same store.
    source : SOURCE...
        Names, or patterns in quotes ('s3://bucket/log-*'), which are expanded on the store.
    overwrite
        Replace what has the new name.
    """
    session.interrupted = UNCHANGED
    fs, (to, *sources) = session.places([target, *source])
    with session.progress(f"moving to {target}"):
        fs.mv(sources[0] if len(sources) == 1 else sources, to, overwrite=overwrite)
    moved = ", ".join(source)
    strip = core(fs).strip
    session.report({"sources": strip(sources), "target": strip(to)}, f"{moved} → {target}")


def rm(session: Session, path: PathsOf, recursive: bool = False, damaged: bool = False) -> None:
    """Delete segments and plain files.

    Parameters
    ----------
    recursive : -r
        Folders too, with all in them.
    damaged
        Also delete segments whose header cannot be read.
    """
    session.interrupted = UNCHANGED
    for text in path:
        place = session.place(text)  # the library expands a pattern, and deletes all of it together
        with session.progress(f"deleting {text}"):
            try:
                place.fs.rm(place.path, recursive=recursive, damaged=damaged)
            except IsADirectoryError as error:
                why = "It is a folder: give -r to delete it with all in it"
                raise IsADirectoryError(error.errno, why, place.path) from error
        session.report({"name": place.name, "deleted": True}, f"{text}: deleted")


FilesOf = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE... TARGET", show_default=False, help="Local files or patterns in quotes; then where they go."
    ),
]


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
