"""Numbers, prices, and what upkeep does next, as people read them; values as JSON. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from rollingfs.runtime.values import value_class
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.states import SIZES, Outlook

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: float) -> str:
    """Return a number of bytes as people read it."""
    if size < 1024:
        return f"{size:.0f} B"
    power = 1
    while size >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


GAP_COLUMNS = 2


def in_columns(
    rows: Sequence[Sequence[str]], right: Container[int] = (), size: Callable[[str], int] = len
) -> list[str]:
    """Return rows as lines, with their cells in columns of equal width.

    Tables of rich measure, fold and pad each cell again, which takes 0.5 ms a row.

    Parameters
    ----------
    right
        The columns, by number, that align right.
    size
        Returns the width of a text.
    """
    widths = [max(map(size, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [" " * (width - size(cell)) for cell, width in zip(row, widths, strict=True)]
        pairs = enumerate(zip(row, gaps, strict=True))
        cells = [gap + cell if nth in right else cell + gap for nth, (cell, gap) in pairs]
        lines.append((" " * GAP_COLUMNS).join(cells).rstrip())
    return lines


def plain(value: Any, shown: Callable[[str], str] = str) -> Any:
    """Return a value for JSON, with its texts as `shown` makes them; fields that a repr leaves out are left out."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, StreamCut):
        value = json.loads(str(value))
    elif dataclasses.is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.repr}
    if isinstance(value, Mapping):
        return {plain(key, shown): plain(one, shown) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one, shown) for one in value]
    return value if isinstance(value, int | float | None) else str(value)


GB = 2**30
"""Bytes of a GB on a bill of AWS."""
EXPRESS_SUFFIX = "--x-s3"
"""The end of the name of each bucket of S3 Express One Zone."""


@value_class
class Prices:
    """List prices of a store, in US dollars."""

    name: str
    storage_gb_month: float
    write_1000: float
    """1,000 PUT, COPY, POST or LIST requests."""
    read_1000: float
    """1,000 GET and other requests."""
    upload_gb: float = 0.0
    """Each GB that is sent."""


PRICES_AT = "2026-11"
"""When the prices were looked up; all for us-east-1."""
S3_STANDARD = Prices("S3 Standard", 0.023, 0.005, 0.0004)
"""https://aws.amazon.com/s3/pricing/, the first 50 TB."""
S3_EXPRESS = Prices("S3 Express One Zone", 0.11, 0.00113, 0.00003, 0.0032)
"""The example in https://aws.amazon.com/s3/faqs/."""


def prices_of(protocol: str, path: str) -> Prices | None:
    """Return the prices of the store of a path; None if its requests are free, or the prices are unknown."""
    if protocol not in ("s3", "s3a"):
        return None
    return S3_EXPRESS if path.lstrip("/").partition("/")[0].endswith(EXPRESS_SUFFIX) else S3_STANDARD


def dollars(amount: float) -> str:
    """Return an amount as people read it: small amounts with three digits."""
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:.2f}" if amount >= 1 else f"${amount:.3g}"


STEPS = "▁▂▃▄▅▆▇█"
"""Marks of heights, the lowest first."""


def sizes_mark(found: Outlook) -> str:
    """Return the histogram for a column, a character a class; "·" is an empty class."""
    most = max(found.sizes)
    return "".join(STEPS[(len(STEPS) - 1) * one // most] if one else "·" for one in found.sizes) if most else ""


def joins_mark(found: Outlook) -> str:
    """Return the next consolidation, for a column."""
    return f"{found.joins:,} → {found.joins_to:,}" if found.joins else ""


def moves_mark(found: Outlook) -> str:
    """Return the next offload by policy, for a column."""
    return f"{found.moves:,} → {found.moves_to:,}" if found.moves else ""


def sizes_text(found: Outlook) -> str:
    """Return the histogram in words."""
    classes = [f"{count:,} {label}" for count, (_, label) in zip(found.sizes, SIZES, strict=True) if count]
    return f"{count_text(sum(found.sizes), 'chunk')}: {', '.join(classes)}" if classes else "no chunks"


def next_text(found: Outlook, prices: Prices | None) -> str:
    """Return the work and the savings of the next round of upkeep."""
    joined = f"join {found.joins:,} chunks of {size_text(found.join_bytes)} to {found.joins_to:,}"
    moved = f"move {found.moves:,} chunks of {size_text(found.move_bytes)} to a tier as {found.moves_to:,}"
    parts = [text for text, count in ((moved, found.moves), (joined, found.joins)) if count]
    if not parts:
        return "upkeep has nothing to join or to move"
    saved = found.saved_objects
    fewer = f"{count_text(saved, 'object')} fewer, and as many requests fewer for each read of everything"
    price = "" if prices is None else f" ({dollars(saved * prices.read_1000)} for 1,000 such reads on {prices.name})"
    return f"upkeep will {' and '.join(parts)}: {fewer}{price}"


def upkeep_texts(found: Outlook, cold_bytes: int, rewritten: int, prices: Prices | None) -> list[str]:
    """Return the work of the next round of upkeep, and of earlier rounds."""
    saved = saved_text(cold_bytes, rewritten, prices)
    return [f"next: {next_text(found, prices)}", *([f"so far: {saved}"] if saved else [])]


def saved_text(cold_bytes: int, rewritten: int, prices: Prices | None) -> str:
    """Return the work of earlier rounds, by the headers only; or ""."""
    cold = f"{size_text(cold_bytes)} moved to tiers"
    if prices is not None and prices.storage_gb_month > S3_STANDARD.storage_gb_month:  # only then a tier is cheaper
        saved = cold_bytes / GB * (prices.storage_gb_month - S3_STANDARD.storage_gb_month)
        cold += f" ({dollars(saved)} a month, if the tier is {S3_STANDARD.name})"
    anew = f"{size_text(rewritten)} written anew by joins"
    return ", ".join(text for text, count in ((cold, cold_bytes), (anew, rewritten)) if count)
