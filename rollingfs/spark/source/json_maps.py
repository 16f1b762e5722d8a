"""Maps for Arrow's JSON reader, which has none: objects are rewritten as lists of their keys and values. Pure.

It is done with the text, by steps that each pass over a whole block, because steps for each map are slow. The lines
must be those that `json_sieve` knows to be sound: their maps have scalars only, and texts without escapes and braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pt

KEY, VALUE = "_map_key", "_map_value"
"""The fields of the objects in a list that stands for a map."""
_KEY, _VALUE = f'{{"{KEY}":'.encode(), f',"{VALUE}":'.encode()
_TEXT = b"\0"
"""It stands for the texts while the letters between them are changed."""


def map_names(schema: pa.Schema) -> Sequence[str] | None:
    """The names of the fields that are maps; None if one of them cannot be rewritten."""
    fields = list(_fields(schema))
    names = [name for name, _ in fields]
    maps = [name for name, kind in fields if pt.is_map(kind)]
    if not all(_is_possible(kind) for _, kind in fields):
        return None
    # a name with an escape would not be found, and one that is there twice may be no map elsewhere
    is_plain = all(json.dumps(name, ensure_ascii=False) == f'"{name}"' and names.count(name) == 1 for name in maps)
    return maps if not maps or (is_plain and not {KEY, VALUE} & set(names)) else None


def rewritten(data: bytes, names: Sequence[str]) -> bytes:
    """Lines with lists of keys and values in the place of the maps of some names."""
    for name in names:
        # in a text there is no such thing: its quotes have escapes, and a name with an escape is not sound
        parts = re.split(b"(" + re.escape(f'"{name}"'.encode()) + rb"[ \t]*:[ \t]*)(\{[^{}]*\})", data)
        if len(parts) > 1:
            parts[2::3] = _lists(b"\n".join(parts[2::3])).split(b"\n")
            data = b"".join(parts)
    return data


def _lists(maps: bytes) -> bytes:
    """Maps, each in a line, as lists of keys and values."""
    pieces = maps.split(b'"')
    # every second piece is a text, because there are no escapes
    bare = _TEXT.join(pieces[::2]).replace(b" ", b"").replace(b"\t", b"")
    bare = bare.replace(b":", _VALUE).replace(b"}", b"}]").replace(b"{}]", b"[]")
    bare = bare.replace(b"{" + _TEXT, b"[" + _KEY + _TEXT).replace(b"," + _TEXT, b"}," + _KEY + _TEXT)
    pieces[::2] = bare.split(_TEXT)
    return b'"'.join(pieces)


def _fields(kind: pa.Schema | pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The names and types of all fields, however deep."""
    for field in kind:
        yield field.name, field.type
        inner = field.type
        while pt.is_list(inner):
            inner = inner.value_type
        if pt.is_struct(inner):
            yield from _fields(inner)


def _is_possible(kind: pa.DataType) -> bool:
    """Whether a field of a type has no maps, or is one that can be rewritten: not in a list, and of scalars."""
    if pt.is_map(kind):
        return bool(pt.is_string(kind.key_type) and not pt.is_nested(kind.item_type))
    while pt.is_list(kind):
        kind = kind.value_type
    return not pt.is_map(kind)
