"""The footer of a Parquet file: taken apart and put together again, so that files can be joined or grow. Pure.

Only the footer of a Parquet file names its row groups, by their offsets. So more row groups can follow a file, and a
new footer that names all of them: for readers it is a single file. No footer names the old footers in between.
The footer is Thrift in its compact protocol. Only offsets in it are changed; the rest stays.

A file has a single schema, so every row group must have a chunk of each column. When new rows add columns, the old row
groups get chunks of nulls for them, which are after the old bytes (see `widen`).
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from rollingfs.format.arrow_stream import column_metadata, duration_units
from rollingfs.parquet_footer.thrift import I16, I32, I64, LIST, STRUCT, Fields, MalformedFooterError, decode, encode
from rollingfs.runtime.values import value_class

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""Size of the bytes after the footer: its length, 4 bytes little endian, and the magic."""

_SCHEMA, _NUM_ROWS, ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS = 2, 3, 4, 5, 7
COLUMNS, _TOTAL_BYTES, _GROUP_ROWS, _ROW_GROUP_OFFSET, _TOTAL_COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
META, _COLUMN_OFFSET = 3, 2
"""Fields of a column chunk: its metadata; the offset of itself."""
_PAGE_INDEXES = (4, 5, 6, 7)
"""Fields of a column chunk that name its offset index and its column index."""
_META_OFFSETS = (9, 10, 11, 14)
"""Fields of the metadata: the offsets of data page, index page, dictionary page and bloom filter."""
_PATH, _CODEC = 3, 4
"""Fields of the metadata: the names from the schema's root to the column, and the number of its compression."""
_CODECS = dict(enumerate(("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")))
ORDINAL_MAX = 32767
_REPETITION, _NAME, _CHILDREN, _FIELD_ID = 3, 4, 5, 9
"""Fields of an element of the schema that do not change how its values are written."""
_CONVERTED, _LOGICAL, _CONVERTIBLE = 6, 10, {1, 2, 3, 4, 5, 6, 10, 12, 13}
"""Fields of an element with its type, in the old and the new names; the new names that have an old name."""
_PLAIN_INTEGERS = ((I32, 17), (I32, 18))
"""Old names of what integers are without a name."""
_KEY, _VALUE = 1, 2
"""Fields of a pair of key and value."""
REQUIRED, OPTIONAL, REPEATED = range(3)
SCHEMA_KEYS = (b"ARROW:schema", b"org.apache.spark.sql.parquet.row.metadata")
"""Keys under which writers keep a schema of their own."""
_GEO = b"geo"
"""Key of a JSON document with the meaning and the bounds of geometries (GeoParquet 1.0 and 1.1)."""
_GEO_MEANING = {"encoding": None, "crs": "OGC:CRS84", "edges": "planar", "orientation": None, "epoch": None}
"""Members of a column of it, and what their absence means; an unknown reference system is a null."""
_SYSTEM = re.compile(r"\w+:\w+")
"""Authority and code of a reference system."""
_GEO_BOUNDS = re.compile(rb'("geometry_types"\s*:\s*\[)[^]]*|,\s*"bbox"\s*:\s*\[[^]]*\]|"bbox"\s*:\s*\[[^]]*\]\s*,')
"""The bounds of a column of geometries, which are optional, and what is in its list of types, which may be empty."""

FOOTERS_MAX = 4
"""Maximum number of footers that are remembered apart: an append and the next append ask for the same footer several
times."""


@value_class
class JoinedFile:
    """A whole Parquet file, and its place in the joined file."""

    footer: bytes
    shift: int
    """Offset of its first byte in the joined file."""


@value_class
class Column:
    """A column, or a field inside of a column."""

    name: str
    kind: Fields
    """Encoding of its values."""
    repetition: int
    children: tuple[Column, ...]
    unit: str | None = None
    """Unit of a duration, which is a plain number for Parquet; only Arrow's schema in the footer has it."""

    def __str__(self) -> str:
        kind = f" duration[{self.unit}]" if self.unit else ""
        return f"{self.name!r}{kind}{'' if self.is_nullable else ' NOT NULL'}"

    @property
    def is_nullable(self) -> bool:
        """Return whether it may have nulls."""
        return self.repetition != REQUIRED

    def is_like(self, other: Column) -> bool:
        """Return whether both have the same type, apart from nulls and the order of fields."""
        others = {child.name: child for child in other.children}
        return (
            (self.kind, self.unit) == (other.kind, other.unit)
            and (self.repetition == REPEATED) == (other.repetition == REPEATED)
            and len(self.children) == len(others)
            and all(child.name in others and child.is_like(others[child.name]) for child in self.children)
        )


