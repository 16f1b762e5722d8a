"""The lines of a header that have structure: chunk, page, drop, state, policy. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rollingfs.format import tokens
from rollingfs.format.header import Chunk, Drop, Edges, Header, Merge, Page, Phase, Tier
from rollingfs.policy import ROLLING_FIELDS, OffloadPolicy, RollingPolicy


@lru_cache(maxsize=4096)  # every commit writes the same lines again
def format_chunk(chunk: Chunk) -> str:
    parts = [f"Chunk {chunk.start} {chunk.length} {tokens.quote_reference(chunk.file)}"]
    if chunk.crc32c is not None:
        parts.append(f"crc32c={chunk.crc32c:08x}")
    parts.append(f"at={tokens.format_time(chunk.at_ms)}")
    if chunk.offset or chunk.size != chunk.length:
        parts.append(f"from={chunk.offset} size={chunk.size}")
    if chunk.tier:
        parts.append(f"tier={chunk.tier}")
    if chunk.moved_ms:
        parts.append(f"moved={tokens.format_time(chunk.moved_ms)}")
    if chunk.pieces:
        parts.append("pieces=" + ",".join(f"{length}:{crc:08x}" for length, crc in chunk.pieces))
    return " ".join(parts)


_N, _CRC = "(0|[1-9][0-9]{0,17})", "([0-9a-f]{8})"
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)"
TIER_FIELD = " tier="
"""In the text of entries, what stands before the alias of a tier."""
_OWN_CHUNK = re.compile(rf"Chunk {_N} {_N} ((?:[0-9]{{20}}-|stage-)[0-9a-f]+) crc32c={_CRC} at={_TIME}", re.ASCII)
# `re` compiles these two at their first use: most headers have neither
_TIER_CHUNK = (
    rf"Chunk {_N} {_N} (tier-[0-9a-f]{{12}}-(?:[0-9]{{20}}|shared)-[0-9a-f]+) crc32c={_CRC} at={_TIME}"
    rf"{TIER_FIELD}([a-z0-9][a-z0-9_-]{{0,31}}) moved={_TIME}(?: pieces=([0-9a-f:,]+))?"
)
_OWN_PAGE = rf"Page {_N} {_N} (index-[0-9a-f-]+) crc32c={_CRC} count={_N} size={_N}(?: from={_N})?(?: foreign={_N})?"


ENTRY_KINDS = ("Chunk ", "Page ")


@lru_cache(maxsize=1024)  # a header that is read again has nearly the same lines
def parse_entry_line(line: str) -> Chunk | Page | None:
    """Return an entry in the form that nearly all entries have, several times as fast; None for any other line."""
    if line.startswith("Page ") and (found := re.fullmatch(_OWN_PAGE, line)):
        start, length, file, crc, count, size, offset, foreign = found.groups("0")
        return Page(int(start), int(length), file, int(count), int(crc, 16), int(size), int(offset), int(foreign))
    if found := _OWN_CHUNK.fullmatch(line):
        start, length, file, crc, at = found.groups()
        return Chunk(int(start), int(length), file, int(crc, 16), tokens.parse_shaped_time(at))
    if TIER_FIELD in line and (found := re.fullmatch(_TIER_CHUNK, line)):
        start, length, file, crc, at, tier, moved, pieces = found.groups()
        times = tokens.parse_shaped_time(at), tokens.parse_shaped_time(moved)
        parts = _pieces(pieces) if pieces else ()
        return Chunk(int(start), int(length), file, int(crc, 16), times[0], 0, -1, tier, times[1], parts)
    return None


def parse_chunk_line(line: str) -> Chunk:
    """Return the inverse of `format_chunk`."""
    found = parse_entry_line(line)
    if isinstance(found, Chunk):
        return found
    kind, *parts = line.split(" ")
    if kind != "Chunk":
        raise tokens.Malformed(f"line kind {kind!r} is too new for this release: upgrade rollingfs to read it")
    return parse_chunk(parts)


def _pieces(word: str) -> tuple[tuple[int, int], ...]:
    pairs = [piece.partition(":") for piece in word.split(",")]
    return tuple((tokens.number(length), tokens.crc(crc)) for length, _, crc in pairs)


_CHUNK_FIELDS: dict[str, Callable[[str], Any]] = {
    "crc32c": tokens.crc,
    "at": tokens.parse_time,
    "from": tokens.number,
    "size": tokens.number,
    "tier": tokens.alias,
    "moved": tokens.parse_time,
    "pieces": _pieces,
}
_PAGE_FIELDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("count", "size", "from", "foreign"), tokens.number),
    "crc32c": tokens.crc,
}
_DROP_FIELDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("from", "to", "bytes"), tokens.number),
    "whole": lambda word: bool(tokens.number(word)),
    **dict.fromkeys(("at", "after"), tokens.parse_time),
    "tier": tokens.alias,
}
_ENTRY_NAMES = {"at": "at_ms", "from": "offset", "moved": "moved_ms"}
_DROP_NAMES = {"at": "at_ms", "from": "start", "to": "end", "bytes": "size", "after": "after_ms"}
"""The fields of values whose words have other names."""


def _named(found: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in found.items()}


def parse_chunk(parts: Sequence[str]) -> Chunk:
    fields = tokens.fields(parts[3:], _CHUNK_FIELDS)
    tokens.need(fields, "at")
    if ("from" in fields) != ("size" in fields):
        raise tokens.Malformed("has only one of from= and size=")
    if "tier" not in fields and ("moved" in fields or "pieces" in fields):
        raise tokens.Malformed("has moved= or pieces= without tier=")
    start, length, file = tokens.number(parts[0]), tokens.number(parts[1]), tokens.reference(parts[2])
    return Chunk(start, length, file, **{"crc32c": None, **_named(fields, _ENTRY_NAMES)})


@lru_cache(maxsize=4096)
def format_page(page: Page) -> str:
    line = (
        f"Page {page.start} {page.length} {tokens.quote_reference(page.file)} crc32c={page.crc32c:08x} "
        f"count={page.count} size={page.size}"
    )
    return line + (f" from={page.offset}" if page.offset else "") + (f" foreign={page.foreign}" if page.foreign else "")


def parse_page(parts: Sequence[str]) -> Page:
    fields = tokens.fields(parts[3:], _PAGE_FIELDS)
    tokens.need(fields, "crc32c", "count", "size")
    start, length, file = tokens.number(parts[0]), tokens.number(parts[1]), tokens.reference(parts[2])
    return Page(start, length, file, **_named(fields, _ENTRY_NAMES))


def format_drop(drop: Drop) -> str:
    target = drop.file if drop.file == "./" else tokens.quote_reference(drop.file)
    line = f"Drop {target} at={tokens.format_time(drop.at_ms)}"
    if drop.is_page:
        line += f" from={drop.start} to={drop.end}" + (" whole=1" if drop.whole else "")
    if drop.is_hint:
        line += f" bytes={drop.size}"
    if drop.after_ms:
        line += f" after={tokens.format_time(drop.after_ms)}"
    return line + (f" tier={drop.tier}" if drop.tier else "")


def parse_drop(parts: Sequence[str]) -> Drop:
    fields = tokens.fields(parts[1:], _DROP_FIELDS)
    tokens.need(fields, "at")
    drop = Drop(tokens.drop_target(parts[0]), **_named(fields, _DROP_NAMES))
    is_mixed = (drop.is_hint and drop.is_page) or (drop.whole and not drop.is_page) or (drop.size and not drop.is_hint)
    is_mixed = is_mixed or bool(drop.tier and (drop.is_hint or drop.is_page))
    if (drop.start >= 0) != (drop.end >= 0) or is_mixed or drop.end < drop.start:
        raise tokens.Malformed("is neither a file, nor part of a page, nor a folder")
    return drop


def format_tier(tier: Tier) -> str:
    more = f" id={tier.id}" if tier.id else ""
    more += f" path={tokens.quote(tier.path)}" if tier.path else ""
    return f"Tier {tier.alias} {tier.key} {tokens.format_time(tier.at_ms)}{more}"


def parse_tier(parts: Sequence[str]) -> Tier:
    alias, key, at = tokens.exactly(parts[:3], 3)
    more = tokens.fields(parts[3:], {"id": tokens.uuid, "path": tokens.tier_path})
    return Tier(tokens.alias(alias), tokens.key(key), tokens.parse_time(at), **more)


def format_state(header: Header) -> str:
    merge = header.merge
    if merge is not None:
        return (
            f"state merging {merge.txn} {tokens.quote_path(merge.target)} {merge.target_segment} {merge.prior} "
            f"{tokens.format_time(merge.at_ms)}"
        )
    return f"state {header.phase}" + (f" merged {header.merged}" if header.merged else "")


def parse_state(parts: Sequence[str]) -> dict[str, Any]:
    phase = tokens.phase(parts[0])
    if phase is Phase.MERGING:
        _, txn, target, target_segment, prior, at = tokens.exactly(parts, 6)
        merge = Merge(
            tokens.uuid(txn),
            tokens.segment_path(target),
            tokens.uuid(target_segment),
            tokens.phase(prior),
            tokens.parse_time(at),
        )
        return {"phase": phase, "merge": merge}
    if phase is Phase.DELETED and len(parts) > 1:
        tokens.exactly(parts, 3)
        if parts[1] != "merged":
            raise tokens.Malformed(f"{parts[1]!r} is not 'merged'")
        return {"phase": phase, "merged": tokens.uuid(parts[2])}
    tokens.exactly(parts, 1)
    return {"phase": phase}


def format_policy(policy: RollingPolicy) -> str:
    line = f"policy max_bytes={policy.max_bytes} inline_bytes={policy.inline_bytes}"
    age = f" max_age_ms={round(policy.max_age * 1000)}" if policy.max_age is not None else ""
    own = f" own={','.join(sorted(policy.own))}" if policy.own else ""
    return line + age + ("" if policy.consolidate else " consolidate=0") + own


@lru_cache(maxsize=64)  # the segments of a folder mostly have the same one
def parse_policy(*parts: str) -> RollingPolicy:
    parsers = dict.fromkeys(("max_bytes", "inline_bytes", "max_age_ms", "consolidate"), tokens.number)
    fields = tokens.fields(parts, {**parsers, "own": lambda word: word.split(",")}, strict=False)
    tokens.need(fields, "max_bytes", "inline_bytes")
    age = fields["max_age_ms"] / 1000 if "max_age_ms" in fields else None
    own = [name for name in fields.get("own", ()) if name in ROLLING_FIELDS]
    return RollingPolicy(fields["max_bytes"], age, fields["inline_bytes"], fields.get("consolidate", 1) != 0, own)


def format_offload(policy: OffloadPolicy) -> str:
    fields: dict[str, str | int | None] = {
        "tier": policy.tier,
        "after_bytes": policy.after_bytes,
        "after_age_ms": _milliseconds(policy.after_age),
        "deletion_lag_ms": _milliseconds(policy.deletion_lag),
        "block_bytes": policy.block_bytes,
        "max_delay_ms": _milliseconds(policy.max_delay),
    }
    return " ".join(["offload", *(f"{name}={value}" for name, value in fields.items() if value is not None)])


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def parse_offload(parts: Sequence[str]) -> OffloadPolicy:
    if not parts:
        raise tokens.Malformed("has no field")
    sizes, ages = ("after_bytes", "block_bytes"), ("after_age", "deletion_lag", "max_delay")
    numbers = dict.fromkeys((*sizes, *(f"{name}_ms" for name in ages)), tokens.number)
    found = tokens.fields(parts, {**numbers, "tier": lambda word: tokens.alias(word) if word else word})
    seconds = {name: found.pop(f"{name}_ms") / 1000 for name in ages if f"{name}_ms" in found}
    return OffloadPolicy(**found, **seconds)


def format_edges(edges: Edges) -> str:
    return f"ends {edges.start} {edges.head or '-'} {edges.end} {edges.tail or '-'}"
