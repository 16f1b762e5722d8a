"""JSON lines as Arrow batches: blocks by Arrow's reader; lines that it refuses, or reads otherwise, one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from rollingfs.spark.source import modes, odd_lines, row_replacement, text_columns
from rollingfs.spark.source.json_adapt import Adaptation
from rollingfs.spark.source.json_sieve import Sieve
from rollingfs.spark.source.json_values import LineParser, Row
from rollingfs.spark.source.lines import FEED, Lines
from rollingfs.spark.source.modes import CORRUPT_COLUMN, DROPMALFORMED, FAILFAST, PERMISSIVE
from rollingfs.spark.source.numbered_lines import NumberedLines
from rollingfs.spark.source.slow_lines import SlowLines

PART_LINES_MIN = 64
"""A part of fewer lines that Arrow's reader refuses, without a word on which, is read line by line."""
RUN_LINES_MIN = 16
"""If Arrow refuses a line within as few lines, the next `PART_LINES_MIN` lines are read one by one."""

DOUBTFUL_SHARE_MAX = 1 / 8
"""If more lines may be bad, for all that their pattern tells, Arrow tries them, except lines with maps."""

_ROW = re.compile(r" in row (\d+)$")


Part = tuple[int, int, bool]
"""The lines from one number to another, and whether Arrow may read them."""