def columns(footer: bytes) -> tuple[Column, ...]:
    """Return the columns of a file.

    Raises
    ------
    MalformedFooterError
        The bytes are not a footer.
    """
    return _columns(table_of(footer))


@lru_cache(maxsize=FOOTERS_MAX)
def table_of(footer: bytes) -> Fields:
    """Return the struct of a footer, whose numbers of rows agree; it is not to be changed.

    Raises
    ------
    MalformedFooterError
        The bytes are not a struct, or a number of rows is damaged.
    """
    table = decode(footer)
    counts = [group[_GROUP_ROWS][1] for group in table[ROW_GROUPS][1][1]]
    if min(counts, default=0) < 0 or sum(counts) != table[_NUM_ROWS][1]:
        raise MalformedFooterError("the row groups of the footer have not as many rows as the file")
    return table


def _columns(table: Fields) -> tuple[Column, ...]:
    elements: Iterator[Fields] = iter(table[_SCHEMA][1][1])
    schema = _value(table, SCHEMA_KEYS[0])
    units = iter(duration_units(schema) if schema else ())

    def take() -> Column:
        element = next(elements)
        unit = None if element.get(_CHILDREN, (I32, 0))[1] else next(units, None)
        kind = {key: element[key] for key in element.keys() - {_REPETITION, _NAME, _CHILDREN, _FIELD_ID}}
        # writers give either name, or both; plain integers need no name
        if _CONVERTED in kind and _LOGICAL in kind:
            del kind[_LOGICAL if kind[_LOGICAL][1].keys() <= _CONVERTIBLE else _CONVERTED]
        if kind.get(_CONVERTED) in _PLAIN_INTEGERS:
            del kind[_CONVERTED]
        children = tuple(take() for _ in range(element[_CHILDREN][1] if _CHILDREN in element else 0))
        return Column(element[_NAME][1].decode(), kind, element.get(_REPETITION, (I32, REQUIRED))[1], children, unit)

    return take().children


def body_size(tail: bytes, size: int) -> tuple[int, int]:
    """Return the offsets at which the footer begins and ends, from the last `TAIL_BYTES` and the size of a file.

    Raises
    ------
    MalformedFooterError
        The bytes do not end as a Parquet file does.
    """
    length = int.from_bytes(tail[:4], "little")
    if len(tail) != TAIL_BYTES or tail[4:] != MAGIC or length > size - TAIL_BYTES - len(MAGIC):
        raise MalformedFooterError("the file does not end as a Parquet file does")
    return size - TAIL_BYTES - length, size - TAIL_BYTES


def join(parts: Sequence[JoinedFile]) -> bytes:
    """Return the footer (without its length and the magic) of a file that holds all parts.

    Raises
    ------
    MalformedFooterError
        Their columns differ.
    """
    tables = [(table_of(part.footer), part.shift) for part in parts]
    first = tables[0][0]
    groups: list[Any] = []
    for table, shift in tables:
        check_fits(first, table)
        groups += [_moved(group, shift) for group in table[ROW_GROUPS][1][1]]
    for nth, group in enumerate(groups):
        if group.pop(_ORDINAL, None) and nth <= ORDINAL_MAX:
            group[_ORDINAL] = (I16, nth)
    count = sum(table[_NUM_ROWS][1] for table, _ in tables)
    whole = {**first, _NUM_ROWS: (I64, count), ROW_GROUPS: (LIST, (STRUCT, groups))}
    if len(parts) > 1 and _value(first, _GEO):
        whole[_KEY_VALUES] = (LIST, (STRUCT, [_without_bounds(pair) for pair in _pairs(first)]))
    return encode(whole)


