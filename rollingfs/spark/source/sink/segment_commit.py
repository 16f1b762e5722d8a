"""Commits the data of tasks for a segment: an append or an overwrite, in a single header replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rollingfs.format import transitions
from rollingfs.format.header import Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.parquet import files, grow
from rollingfs.parquet.files import of_file
from rollingfs.policy import RollingPolicy
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.append import append
from rollingfs.segment.verbs.create import overwrite
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.formats import PARQUET
from rollingfs.spark.source.loops import ATTRIBUTE_PREFIX
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.sink.task_writer import TaskData, segment_path

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
        self, options: Options, name: str | None, schema: pa.Schema, pieces: Sequence[TaskData] = (), *, overwrite: bool
    ) -> None:
        self.options = options
        self.pieces = pieces
        self.schema = schema
        self.overwrite = overwrite
        self.path = segment_path(self.fs, options, name)
        self.seen: Segment | None = None
        """The segment at the last look; None if it is missing."""

    @property
    def fs(self) -> RollingFileSystem:
        """Return the filesystem; all commits of a process share it."""
        return places.filesystem(self.options)

    def view(self) -> Segment | None:
        """Return the segment as it is now, or None."""
        self.seen = segments.view_now(self.fs, self.path)
        return self.seen

    @property
    def attrs(self) -> Mapping[str, str]:
        """Return the attributes at the last look."""
        return {} if self.seen is None else self.seen.attrs

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
        if header is not None and header.phase is not Phase.MERGING:  # the commit waits for the end of a merge
            transitions.check(header, Guard(), self.path)
            if not self.overwrite and not may_be_sealed:
                transitions.check_open(header, self.path)
            self._check_policy(header.policy)

    def _check_policy(self, policy: RollingPolicy) -> None:
        given: Mapping[str, Any] = self.options.policy
        if not given:
            return
        # an option is the default of what no folder says; a segment that was moved may not follow its folders yet
        inherited = core(self.fs).client.inherited
        meant, kept = (
            core(self.fs).run(inherited.policy(self.path, one)) for one in (replace(policy, **given), policy)
        )
        if meant != kept:
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
        if self.options.format == PARQUET:
            self._grow(attrs or {}, expected_attrs or {})
        else:
            data = [one.data for one in self.pieces] or self._nothing()
            self._write(data, attrs or {}, Guard(expected_attrs=expected_attrs or {}))

    def _nothing(self) -> list[bytes]:
        """Return the bytes of zero rows for an empty segment."""
        view = None if self.overwrite else self.view()
        is_empty = view is None or not view.length
        return [self.options.form.nothing(self.schema)] if is_empty else []

    def _write(self, data: Sequence[Any], attrs: Mapping[str, str], guard: Guard) -> None:

        def with_batches(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
            # a batch of another query that is overwritten has taken place: it must not come again
            return {key: present[key] for key in present if key.startswith(ATTRIBUTE_PREFIX)} | dict(attrs)

        if self.overwrite:
            call: Any = overwrite(core(self.fs).client, self.path, data, attrs=with_batches, guard=guard)
        else:
            # the same commit makes the segment if it is missing
            call = append(core(self.fs).client, self.path, data, attrs=attrs, guard=guard, create=True)
        core(self.fs).run(call, commits=self.path)

    def _grow(self, attrs: Mapping[str, str], expected_attrs: Mapping[str, str | None]) -> None:
        """Append Parquet files and a common footer, again after a lost race."""
        if self.overwrite:
            self._write(self.grown(None), attrs, Guard(expected_attrs=expected_attrs))
            return

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
