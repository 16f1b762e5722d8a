"""The values of a line of JSON in the types of the columns, exactly as Spark's reader converts them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.spark.source.json_scalars import Scalar, UnsupportedTypeError, scalar_of
from rollingfs.spark.source.json_tokens import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    FALSE,
    INTEGER,
    NAME,
    NULL,
    NUMBER,
    OPEN_LIST,
    OPEN_OBJECT,
    STRING,
    TRUE,
    BadJsonError,
    Tokens,
)

Row = list[Any]
Skip = Callable[[], None]


class _PartialError(BadJsonError):
    """A value does not fit, but there is a part of it that Spark keeps."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _OddLineError(Exception):
    """The quick way cannot judge a line."""


class _Integer(str):
    __slots__ = ()


class _Number(str):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Converter:
    """Makes a value of a type: of the value of Python's reader, or of tokens."""

    of_value: Callable[[Any], Any]
    of_tokens: Callable[[Tokens], Any]


class LineParser:
    """Reads one line at a time, exactly.

    Parameters
    ----------
    schema
        The columns.
    zone
        That of times that name none.

    Raises
    ------
    UnsupportedTypeError
        A column has a type of which JSON has no values.
    """

    def __init__(self, schema: pa.Schema, zone: tzinfo) -> None:
        self._names = {field.name: nth for nth, field in enumerate(schema)}
        self._converters = [_converter(field.type, zone, field.name) for field in schema]
        self._decoder = json.JSONDecoder(
            parse_float=_Number, parse_int=_Integer, parse_constant=_Number, object_pairs_hook=_object
        )

    def parse(self, line: bytes) -> tuple[list[Row], bool]:
        """The rows of a line, and whether something in it is malformed; then the rows are what could be read."""
        try:
            return self._quickly(line)
        except (_OddLineError, ValueError, RecursionError):
            return self._exactly(line)

    def _quickly(self, line: bytes) -> tuple[list[Row], bool]:
        """The same by Python's own reader, which is faster, for lines that are sound JSON.

        Raises
        ------
        _OddLineError, ValueError, RecursionError
            Only the tokens can tell.
        """
        if b"\\u" in line:
            raise _OddLineError
        value, _ = self._decoder.raw_decode(line.decode().lstrip(" \t\r\n"))
        if not isinstance(value, dict):
            raise _OddLineError
        try:
            return [_row_of_values(value, self._names, self._converters)], False
        except _PartialError as error:
            return [error.value], True

    def _exactly(self, line: bytes) -> tuple[list[Row], bool]:
        tokens = Tokens(line)
        try:
            first = tokens.next()
            if first is None:
                return [], False
            if first == OPEN_LIST:
                return self._list_of_rows(tokens)
            if first != OPEN_OBJECT:
                return [], True
            return [_row_of_tokens(tokens, self._names, self._converters)], False
        except _PartialError as error:
            return [error.value], True
        except BadJsonError:
            return [], True

    def _list_of_rows(self, tokens: Tokens) -> tuple[list[Row], bool]:
        rows, is_bad = [], False
        while tokens.next() not in (CLOSE_LIST, None):
            if tokens.token != OPEN_OBJECT:
                raise BadJsonError
            try:
                rows.append(_row_of_tokens(tokens, self._names, self._converters))
            except _PartialError as error:
                rows.append(error.value)
                is_bad = True
        return rows, is_bad


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _OddLineError  # the first of a name may be malformed
    return found


def _row_of_values(value: dict[str, Any], names: dict[str, int], converters: list[_Converter]) -> Row:
    row: Row = [None] * len(names)
    is_bad = False
    for name, nth in names.items():
        item = value.get(name)
        if item is None:
            continue
        try:
            row[nth] = converters[nth].of_value(item)
        except _PartialError as error:
            row[nth] = error.value
            is_bad = True
        except BadJsonError:
            is_bad = True
    if is_bad:
        raise _PartialError(row)
    return row


def _row_of_tokens(tokens: Tokens, names: dict[str, int], converters: list[_Converter]) -> Row:
    row: Row = [None] * len(names)
    is_bad = False
    while tokens.next() not in (CLOSE_OBJECT, None):
        nth = names.get(tokens.name) if tokens.name is not None else None
        if nth is None:
            tokens.skip()
            continue
        try:
            row[nth] = converters[nth].of_tokens(tokens)
        except _PartialError as error:
            row[nth] = error.value
            is_bad = True
        except BadJsonError:
            is_bad = True
            tokens.skip()
    if is_bad:
        raise _PartialError(row)
    return row


# -- converters ----------------------------------------------------------------------------------------------------