def _without_bounds(pair: Fields) -> Fields:
    """Return a pair without bounds of geometries: rows of the other parts are outside, and readers would skip them.

    Spaces replace the bounds: Arrow's schema, a flatbuffer, has a copy of the document, whose size it names.
    """
    is_arrow = pair[_KEY][1] == SCHEMA_KEYS[0]
    if not is_arrow and pair[_KEY][1] != _GEO:
        return pair
    document = b64decode(pair[_VALUE][1]) if is_arrow else pair[_VALUE][1]
    document = _GEO_BOUNDS.sub(lambda found: (found[1] or b"").ljust(len(found[0])), document)
    return {**pair, _VALUE: (pair[_VALUE][0], b64encode(document) if is_arrow else document)}


def last_groups(footer: bytes, count: int) -> bytes:
    """Return the footer without its first row groups."""
    table = table_of(footer)
    groups = table[ROW_GROUPS][1][1][count:]
    rows = sum(group[_GROUP_ROWS][1] for group in groups)
    return encode({**table, _NUM_ROWS: (I64, rows), ROW_GROUPS: (LIST, (STRUCT, groups))})


def ended(footer: bytes) -> bytes:
    """Return a footer with its length and the magic: the end of a file."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def compressions(footer: bytes) -> dict[str, str]:
    """Return the compression of each column of the first row group, by its path.

    Arrow is not asked, because a number that it does not know, and some other damage, ends its process.

    Raises
    ------
    MalformedFooterError
        The footer has a compression that is not known.
    """
    with understood():
        groups = table_of(footer)[ROW_GROUPS][1][1]
        metas = [column[META][1] for group in groups[:1] for column in group[COLUMNS][1][1]]
        return {b".".join(meta[_PATH][1][1]).decode(): _CODECS[meta[_CODEC][1]] for meta in metas}


def check_fits(first: Fields, other: Fields) -> None:
    """Refuse columns or geometries that differ from a file's, by the structs of both footers.

    Raises
    ------
    MalformedFooterError
        They differ; the message names the first.
    """
    for old, new in zip_longest(_columns(first), _columns(other)):
        if old != new:
            raise MalformedFooterError(
                f"their columns are not those of the file: they have {new or 'none'} where the file has {old or 'none'}"
            )
    check_geometries(first, other)


def check_geometries(first: Fields, other: Fields) -> None:
    """Refuse geometries that mean something else than a file's, by the structs of both footers.

    Raises
    ------
    MalformedFooterError
        They do; the message names the first.
    """
    there, mine = _geometries(first), _geometries(other)
    for column in there.keys() & mine.keys():
        for key, meaning in there[column].items():
            if (given := mine[column].get(key, meaning)) != meaning:
                why = f"the {key} of their geometries {column!r} is {given}, but {meaning} in the file"
                raise MalformedFooterError(why)


def _geometries(table: Fields) -> dict[str, dict[str, Any]]:
    """Return what the geometries of each column of GeoParquet or GeoArrow mean; a reference system by its id."""
    document, schema = _value(table, _GEO), _value(table, SCHEMA_KEYS[0])
    found: dict[str, dict[str, Any]] = {}
    for name, pairs in column_metadata(schema).items() if schema and b"geoarrow." in b64decode(schema) else ():
        kind = pairs.get(b"ARROW:extension:name", b"").decode()
        if kind.startswith("geoarrow."):
            system = _system(json.loads(pairs.get(b"ARROW:extension:metadata") or b"{}").get("crs"))
            known = {"crs": system} if _SYSTEM.fullmatch(str(system)) else {}  # any other has several spellings
            found[name] = {"encoding": kind.removeprefix("geoarrow."), **known}
    for name, column in json.loads(document)["columns"].items() if document else ():
        meaning = {key: column.get(key, default) for key, default in _GEO_MEANING.items()}
        found[name] = {**meaning, "crs": _system(meaning["crs"]), "encoding": str(meaning["encoding"]).lower()}
    return found


def _system(crs: Any) -> Any:
    """Return a reference system as its authority and code, if it has an id."""
    key = crs.get("id") if isinstance(crs, dict) else None
    return f"{key['authority']}:{key['code']}" if key else crs


@contextmanager
def understood() -> Iterator[None]:
    """Tell whatever a footer that is not understood raises as MalformedFooterError. No I/O goes within."""
    try:
        yield
    except MalformedFooterError:
        raise
    except Exception as error:  # bytes that are damaged anywhere can fail everywhere
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise MalformedFooterError(f"its footer is damaged, or of a kind that is not known ({detail})") from error


def group_rows(footer: bytes) -> list[int]:
    """Return the number of rows of each row group that has rows."""
    return [group[_GROUP_ROWS][1] for group in groups_with_rows(table_of(footer))]


def widen(old: bytes, filler: JoinedFile, new: bytes) -> bytes:
    """Return the footer of a file that gets more columns.

    Parameters
    ----------
    old
        The footer of the file.
    filler
        A file of the added columns, with the row groups that `group_rows` of the old footer gives.
    new
        The footer of a file that has all columns.

    Raises
    ------
    MalformedFooterError
        The filler has other row groups.
    """
    table, whole = table_of(old), table_of(new)
    groups, fillers = groups_with_rows(table), groups_with_rows(table_of(filler.footer))
    if [group[_GROUP_ROWS] for group in groups] != [group[_GROUP_ROWS] for group in fillers]:
        raise MalformedFooterError("a row group of the file is too large to get another column")
    kept = [pair for pair in _pairs(table) if pair[_KEY][1] not in SCHEMA_KEYS]
    kept += [pair for pair in _pairs(whole) if pair[_KEY][1] in SCHEMA_KEYS]
    widened = {**table, _SCHEMA: whole[_SCHEMA], _KEY_VALUES: (LIST, (STRUCT, kept))}
    joined = [_joined(group, nulls, filler.shift) for group, nulls in zip(groups, fillers, strict=True)]
    widened[ROW_GROUPS] = (LIST, (STRUCT, joined))
    widened.pop(_COLUMN_ORDERS, None)
    widened |= {key: whole[key] for key in [_COLUMN_ORDERS] if key in whole}
    return encode(widened)


def groups_with_rows(table: Fields) -> list[Fields]:
    """Return the row groups of a footer's struct that have rows."""
    return [group for group in table[ROW_GROUPS][1][1] if group[_GROUP_ROWS][1]]


