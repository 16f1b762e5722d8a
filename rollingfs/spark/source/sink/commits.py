"""The commits of one write: to a segment, or to each of several; of a batch that may be repeated, each once.

1. The driver looks at all segments. A segment with the marker of the batch has the rows already.
2. It refuses the batch if a commit to another of them would fail, or if one has a later batch: Spark repeats only the
   last one, so an older copy of the checkpoint was restored. Then no byte is written.
3. A single header replacement for each segment commits its rows and the marker, on condition that the attribute of the
   marker has not changed.

So a batch that a restarted driver repeats, or a slow twin of the driver, is committed once to each segment. A driver
that dies between two segments leaves the rest to the next run of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rollingfs.errors import AppendOutcomeUnknown, AttributeMismatchError, SegmentSealedError
from rollingfs.format import transitions
from rollingfs.format.header import Phase
from rollingfs.format.transitions import Guard, check_attrs
from rollingfs.fs.core import core
from rollingfs.parquet import files, grow
from rollingfs.parquet.files import RowsFile, of_file
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.create import overwrite
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.formats import PARQUET
from rollingfs.spark.source.options import Options, logger
from rollingfs.spark.source.places import ATTRIBUTE_PREFIX, shortened
from rollingfs.spark.source.sink.task_writer import segment_path

TRIES_MAX = 16
COMMITS_MAX = 16
"""Maximum segments that a write checks, or commits to, at once."""


Marker = tuple[str, int]
"""The attribute by which a segment knows which batches it has, and the number of a batch."""


def marker_of(app: str, number: int) -> Marker:
    """Return the marker of a batch of a query, or of an application that counts its writes."""
    return f"{ATTRIBUTE_PREFIX}{app}", number


def is_in(marker: Marker | None, attrs: Mapping[str, str]) -> bool:
    """Return whether these are the attributes of a segment that has the batch."""
    last = None if marker is None else attrs.get(marker[0])
    return marker is not None and last is not None and int(last) >= marker[1]


def check_marker(marker: Marker, attrs: Mapping[str, str], path: str, *, is_sealed: bool = False) -> None:
    """Refuse a segment that lacks the batch and cannot take it.

    Raises
    ------
    SegmentSealedError
        It is sealed.
    ValueError
        It has no room for the attribute; the message has the details.
    """
    if is_in(marker, attrs):
        return
    key, number = marker
    if is_sealed:
        what = f"it takes no more batches, and lacks batch {number}; nothing was written"
        raise SegmentSealedError(f"{path} is sealed; {what}")
    try:
        check_attrs({**attrs, key: str(number)})
    except ValueError as error:
        known = [f"{name} (batch {value})" for name, value in attrs.items() if name.startswith(ATTRIBUTE_PREFIX)]
        shown = shortened(known) or "none"
        raise ValueError(
            f"{path} has no room for attribute {key}, by which the sink knows its batches; nothing was "
            "written. Remove the attributes of queries whose checkpoints will never be used again, by "
            f'fs.append(path, b"", attrs={{"{ATTRIBUTE_PREFIX}…": None}}). It has, oldest query first: {shown}'
        ) from error


# -- one segment ---------------------------------------------------------------------------------------------------

Version = tuple[int, str | None]


class SegmentCommit:
    """Commits to a segment, on the driver.

    Parameters
    ----------
    name
        The name of the segment in the target's folder; None for the target itself.
    schema
        The columns of the rows.
    pieces
        The data of the tasks of a write, in their order.
    """

    def __init__(
        self, options: Options, name: str | None, schema: pa.Schema, pieces: Sequence[RowsFile] = (), *, overwrite: bool
    ) -> None:
        self.options = options
        self.pieces = pieces
        self.schema = schema
        self.overwrite = overwrite
        self.fs = places.filesystem(options)
        self.path = segment_path(self.fs, options, name)
        self.seen: Segment | None = None
        """The segment at the last look; None if it is missing."""

    def view(self) -> Segment | None:
        """Return the segment as it is now, or None."""
        self.seen = segments.view_now(self.fs, self.path)
        return self.seen

    @property
    def attrs(self) -> Mapping[str, str]:
        """Return the attributes at the last look."""
        return {} if self.seen is None else self.seen.attrs

    def has(self, marker: Marker | None) -> bool:
        """Return whether the segment had the batch at the last look, once no loss of power takes it back."""
        if found := is_in(marker, self.attrs):
            core(self.fs).run(core(self.fs).client.headers.secure(self.path))
        return found

    @property
    def version(self) -> Version:
        """Return the version and incarnation at the last look, which show changes."""
        seen = self.seen
        return (0, None) if seen is None or seen.header is None else (seen.version, seen.header.segment)

    def check(self, *, may_be_sealed: bool = False) -> None:
        """Refuse a segment to which, by the last look, a commit would fail.

        Raises
        ------
        OSError
            It is a folder that is not empty, sealed, or held by an owner.
        ValueError
            Its policy differs from the options.
        """
        if self.seen is None:
            core(self.fs).run(core(self.fs).client.contents.check_no_folder(self.path))
            return
        header = self.seen.header
        if header is None or header.phase is Phase.MERGING:  # the commit waits for the end of a merge
            return
        transitions.check(header, Guard(), self.path)
        if not self.overwrite and not may_be_sealed:
            transitions.check_open(header, self.path)
        given: Mapping[str, Any] = self.options.policy
        policy = header.policy
        # an option is the default of what no folder says; a segment that was moved may not follow its folders yet
        inherited = core(self.fs).client.inherited
        asked = [replace(policy, **given), policy] if given else []
        meant = [core(self.fs).run(inherited.policy(self.path, one)) for one in asked]
        if meant and meant[0] != meant[1]:
            raise ValueError(
                f"{self.path} has {policy}, which the options maxBytes, inlineBytes and maxAge would change; a segment "
                "keeps its policy, and nothing was written. Leave the options out, or delete the segment first"
            )

    def aligned(self) -> pa.Schema:
        """Return the schema in which rows can be appended to the seen segment: of Parquet, with its columns first.

        Raises
        ------
        MalformedFooterError
            It is Parquet with other columns, damaged Parquet, or no Parquet.
        """
        if self.options.format != PARQUET or self.overwrite or self.seen is None or not self.seen.size:
            return self.schema
        footer = grow.footer_of(self.fs, self.seen)
        with of_file(self.path):
            return files.aligned(footer, self.schema)

    # -- the commit ------------------------------------------------------------------------------------------

    def commit(
        self, attrs: Mapping[str, str] | None = None, expected_attrs: Mapping[str, str | None] | None = None
    ) -> None:
        """Append what the tasks wrote, in this order, or overwrite the segment with it.

        Raises
        ------
        OSError
            The errors of `append` and `overwrite` of the filesystem.
        """
        if self.options.format == PARQUET and not self.overwrite:
            self._grow(attrs or {}, expected_attrs or {})
            return
        if self.options.format == PARQUET:
            data = self.grown(None)
        else:
            data = [one.data for one in self.pieces]
            if not data and (self.overwrite or (view := self.view()) is None or not view.length):
                data = [self.options.form.nothing(self.schema)]
        guard = Guard(expected_attrs=expected_attrs or {})

        def with_batches(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
            # a batch of another query that is overwritten has taken place: it must not come again
            return {key: present[key] for key in present if key.startswith(ATTRIBUTE_PREFIX)} | dict(attrs or {})

        if self.overwrite:
            call: Any = overwrite(core(self.fs).client, self.path, data, attrs=with_batches, guard=guard)
        else:
            # the same commit makes the segment if it is missing
            call = append(core(self.fs).client, self.path, data, attrs=attrs, guard=guard, create=True)
        core(self.fs).run(call, commits=self.path)

    def _grow(self, attrs: Mapping[str, str], expected_attrs: Mapping[str, str | None]) -> None:
        """Append Parquet files and a common footer, again after a lost race."""
        verdict = grow.Settled()

        def attempt() -> None:
            view = self.view()
            with grow.changed(self.path, view):
                data = self.grown(view)
                guard = grow.guard_of(view, expected_attrs)
                grow.commit(self.fs, self.path, view, data, verdict, attrs, guard)
            grow.keep_bounded(self.fs, self.path, view, data)

        grow.repeated(self.path, verdict, attempt)

    def grown(self, view: Segment | None) -> list[Any]:
        """Return the data that appends Parquet files to the segment as it is now, None if it is missing.

        Raises
        ------
        MalformedFooterError
            They have other columns, or the footer of the segment is damaged.
        """
        pieces = [one for one in self.pieces if one.footer is not None]
        return grow.grown(self.fs, self.path, view, pieces, self.schema)


# -- all segments of a write ---------------------------------------------------------------------------------------


def commit(parts: Sequence[SegmentCommit], marker: Marker | None, *, checks_all: bool, is_stream: bool) -> None:
    """Commit each part, but not to a segment that has the marker.

    Parameters
    ----------
    checks_all
        Before the first commit, refuse the write if a commit to any of the segments would fail.
    is_stream
        Whether Spark has numbered the batch, and repeats only the last one.

    Raises
    ------
    OSError
        No segment has the data, only some of several have it, which the message names, or the outcome is unknown.
    ValueError
        A segment has a later batch of the query.
    """
    if marker is not None or checks_all:
        look_at(parts)
        if marker is not None and is_stream:
            _check_last(parts, marker)
        parts = [part for part in parts if not part.has(marker)]
        for error in _errors(lambda part: _check(part, marker, checks_all=checks_all), parts).values():
            raise error
    errors = _errors(lambda part: _commit(part, marker), parts)
    if not errors:
        return
    first = next(iter(errors.values()))
    if not (done := [part.path for part in parts if part.path not in errors]):
        raise first
    failed = [f"{path} ({error})" for path, error in errors.items()]
    todo = "do not repeat the whole job" if marker is None else "the next run of the batch commits it to the others"
    raise OSError(
        f"the write is committed to {len(done)} of {len(parts)} segments ({shortened(done)}), and not, or perhaps not, "
        f"to {shortened(failed)}; {todo}"
    ) from first


def _errors(call: Callable[[SegmentCommit], None], parts: Sequence[SegmentCommit]) -> dict[str, Exception]:
    """Call for each part, several at a time, and return the errors by path; an error stops no other part."""

    def one(part: SegmentCommit) -> Exception | None:
        try:
            call(part)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return error
        return None

    with ThreadPoolExecutor(COMMITS_MAX, "rollingfs-spark") as pool:
        found = list(pool.map(one, parts))
    return {part.path: error for part, error in zip(parts, found, strict=True) if error is not None}


def look_at(parts: Sequence[SegmentCommit]) -> None:
    """Look at the segments as they are now; the requests go out together."""
    looks = segments.look(parts[0].fs, [part.path for part in parts]) if parts else []
    for part, look in zip(parts, looks, strict=True):
        if isinstance(look, OSError):
            raise look
        part.seen = look


def _check_last(parts: Sequence[SegmentCommit], marker: Marker) -> None:
    """Refuse a batch before the last one of a segment: other rows may have its number."""
    key, number = marker
    for part in parts:
        if (last := int(part.attrs.get(key, -1))) > number:
            raise ValueError(
                f"{part.path} has batch {last} of the query already, and this is batch {number}: an older copy of the "
                "checkpoint was restored, or another driver of the query is ahead. The rows of this batch may be new; "
                "nothing was written. Bring the newest checkpoint back, or begin with a new one and startingOffsets"
            )


def _check(part: SegmentCommit, marker: Marker | None, *, checks_all: bool) -> None:
    if checks_all:
        part.check()
        if part.options.format == PARQUET:
            part.grown(part.seen)
    if marker is not None:
        check_marker(marker, part.attrs, part.path)


def _commit(part: SegmentCommit, marker: Marker | None) -> None:
    """Commit a part, unless its segment has the marker; it was seen a moment ago."""
    if marker is None:
        part.commit()
        return
    key, number = marker
    for _ in range(TRIES_MAX):
        if part.has(marker):
            logger.info("%s: batch %d is committed already (%s)", part.path, number, key)
            return
        try:
            part.commit({key: str(number)}, {key: part.attrs.get(key)})
            return
        except (AttributeMismatchError, AppendOutcomeUnknown) as error:
            failure = error  # another driver was faster, or the commit took place: look again
        try:
            part.view()
        except OSError as error:
            raise failure from error  # the first error is the cause
        check_marker(marker, part.attrs, part.path)
    raise failure


# -- afterwards --------------------------------------------------------------------------------------------------


def log_outcomes(parts: Sequence[SegmentCommit], marker: Marker | None, planned: Version | None) -> None:
    """Log which parts of a failed job were committed by now, in a line for each outcome.

    Parameters
    ----------
    planned
        The target as it was when the job was planned, if that is known.
    """
    look_at(parts)
    found: dict[bool | None, list[SegmentCommit]] = {}
    for part in parts:
        found.setdefault(_is_committed(part, marker, planned), []).append(part)
    for outcome, of_outcome in found.items():
        paths = shortened([part.path for part in of_outcome])
        if outcome:
            logger.warning("%s: the job reports a failure, but its data IS committed; do not repeat the job", paths)
        elif outcome is None:
            logger.warning(
                "%s: the job failed; its data was perhaps committed, for the segment was changed since the job began: "
                "look for its rows before you repeat the job",
                paths,
            )
        else:
            logger.warning("%s: the job failed, and nothing was committed", paths)


def _is_committed(part: SegmentCommit, marker: Marker | None, planned: Version | None) -> bool | None:
    """Return whether a part was committed; None if it is unknown."""
    now = part.version
    if marker is not None and is_in(marker, part.attrs):
        return True if int(part.attrs[marker[0]]) == marker[1] else None
    if planned is not None and planned[1] != now[1]:
        return None  # of the segment that the job was planned for nothing is known any more
    if marker is not None or now[1] is None:
        return False
    return False if planned == now else None
