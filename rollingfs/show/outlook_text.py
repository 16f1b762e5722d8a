"""The sizes of chunks, and what upkeep does next and has saved, in words. Pure."""

from __future__ import annotations

from rollingfs.segment.files.outlook import SIZES, Outlook
from rollingfs.show.prices import Prices, reads_text, storage_text
from rollingfs.show.readable import count_text, size_text

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
    return f"upkeep will {' and '.join(parts)}: {fewer}{reads_text(saved, prices)}"


def upkeep_texts(found: Outlook, cold_bytes: int, rewritten: int, prices: Prices | None) -> list[str]:
    """Return the work of the next round of upkeep, and of earlier rounds."""
    saved = saved_text(cold_bytes, rewritten, prices)
    return [f"next: {next_text(found, prices)}", *([f"so far: {saved}"] if saved else [])]


def saved_text(cold_bytes: int, rewritten: int, prices: Prices | None) -> str:
    """Return the work of earlier rounds, by the headers only; or ""."""
    cold = f"{size_text(cold_bytes)} moved to tiers{storage_text(cold_bytes, prices)}"
    anew = f"{size_text(rewritten)} written anew by joins"
    return ", ".join(text for text, count in ((cold, cold_bytes), (anew, rewritten)) if count)
