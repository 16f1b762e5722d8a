"""Views of a segment and of a stream in notebooks, as HTML. Pure: no request of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from rollingfs.errors import visible
from rollingfs.format.header import Chunk, Header
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.segment import Segment
from rollingfs.show.readable import Prices, count_text, size_text, upkeep_texts
from rollingfs.show.segment_map import INLINE, runs
from rollingfs.stream.blocks import mover_of
from rollingfs.stream.members import Listed, View
from rollingfs.stream.states import SIZES, Outlook

ROWS_MAX = 12
"""Maximum rows of a legend, and of the table of a stream's segments."""
WIDTH_PX, HEIGHT_PX = 720, 24
WIDTH_PX_MIN = 1.5
"""A part of a segment is shown at least so wide, however few its bytes are."""
GONE_COLOUR, TAIL_COLOUR, SIZE_COLOUR = "#d0d7de", "#d4a72c", "#6e7781"
CHUNK_COLOURS = ("#2da44e", "#3b6fd4")
"""Neighbouring runs of chunks in different folders have different colours."""

Stripe = tuple[str, int, int, str]
"""A part of a segment: its colour, its first offset, its end, what it is."""


def segment_html(snapshot: Segment, now_s: float, prices: Prices | None = None) -> str:
    """Return a view of a segment: facts, map, chunks, next upkeep.

    Parameters
    ----------
    now_s
        Seconds since 1970.
    prices
        Of the store, if they are known.
    """
    parts = list(_parts(snapshot))
    facts = (
        f"{snapshot.state}, version {snapshot.version}, start {snapshot.start:,}, length {snapshot.length:,}: "
        f"{size_text(snapshot.size)}"
    )
    rows = [
        f'<td style="color:{colour}">&#9632;</td><td>{start:,} to {end:,}</td><td>{escape(what)}</td>'
        for colour, start, end, what in parts
    ]
    upkeep = [] if snapshot.header is None else _upkeep(snapshot.header, now_s, prices)
    return _box(snapshot.path, facts, _bar(parts, snapshot.length), _table(_shortened(rows)), *upkeep)


def stream_html(path: str, found: Listed | None) -> str:
    """Return a view of a stream: its folder, and its segments at the last listing, or None."""
    if found is None:
        return _box(path, "a stream; its segments are not listed yet: call segments() or infos()")
    views, size = found.views, sum(view.size for view in found.views.values())
    facts = f"a stream; at the last look: {count_text(len(found.names), 'segment')}, {size_text(size)}"
    longest = max((view.length for view in views.values()), default=0)
    rows = ["<th>segment</th><th>state</th><th>start</th><th>length</th><th></th>"] if found.names else []
    return _box(path, facts, _table([*rows, *_shortened([_row(one, views.get(one), longest) for one in found.names])]))


def _upkeep(header: Header, now_s: float, prices: Prices | None) -> Iterator[str]:
    """Yield a bar for each class of sizes, and the next upkeep.

    Only the segment's own offload policy is known here.
    """
    asked = Asked.by(header.offload)
    stores = ("", *(tier.alias for tier in header.tiers))
    found = Outlook.of(header, header.entries, round(now_s * 1000), stores, None if asked is None else mover_of(asked))
    most = max(found.sizes)
    rows = [
        f"<td>{escape(label)}</td><td>{count_text(count, 'chunk')}</td>"
        f'<td style="min-width:12em"><div style="background:{SIZE_COLOUR};height:0.8em;min-width:2px;'
        f'width:{100 * count // most}%"></div></td>'
        for count, (_, label) in zip(found.sizes, SIZES, strict=True)
        if count
    ]
    cold = sum(chunk.length for chunk in header.entries if isinstance(chunk, Chunk) and chunk.tier)
    yield _table(rows)
    yield "<br/>".join(upkeep_texts(found, cold, header.rewritten, prices))


def _parts(snapshot: Segment) -> Iterator[Stripe]:
    if snapshot.start:
        yield GONE_COLOUR, 0, snapshot.start, "truncated"
    if snapshot.header is None:
        if snapshot.length:
            yield CHUNK_COLOURS[0], 0, snapshot.length, "a plain file"
        return
    for index, run in enumerate(runs(snapshot.header.entries, snapshot.start, snapshot.length)):
        colour = TAIL_COLOUR if run.where == INLINE else CHUNK_COLOURS[index % len(CHUNK_COLOURS)]
        what = f"{count_text(run.count, 'chunk')} in {visible(run.where)}" if run.count else run.where
        yield colour, run.start, run.end, what


def _bar(parts: Iterable[Stripe], length: int) -> str:
    shapes = "".join(
        f'<rect x="{start * WIDTH_PX / length:.2f}" width="{max(WIDTH_PX_MIN, (end - start) * WIDTH_PX / length):.2f}" '
        f'height="{HEIGHT_PX}" fill="{colour}"><title>{start:,} to {end:,}: {escape(what)}</title></rect>'
        for colour, start, end, what in parts
    )
    return f'<svg viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" width="100%" style="max-width:{WIDTH_PX}px">{shapes}</svg>'


def _row(name: str, view: View | None, longest: int) -> str:
    start, length = (0, 0) if view is None else (view.start, view.length)
    cells = f"<td>{escape(visible(name))}</td><td>{'unreadable' if view is None else view.state}</td>"
    if length == 0:
        return cells + f"<td>{start:,}</td><td>{length:,}</td><td></td>"
    parts = [(GONE_COLOUR, 0, start, "truncated")] if start else []
    parts.append((CHUNK_COLOURS[0], start, length, "retained"))
    bar = f'<div style="width:{max(1, 100 * length // longest)}%;min-width:2px">{_bar(parts, length)}</div>'
    return cells + f'<td>{start:,}</td><td>{length:,}</td><td style="min-width:12em">{bar}</td>'


def _shortened(rows: list[str]) -> list[str]:
    left_out = len(rows) - ROWS_MAX
    if left_out <= 0:
        return rows
    first = ROWS_MAX // 2
    return [*rows[:first], f'<td></td><td colspan="4">… {left_out:,} more …</td>', *rows[first + left_out :]]


def _table(rows: Iterable[str]) -> str:
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _box(path: str, facts: str, *rest: str) -> str:
    """Return the path as a title, then the facts, the bar and the table."""
    return f"<div><b>{escape(visible(path))}</b><br/>{facts}{''.join(rest)}</div>"