class _RefusedError(Exception):
    """Arrow does not read a part of a block."""

    def __init__(self, line: int | None, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        """The line that it refuses, if that is known."""


class Reader:
    """Reads blocks of JSON lines with one schema.

    Parameters
    ----------
    schema
        That of the rows; fields that it lacks are skipped.
    zone
        That of times which name none.
    mode, corrupt_column
        What becomes of malformed records: see `modes`.

    Raises
    ------
    UnsupportedTypeError
        A column has a type of which JSON has no values.
    """

    def __init__(
        self,
        schema: pa.Schema,
        zone: tzinfo = UTC,
        mode: str = PERMISSIVE,
        corrupt_column: str = CORRUPT_COLUMN,
    ) -> None:
        self.schema = schema
        self._zone = zone
        self._mode = mode
        self._corrupt = schema.get_field_index(corrupt_column)
        self._data = pa.schema([field for nth, field in enumerate(schema) if nth != self._corrupt])
        self._parser = LineParser(self._data, zone)
        self._adaptation = Adaptation(self._data)
        self._sieve = Sieve(self._data) if self._adaptation.is_possible else None
        has_objects = self._sieve is not None and self._adaptation.maps
        self._object_sieve = Sieve(self._data, has_lists=False) if has_objects else self._sieve
        """That of a block whose maps Arrow reads as objects."""
        self._is_sifting = False
        """Arrow refused lines of the last block, so lines of the next are looked at first."""
        self._slow_lines = SlowLines("JSON")

    def read(self, block: Lines) -> list[pa.RecordBatch]:
        """The rows of a block of whole lines, in order.

        Raises
        ------
        MalformedRecordError
            A record is malformed, and the mode is FAILFAST.
        """
        data = bytes(block) if block.start or block.end < len(block.data) else block.data
        data = odd_lines.without_blank(data if block.ends else data + FEED)
        return [batch for batch in self._parts(data) if batch.num_rows]

    # -- many lines at once ----------------------------------------------------------------------------------

    def _parts(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of all lines; a part at a time where Arrow refuses a line."""
        if not data:
            return
        if not self._adaptation.is_possible:
            yield self._slowly(data.split(FEED)[:-1])
            return
        plain = NumberedLines(data)
        odd, is_sieved = self._unreadable(plain)
        if len(odd) == plain.count:
            yield self._slowly(data.split(FEED)[:-1])
            return
        must_sift = not (self._is_sifting or is_sieved)
        self._is_sifting = self._is_sifting and bool(odd)
        todo: list[Part] = [(0, plain.count, True)]
        adapted = self._adapted(plain, odd)
        while todo:
            first, last, may_be_fast = todo.pop()
            if not may_be_fast:
                yield self._slowly(bytes(plain.part(first, last)).split(FEED)[:-1])
                continue
            try:
                batch, marked = self._fast(adapted.part(first, last), last - first, is_sieved)
                marked |= {nth - first for nth in odd if first <= nth < last}
                if not is_sieved:
                    marked |= odd_lines.misread(plain.part(first, last))
                numbers = sorted(marked)
                yield self._replaced(batch, [plain.line(first + nth) for nth in numbers], numbers) if marked else batch
            except _RefusedError as error:
                if self._adaptation.adapts(str(error)):
                    adapted = self._adapted(plain, odd)
                    todo.append((first, last, True))
                    continue
                self._is_sifting = True
                if must_sift:
                    must_sift = False
                    is_sieved = self._sift(plain, odd)
                    adapted = self._adapted(plain, odd)
                    todo.append((first, last, True))
                    continue
                todo += reversed(_cut(first, last, error.line))

    def _unreadable(self, plain: NumberedLines) -> tuple[set[int], bool]:
        """The lines that Arrow must not read, and whether all others have passed the sieve."""
        odd = odd_lines.nulls(plain.data) | odd_lines.undecodable(plain.data)
        odd |= self._adaptation.settle_maps(plain)
        if self._adaptation.has_lists:
            assert self._sieve is not None
            doubtful = self._sieve.doubtful(plain.texts)
            return set(range(plain.count)) if doubtful is None else odd | set(doubtful), True
        return odd, self._is_sifting and self._sift(plain, odd)

    def _sift(self, plain: NumberedLines, odd: set[int]) -> bool:
        """Add the lines that Arrow may refuse, if they are not too many; whether all others have passed the sieve."""
        found = self._object_sieve.doubtful(plain.texts) if self._object_sieve is not None else None
        if found is None or (len(found) > plain.count * DOUBTFUL_SHARE_MAX and not self._adaptation.maps):
            return False
        odd.update(found)
        return True

    def _adapted(self, plain: NumberedLines, odd: set[int]) -> NumberedLines:
        """The lines as Arrow is to read them; the odd ones are empty objects."""
        data = plain.blanked(odd) if odd else plain.data
        return NumberedLines(self._adaptation.adapted(data))

    def _fast(self, raw: memoryview, count: int, is_sieved: bool) -> tuple[pa.RecordBatch, set[int]]:
        """The rows as Arrow reads them, and the numbers of those that must be read one by one.

        Parameters
        ----------
        is_sieved
            Each line is one object.

        Raises
        ------
        _RefusedError
            Arrow does not read every line as one row.
        """
        options = pj.ReadOptions(use_threads=False, block_size=len(raw))
        try:
            table = pj.read_json(pa.BufferReader(pa.py_buffer(raw)), options, self._adaptation.options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            row = _ROW.search(str(error))
            line = int(row[1]) if row and int(row[1]) < count else None
            raise _RefusedError(line, str(error)) from error
        if table.num_rows != count or (not is_sieved and odd_lines.may_span(raw)):
            raise _RefusedError(None, "there are several values in a line, or a value over several lines")
        marks = []
        columns: list[pa.Array] = []
        full = self._adaptation.full_maps
        for field in self._data:
            column = table.column(field.name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
            try:
                column, mark = text_columns.converted(column, field.type, self._zone, full, field.name)
            except text_columns.InnerValueError as error:
                raise _RefusedError(None, "a value inside a list") from error
            columns.append(column)
            if mark is not None:
                marks.append(mark)
        if self._corrupt >= 0:
            columns.insert(self._corrupt, pa.nulls(count, self.schema.field(self._corrupt).type))
        mark = text_columns.either(marks)
        marked = set() if mark is None else set(pc.indices_nonzero(mark).to_pylist())
        return pa.record_batch(columns, schema=self.schema), marked

    def _replaced(self, batch: pa.RecordBatch, lines: list[bytes], odd: list[int]) -> pa.RecordBatch:
        """The batch with the rows of some lines read one by one."""
        found = [self._rows(line) for line in lines]
        self._count(len(odd))
        instead = self._batch([row for rows in found for row in rows])
        return row_replacement.replaced(batch, odd, [len(rows) for rows in found], instead)

    # -- one by one ------------------------------------------------------------------------------------------

    def _slowly(self, lines: list[bytes]) -> pa.RecordBatch:
        self._count(len(lines))
        return self._batch([row for line in lines for row in self._rows(line)])

    def _rows(self, line: bytes) -> list[Row]:
        """The rows of a line: one; for a list of objects several; for blanks none."""
        rows, is_bad = self._parser.parse(line)
        if is_bad and self._mode == FAILFAST:
            raise modes.malformed(line)
        if is_bad and self._mode == DROPMALFORMED:
            return []
        if is_bad and not rows:
            rows = [[None] * len(self._data)]
        if self._corrupt >= 0:
            text = line.decode(errors="replace") if is_bad else None
            for row in rows:
                row.insert(self._corrupt, text)
        return rows

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        if not len(self.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        columns: list[Any] = [
            pa.array([row[nth] for row in rows], field.type, from_pandas=False) for nth, field in enumerate(self.schema)
        ]
        return pa.record_batch(columns, schema=self.schema)

    def _count(self, lines: int) -> None:
        other = "they are malformed, or their values have other forms than their columns, or their maps have escapes"
        if self._adaptation.maps and self._sieve is not None and not self._sieve.is_possible:
            other = f"a map ({', '.join(self._adaptation.maps)}) beside very many columns"
        self._slow_lines.add(lines, self._adaptation.reason or other)


def _cut(first: int, last: int, refused: int | None) -> list[Part]:
    """The parts of a part that was refused, and whether Arrow may read each; `refused` counts from `first`."""
    if refused is None:
        middle = (first + last) // 2
        is_small = last - first <= PART_LINES_MIN
        return [(first, last, False)] if is_small else [(first, middle, True), (middle, last, True)]
    at = first + refused
    upto = min(at + (1 if refused >= RUN_LINES_MIN else PART_LINES_MIN), last)
    return [part for part in ((first, at, True), (at, upto, False), (upto, last, True)) if part[0] < part[1]]
