"""Commits what tasks wrote for one segment: an append or an overwrite, in one header replacement."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from rollingfs.commit.chunk_files import Staged
from rollingfs.errors import BadOffsetError
from rollingfs.format import names, transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.policy import RollingPolicy
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.formats import PARQUET, parquet_files
from rollingfs.spark.source.formats.footer import MalformedFooterError, Part
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.segments import SegmentReader
from rollingfs.spark.source.sink.messages import Piece
from rollingfs.spark.source.sink.task_writer import segment_path

FOOTER_READ_BYTES = 512 * 1024
"""Maximum bytes of the first read for the footer of a Parquet file. A second request takes longer than these bytes."""
GROWTHS_MAX = 64
"""Maximum tries to append to a Parquet file while other writers append; each try makes a new footer."""
GROWTH_PAUSE_S = 0.02
"""Maximum pause before the second try; it doubles with each try. It is random, so that writers do not meet again."""
GROWTH_PAUSE_S_MAX = 1.0


class SegmentCommit:
    """Commits to one segment, on the driver.

    Parameters
    ----------
    name
        The name of the segment in the target's folder; None for the target itself.
    schema
        The columns of the rows.
    """

    def __init__(self, options: Options, name: str | None, schema: pa.Schema, *, overwrite: bool) -> None:
        self.options = options
        self.schema = schema
        self.overwrite = overwrite
        self.path = segment_path(self.fs, options, name)

    @property
    def fs(self) -> RollingFileSystem:
        """The filesystem; all commits of a process share it."""
        return places.filesystem(self.options)

    def view(self) -> Snapshot | None:
        """The segment as it is now, or None."""
        return segments.view_now(self.fs, self.path)

    def check(self, view: Snapshot | None, *, may_be_sealed: bool = False) -> None:
        """Refuse a segment to which a commit would fail.

        Parameters
        ----------
        view
            The segment as it is now.

        Raises
        ------
        OSError
            It is a folder with something in it, sealed, or held by an owner.
        ValueError
            It has another policy than the options say.
        """
        if view is None:
            core(self.fs).run(core(self.fs).client.contents.check_no_folder(self.path))
            return
        header = view.header
        if header is not None and header.phase is not Phase.MERGING:  # the commit waits for the end of a merge
            transitions.check(header, Guard(), self.path)
            if not self.overwrite and not may_be_sealed:
                transitions.check_open(header, self.path)
            self._check_policy(header.policy)

    def _check_policy(self, policy: RollingPolicy) -> None:
        there: dict[str, Any] = {
            "max_bytes": policy.max_bytes,
            "max_age": policy.max_age,
            "inline_bytes": policy.inline_bytes,
        }
        wanted = RollingPolicy(**{**there, **self.options.sink.policy})
        if wanted != policy:
            raise ValueError(
                f"{self.path} has {policy}, which the options maxBytes, inlineBytes and maxAge would change; a segment "
                "keeps its policy, and nothing was written. Leave the options out, or delete the segment first"
            )

    def aligned(self, view: Snapshot | None) -> pa.Schema:
        """The schema in which rows can be appended to the segment as it is: of Parquet, with its columns first.

        Raises
        ------
        MalformedFooterError
            It is Parquet with other columns, damaged Parquet, or no Parquet.
        """
        if self.options.format != PARQUET or self.overwrite or view is None or not view.size:
            return self.schema
        footer = self._footer(view)
        with _of_file(self.path):
            return parquet_files.aligned(footer, self.schema)

    # -- the commit ------------------------------------------------------------------------------------------

    def commit(
        self,
        pieces: Sequence[Piece],
        attrs: Mapping[str, str] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Append what the tasks wrote, in this order, or overwrite the segment with it.

        Raises
        ------
        OSError
            The errors of `append` and `overwrite` of the filesystem.
        """
        if self.options.format == PARQUET:
            self._grow([one for one in pieces if one.footer is not None], attrs or {}, expected_attrs or {})
        else:
            self._write([one.data for one in pieces], attrs or {}, Guard(expected_attrs=expected_attrs or {}))

    def _write(self, data: Sequence[Any], attrs: Mapping[str, str], guard: Guard) -> None:
        segment_verbs = core(self.fs).client.segments
        if self.overwrite:
            call: Any = segment_verbs.overwrite(self.path, data, attrs=attrs, guard=guard)
        else:
            # the same commit makes the segment if it is missing
            call = segment_verbs.extend(self.path, data, attrs=attrs, guard=guard, create=True)
        core(self.fs).run(call, commits=self.path)

    def _grow(
        self, pieces: Sequence[Piece], attrs: Mapping[str, str], expected_attrs: Mapping[str, str | None]
    ) -> None:
        """Append Parquet files and a footer that makes one file of all; try again if another writer was faster."""
        for nth in range(GROWTHS_MAX):
            view = None if self.overwrite else self.view()
            data = self.grown(pieces, view)
            expected = None if self.overwrite else (view.length if view is not None else 0)
            try:
                self._write(data, attrs, Guard(expected_offset=expected, expected_attrs=expected_attrs))
            except BadOffsetError:
                # another writer appended after we looked
                time.sleep(random.uniform(0, min(GROWTH_PAUSE_S * 2**nth, GROWTH_PAUSE_S_MAX)))
                continue
            return
        raise BadOffsetError(
            f"{self.path}: other writers appended before each of {GROWTHS_MAX} tries; nothing was written. Try again"
        )

    def grown(self, pieces: Sequence[Piece], view: Snapshot | None) -> list[Any]:
        """The data that appends Parquet files to the segment as it is now, None if it is missing.

        Raises
        ------
        MalformedFooterError
            They have other columns, or the footer of the segment is damaged.
        """
        if view is None or not view.size:
            return self._joined(pieces, None, 0)
        old = self._footer(view)
        with _of_file(self.path):
            return self._joined(pieces, old, view.size)

    def _joined(self, pieces: Sequence[Piece], old: bytes | None, size: int) -> list[Any]:
        """The data that appends the rows of all pieces to a file of `size` bytes; `old` is its footer."""
        parts: list[Part] = []
        at = size
        for piece in pieces:
            parts.append(Part(piece.footer or b"", at))
            at += piece.size
        data: list[Any] = [piece.data for piece in pieces]
        if old is None:
            if not parts:
                return [parquet_files.empty(self.schema)]
            return [*data, parquet_files.tail(parts)] if len(parts) > 1 else data
        if not parts:
            return []
        nulls, old = parquet_files.widened(old, parts[0].footer, self.schema, at)
        return [*data, nulls, parquet_files.tail([Part(old, 0), *parts])]

    def _footer(self, view: Snapshot) -> bytes:
        near = max(_last_run(view), view.length - FOOTER_READ_BYTES)
        try:
            return parquet_files.footer_of(SegmentReader(self.fs, view).read, view.start, view.length, near)
        except MalformedFooterError as error:
            raise _refused(view.path, str(error)) from error

    # -- afterwards --------------------------------------------------------------------------------------------

    def names_any(self, header: Header, staged: Sequence[Staged]) -> bool:
        """Whether a header names a chunk of some receipts."""
        named = {
            chunk.file for chunk in core(self.fs).run(core(self.fs).client.pages.unfold(self.path, header.entries))
        }
        return any(names.relate(self.path, chunk.path) in named for one in staged for chunk in one.chunks)


def _last_run(view: Snapshot) -> int:
    """Where the bytes begin that one request gives: those of the tail, else those of the last chunk."""
    header = view.header
    if header is None or header.tail or not header.entries:
        return view.start if header is None else header.tail_start
    return header.entries[-1].start


@contextmanager
def _of_file(path: str) -> Iterator[None]:
    """Refuse rows that do not fit the footer of a segment, or whose footer cannot be understood. No I/O goes within."""
    try:
        yield
    except MalformedFooterError as error:
        raise _refused(path, str(error)) from error
    except Exception as error:  # bytes that are damaged anywhere can fail everywhere
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise _refused(path, f"its footer is damaged, or of a kind that is not known ({detail})") from error


def _refused(path: str, why: str) -> MalformedFooterError:
    return MalformedFooterError(f"{path}: these rows cannot be appended to it as Parquet: {why}; nothing was written")
