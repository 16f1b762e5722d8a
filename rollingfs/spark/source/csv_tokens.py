"""The fields of one line of CSV, as Spark's own reader (univocity) cuts it, unbalanced quotes included. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How fields are told apart: the options of Spark's CSV, with its defaults."""

    sep: str = ","
    quote: str = '"'
    """Empty: there are no quotes."""
    escape: str = "\\"
    """Within quotes, it stands before a quote, or before itself. It may be the quote."""
    null_value: str = ""
    header: bool = False


class _EndOfLineError(Exception):
    pass


def fields(line: str, form: CsvFormat) -> list[str | None]:
    """The fields of a line; None is a field with nothing between the separators, not even quotes."""
    if form.quote not in line or not form.quote:
        return [field or None for field in line.split(form.sep)]
    return _Cutter(line, form).fields()


class _Cutter:
    """Cuts a line with quotes. A field whose quotes do not end at a separator stays as it is, with its quotes."""

    def __init__(self, line: str, form: CsvFormat) -> None:
        self._line = line
        self._sep = form.sep
        self._quote = form.quote
        self._escape = form.escape
        self._twice = form.escape if form.escape != form.quote else ""
        """What stands before an escape that is meant as it stands."""
        self._at = 0
        self._letter = ""
        self._before = ""
        self._parts: list[str] = []
        self._is_raw = False
        self._found: list[str | None] = []

    def fields(self) -> list[str | None]:
        try:
            self._next()
            while True:
                self._field()
                self._next()
        except _EndOfLineError:
            self._finish()
        return self._found

    def _field(self) -> None:
        """Take a field; the letter is its first, and then the separator behind it."""
        if self._letter == self._sep:
            self._found.append(None)
            return
        self._is_raw, self._before = False, ""
        if self._letter == self._quote:
            self._quoted()
        else:
            self._upto(self._sep)
        self._take()

    def _take(self) -> None:
        self._found.append("".join(self._parts))
        self._parts = []

    def _finish(self) -> None:
        """Take what was read when the line ended."""
        is_whole = self._letter == self._quote and self._before == self._quote
        if self._letter == self._quote and not is_whole and not self._is_raw:
            self._parts.append(self._quote)
        if any(self._parts) or is_whole or (self._before and self._letter != self._sep):
            self._take()
        else:
            self._found.append(None)

    def _next(self) -> None:
        """Go to the next letter; a separator of several letters counts as one."""
        if self._at >= len(self._line):
            raise _EndOfLineError
        many = self._line.startswith(self._sep, self._at)
        self._letter = self._sep if many else self._line[self._at]
        self._at += len(self._letter)

    def _upto(self, *stops: str) -> None:
        first = self._letter
        try:
            while self._letter not in stops:
                self._parts.append(self._letter)
                self._next()
        except _EndOfLineError:
            self._letter = first  # by which univocity judges the end of the line
            raise

    def _quoted(self) -> None:
        self._next()
        while not (self._before == self._quote and (self._letter == self._sep or self._letter <= " ")):
            if self._letter not in (self._quote, self._escape):
                if self._before == self._quote:
                    self._is_raw = True
                    self._parts += [self._quote, self._letter]
                    self._before = self._letter
                    self._as_it_stands()
                    return
                if self._before == self._escape:
                    self._parts.append(self._escape)
                self._upto(self._quote, self._escape)
                self._before = self._letter
                self._next()
            else:
                self._special()
                self._before = self._letter
                self._next()
        if self._letter != self._sep:
            self._behind_quotes()

    def _behind_quotes(self) -> None:
        """Drop blanks behind the quotes; if there is more, the field is taken as it stands."""
        blanks = []
        while self._letter != self._sep and self._letter <= " ":
            blanks.append(self._letter)
            self._next()
        if self._letter != self._sep:
            self._parts += [self._quote, *blanks, self._letter]
            self._before = self._letter
            self._as_it_stands()

    def _as_it_stands(self) -> None:
        self._parts.insert(0, self._quote)
        self._next()
        self._upto(self._sep)

    def _special(self) -> None:
        """A quote or an escape within quotes."""
        if self._twice and self._letter == self._escape and self._before == self._twice:
            self._parts.append(self._escape)
            self._letter = ""
        elif self._before == self._escape:
            self._parts.append(self._quote if self._letter == self._quote else self._before)
            if self._letter == self._quote:
                self._letter = ""
        elif self._letter == self._quote and self._before == self._quote:
            self._parts.append(self._quote)
        elif self._before == self._quote:
            self._parts.append(self._quote)
            self._before = self._letter
            self._unquoted()

    def _unquoted(self) -> None:
        while self._letter != self._sep:
            if self._letter not in (self._quote, self._escape):
                if self._before == self._quote:
                    self._parts.append(self._quote)
                    self._before = self._letter
                    self._unquoted()
                    return
                self._parts.append(self._letter)
            else:
                self._special()
            self._before = self._letter
            self._next()
