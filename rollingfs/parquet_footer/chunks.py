"""Column chunks of a Parquet file, by its footer: their bytes, and bytes of no chunk. Pure."""

from __future__ import annotations

from rollingfs.parquet_footer.footer import (
    COLUMNS,
    MAGIC,
    META,
    ROW_GROUPS,
    ended,
    groups_with_rows,
    table_of,
    understood,
)
from rollingfs.parquet_footer.thrift import I32, Fields, MalformedFooterError

_PAGE_OFFSETS = (9, 11)
"""Fields of the metadata: the offsets of the first data page and of the dictionary page."""
_OFFSET_INDEX, _OFFSET_INDEX_BYTES, _INDEX, _INDEX_BYTES = 4, 5, 6, 7
"""Fields of a column chunk: the offsets and sizes of its offset index and of its column index."""
_CHUNK_BYTES, _BLOOM, _BLOOM_BYTES = 7, 14, 15
"""Fields of the metadata: the compressed size of the chunk, and the offset and the size of its bloom filter."""
_ENCRYPTION = frozenset({8, 9})
"""Fields of a footer for encryption: the algorithm and the key; of a column chunk, its key and metadata."""


def live_bytes(footer: bytes) -> int:
    """Return the number of used bytes of a file.

    They are row groups with their indexes, the footer, and both magics.
    """
    used = len(ended(footer)) + len(MAGIC)
    for column in _chunks(table_of(footer)):
        meta = column[META][1] if META in column else {}
        used += sum(
            fields[size][1]
            for fields, size in (
                (column, _OFFSET_INDEX_BYTES),
                (column, _INDEX_BYTES),
                (meta, _CHUNK_BYTES),
                (meta, _BLOOM_BYTES),
            )
            if size in fields
        )
    return used


def gaps(footer: bytes, body: int) -> tuple[int, int]:
    """Return the number of bytes of a body that its footer does not name.

    Parameters
    ----------
    body
        The number of bytes before the footer.
    """
    end = len(MAGIC)
    for column in _chunks(table_of(footer)):
        meta = column[META][1] if META in column else {}
        indexes = ((column, _OFFSET_INDEX), (column, _INDEX), (meta, _BLOOM))
        ends = [fields[at][1] + fields.get(at + 1, (I32, 0))[1] for fields, at in indexes if at in fields]
        end = max(end, _span(meta)[1], *ends)
    return end - (live_bytes(footer) - len(ended(footer))), body - end


def check_within(footer: bytes, body: int) -> None:
    """Refuse a footer that names bytes which its file does not have: the head was truncated, or the footer is damaged.

    Parameters
    ----------
    body
        The number of bytes before the footer.

    Raises
    ------
    MalformedFooterError
        It does, or columns are encrypted: they can be read only at their own place in their own file.
    """
    with understood():
        table = table_of(footer)
        chunks = _chunks(table)
        is_encrypted = any(not _ENCRYPTION.isdisjoint(fields) for fields in (table, *chunks))
        spans = [] if is_encrypted else [_span(chunk[META][1]) for chunk in chunks]
    if is_encrypted:
        raise MalformedFooterError("the file is encrypted")
    if any(not len(MAGIC) <= start <= end <= body for start, end in spans):
        raise MalformedFooterError("its footer names bytes that the file does not have: its head was truncated")


def groups_before(footer: bytes, offset: int) -> tuple[int, int | None]:
    """Return the number of row groups before an offset, and the begin of the rest.

    Columns of nulls that a row group got after the next row group do not count.

    Returns
    -------
    int, int or None
        None if no row group stays.
    """
    spans = [sorted(map(_extent, group[COLUMNS][1][1])) for group in table_of(footer)[ROW_GROUPS][1][1]]
    begins = [group[0][0] for group in spans if group]
    count = 0
    for nth, group in enumerate(spans):
        until = min(begins[nth + 1 :], default=offset)
        if max((end for start, end in group if start < until or start == group[0][0]), default=0) > offset:
            break
        count += 1
    return count, min(begins[count:], default=None)


def _extent(column: Fields) -> tuple[int, int]:
    """Return the extent of a column chunk, with a bloom filter in front."""
    meta = column[META][1]
    start, end = _span(meta)
    return (min(start, meta[_BLOOM][1]), end) if _BLOOM in meta else (start, end)


def chunk_spans(footer: bytes, body: int) -> tuple[list[tuple[int, int]], int]:
    """Return the extent of each column chunk in order, and the chunks of a row group.

    No chunks are given unless they follow each other and each has bytes.

    Parameters
    ----------
    body
        The number of bytes before the footer.

    Raises
    ------
    MalformedFooterError
        The footer is damaged.
    """
    with understood():
        groups = [group[COLUMNS][1][1] for group in groups_with_rows(table_of(footer))]
        spans = [_span(column[META][1]) for group in groups for column in group]
        edges = [edge for span in spans for edge in span]
        is_regular = len({len(group) for group in groups}) == 1 and all(start < end for start, end in spans)
        if not is_regular or edges != sorted(edges) or edges[0] < len(MAGIC) or edges[-1] > body:
            return [], 1
        return spans, len(groups[0])


def _chunks(table: Fields) -> list[Fields]:
    """Return the column chunks of all row groups."""
    return [column for group in table[ROW_GROUPS][1][1] for column in group[COLUMNS][1][1]]


def _span(meta: Fields) -> tuple[int, int]:
    """Return the extent of a column chunk; after the magic, if it has no place."""
    starts = [meta[field][1] for field in _PAGE_OFFSETS if field in meta and meta[field][1]]
    return (min(starts), min(starts) + meta[_CHUNK_BYTES][1]) if starts else (len(MAGIC), len(MAGIC))