def _converter(kind: pa.DataType, zone: tzinfo, column: str) -> _Converter:
    if pt.is_struct(kind):
        return _struct(kind, [_converter(field.type, zone, column) for field in kind])
    if pt.is_map(kind) and pt.is_string(kind.key_type):
        return _map(_converter(kind.item_type, zone, column))
    if pt.is_list(kind):
        return _list(_converter(kind.value_type, zone, column))
    if pt.is_string(kind):
        return _Converter(_text_of_value, _token_reader(lambda tokens: tokens.raw()))
    scalar = scalar_of(kind, zone)
    if scalar is None:
        raise UnsupportedTypeError(f"column {column!r} is of type {kind}, of which JSON has no values")
    return _of_scalar(scalar)


def _token_reader(read: Callable[[Tokens], Any]) -> Callable[[Tokens], Any]:
    """A reader of a value that stands behind a name, or in a list; null is None."""

    def reader(tokens: Tokens) -> Any:
        while tokens.token == NAME:
            tokens.next()
        return None if tokens.token in (None, NULL) else read(tokens)

    return reader


def _of_scalar(scalar: Scalar) -> _Converter:
    def of_value(value: Any) -> Any:
        kind = _KINDS.get(type(value))
        if kind is None:
            raise BadJsonError
        return scalar(kind, value) if kind != FALSE else scalar(TRUE if value else FALSE, _text_of_value(value))

    def of_tokens(tokens: Tokens) -> Any:
        token = tokens.token
        if token not in (STRING, INTEGER, NUMBER, TRUE, FALSE):
            raise BadJsonError
        return scalar(token, tokens.text())

    return _Converter(of_value, _token_reader(of_tokens))


_KINDS: dict[type, str] = {str: STRING, _Integer: INTEGER, _Number: NUMBER, bool: FALSE}


def _text_of_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _OddLineError  # the letters of an object or a list


def _struct(kind: pa.StructType, converters: list[_Converter]) -> _Converter:
    fields = [field.name for field in kind]
    names = {name: nth for nth, name in enumerate(fields)}

    def finished(read: Callable[[], Row]) -> dict[str, Any]:
        try:
            return dict(zip(fields, read(), strict=True))
        except _PartialError as error:
            raise _PartialError(dict(zip(fields, error.value, strict=True))) from None

    def of_value(value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadJsonError
        return finished(partial(_row_of_values, value, names, converters))

    def of_tokens(tokens: Tokens) -> Any:
        if tokens.token != OPEN_OBJECT:
            raise BadJsonError
        return finished(partial(_row_of_tokens, tokens, names, converters))

    return _Converter(of_value, _token_reader(of_tokens))


def _list(inner: _Converter) -> _Converter:
    """Spark keeps a part of an object in a list, but no part of a list with another malformed value."""

    def gathered(items: Any, convert: Callable[[Any], Any]) -> list[Any]:
        found, is_bad = [], False
        for item in items:
            try:
                found.append(convert(item))
            except _PartialError as error:
                found.append(error.value)
                is_bad = True
        if is_bad:
            raise _PartialError(found)
        return found

    def of_value(value: Any) -> Any:
        if not isinstance(value, list):
            raise BadJsonError
        return gathered(value, lambda item: None if item is None else inner.of_value(item))

    def of_tokens(tokens: Tokens) -> Any:
        if tokens.token != OPEN_LIST:
            raise BadJsonError
        items = iter(lambda: None if tokens.next() in (CLOSE_LIST, None) else tokens, None)
        return gathered(items, inner.of_tokens)

    return _Converter(of_value, _token_reader(of_tokens))


def _map(inner: _Converter) -> _Converter:
    """Spark reads a map to its end. It keeps a part of an object in it, but no part of a map with a malformed value."""

    def gathered(items: Iterable[tuple[str | None, Any]], convert: Callable[[Any], Any], skip: Skip) -> list[Any]:
        found, is_partial, is_bad = [], False, False
        for key, item in items:
            try:
                found.append((key, convert(item)))
            except _PartialError as error:
                found.append((key, error.value))
                is_partial = True
            except BadJsonError:
                is_bad = True
                skip()
        if is_bad:
            raise BadJsonError
        if is_partial:
            raise _PartialError(found)
        return found

    def of_value(value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadJsonError
        return gathered(value.items(), lambda item: None if item is None else inner.of_value(item), lambda: None)

    def of_tokens(tokens: Tokens) -> Any:
        if tokens.token != OPEN_OBJECT:
            raise BadJsonError
        items = iter(lambda: None if tokens.next() in (CLOSE_OBJECT, None) else (tokens.name, tokens), None)
        return gathered(items, inner.of_tokens, tokens.skip)

    return _Converter(of_value, _token_reader(of_tokens))
