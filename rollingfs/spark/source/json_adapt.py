"""How Arrow's JSON reader is asked for the columns, and what changes when the data is other than its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from rollingfs.spark.source import json_maps
from rollingfs.spark.source.decimal_columns import raw_types
from rollingfs.spark.source.json_keys import MapKeys
from rollingfs.spark.source.numbered_lines import NumberedLines
from rollingfs.spark.source.odd_lines import as_one, has
from rollingfs.spark.source.text_columns import RawForm, raw_type

_BARE = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false"
_CHANGED = re.compile(r"Column\(/(.*)\) changed from string to (number|boolean)")


class Adaptation:
    """What the first lines that Arrow refused have taught, so that it reads the next ones.

    - A column of strings that also has numbers: they are put into quotes first, which leaves their letters as they are.
    - A column of timestamps that has numbers: it is read as seconds.
    - A decimal with more digits than its column: more digits are kept, and rounded later; at last all.

    Each is tried once. Lines that Arrow refuses afterwards are read one by one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._seconds: set[str] = set()
        self._quoted: set[str] = set()
        self._decimals = 0
        maps = json_maps.map_names(schema)
        unread = [field.name for field in schema if raw_type(field.type, RawForm()) is None]
        self.is_possible = len(schema) > 0 and not unread and maps is not None
        """Whether Arrow's reader can read all columns."""
        self.reason = "" if self.is_possible else "a map of nested values, in a list, or with an ambiguous name"
        """Why it cannot."""
        self.maps = maps or ()
        """The names of the fields that are maps."""
        self._map_keys = MapKeys(self.maps)
        self.has_lists = bool(self.maps)
        """Maps are rewritten as lists. Of their lines, Arrow must read only those that are surely sound."""
        if self.is_possible:
            self.options = self._options()

    @property
    def full_maps(self) -> Collection[str]:
        """The names of the maps that Arrow reads as objects, and whose fields are there although they are null."""
        return () if self.has_lists else self._map_keys.full

    def settle_maps(self, block: NumberedLines) -> set[int]:
        """Choose how the maps of a block are read; the numbers of the lines that must then be read one by one."""
        found = self._map_keys.unfit(block) if self._map_keys.is_possible else None
        if any(map(self._is_key, self._quoted)):  # its values in the maps would get quotes too
            found = None
        self.has_lists = bool(self.maps) and found is None
        if self.maps:
            self.options = self._options()
        return found or set()

    def adapted(self, data: bytes) -> bytes:
        """The data with lists in the place of maps, and bare values in quotes where a column is known to need them."""
        if self.has_lists:
            data = json_maps.rewritten(data, self.maps)
        for name in sorted(self._quoted):
            data = _quoted(data, name)
        return data

    def adapts(self, reason: str) -> bool:
        """Whether a refusal taught something new, so that another try may succeed."""
        changed = _CHANGED.search(reason)
        if changed:
            path, kind = changed.groups()
            if path in self._schema.names and _is_instant(self._schema.field(path).type):
                return kind == "number" and self._learn(self._seconds, path)
            name = path.rpartition("/")[2]
            # a value of this name in quotes must mean the same in all columns
            kinds = [one.type for one in _fields(self._schema) if one.name == name]
            is_text = bool(kinds) and all(map(pt.is_string, kinds))
            return is_text and not self._is_key(name) and self._learn(self._quoted, name)
        kinds = [one.type for one in _fields(self._schema) if pt.is_decimal(one.type)]
        if "ecimal" not in reason or self._decimals + 1 >= max((len(raw_types(kind)) for kind in kinds), default=0):
            return False
        self._decimals += 1
        self.options = self._options()
        return True

    def _is_key(self, name: str) -> bool:
        return any(name in keys for keys in self._map_keys.keys.values())

    def _learn(self, known: set[str], name: str) -> bool:
        if name in known:
            return False
        known.add(name)
        self.options = self._options()
        return True

    def _options(self) -> pj.ParseOptions:
        form = RawForm(self._decimals, {} if self.has_lists else self._map_keys.keys)
        fields = [
            (one.name, pa.int64() if one.name in self._seconds else raw_type(one.type, form, one.name))
            for one in self._schema
        ]
        return pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")


def _quoted(data: bytes, name: str) -> bytes:
    """The data with quotes around the numbers and truths of a name."""
    known = "".join(f"\\x{{{one:02x}}}" for one in json.dumps(name).encode())
    # the end of another name may look like this one, behind an escape; else RE2 is faster without what stands before
    before = r"[{,][ \t]*" if has(data, r"\\" + known) else ""
    pattern = rf"({before}{known}[ \t]*:[ \t]*)({_BARE})([ \t]*[,}}])"
    found = pc.replace_substring_regex(as_one(data), pattern, r'\1"\2"\3')
    quoted: bytes = found[0].as_buffer().to_pybytes()
    return quoted


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.tz is not None)


def _fields(kind: pa.Schema | pa.DataType) -> Iterator[pa.Field]:
    """All fields, however deep."""
    for field in kind:
        yield field
        inner = field.type
        while pt.is_list(inner):
            inner = inner.value_type
        if pt.is_map(inner):
            yield pa.field(json_maps.VALUE, inner.item_type)
        if pt.is_struct(inner):
            yield from _fields(inner)