def _joined(group: Fields, filler: Fields, shift: int) -> Fields:
    """Return a row group with its own columns and the columns of another."""
    columns = [*group[COLUMNS][1][1], *_moved(filler, shift)[COLUMNS][1][1]]
    totals = [field for field in (_TOTAL_BYTES, _TOTAL_COMPRESSED) if field in group]
    sums = {field: (I64, group[field][1] + filler.get(field, (I64, 0))[1]) for field in totals}
    return {**group, COLUMNS: (LIST, (STRUCT, columns)), **sums}


def _pairs(table: Fields) -> list[Fields]:
    return list(table[_KEY_VALUES][1][1]) if _KEY_VALUES in table else []


def _value(table: Fields, key: bytes) -> bytes | None:
    return next((pair[_VALUE][1] for pair in _pairs(table) if pair[_KEY][1] == key), None)


def _moved(group: Fields, shift: int) -> Fields:
    columns = [_moved_column(column, shift) for column in group[COLUMNS][1][1]]
    return {**_shifted(group, shift, _ROW_GROUP_OFFSET), COLUMNS: (LIST, (STRUCT, columns))}


def _moved_column(column: Fields, shift: int) -> Fields:
    # an offset index has offsets in the file itself, and readers with a filter would read others' pages by it
    kept = {number: value for number, value in column.items() if not shift or number not in _PAGE_INDEXES}
    if META in kept:
        kept[META] = (STRUCT, _shifted(kept[META][1], shift, *_META_OFFSETS))
    return _shifted(kept, shift, _COLUMN_OFFSET)


def _shifted(fields: Fields, shift: int, *offsets: int) -> Fields:
    moved = [field for field in offsets if field in fields and fields[field][1]]  # 0 stands for none
    return {**fields, **{field: (I64, fields[field][1] + shift) for field in moved}}
