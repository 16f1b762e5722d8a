"""Draws the pictures of `docs/concepts.md`: `python docs/pictures/draw.py`. A test compares them with the files.

Each picture has a paper of its own, light or dark as the reader's system prefers, so its ink is readable on any page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

WIDTH = 760
MARGIN = 24
TEXT_PX, SMALL_PX = 15, 13
CHAR_SHARE = 0.56
"""The width of a character of a usual sans-serif font, as a share of the font's size: an upper mean."""
CODE_SHARE = 0.61
DAY_S = 86_400.0

STYLE = """
.paper { fill: #ffffff; stroke: #d0d7de }
.ink { fill: #1f2328 }
.muted { fill: #59636e }
.line { stroke: #59636e; stroke-width: 1.5; fill: none }
.strong { stroke: #cf222e; stroke-width: 2; fill: none; stroke-dasharray: 5 4 }
.head { fill: #59636e }
.chunk { fill: #b6d7ff; stroke: #0969da }
.other { fill: #d8c7fa; stroke: #8250df }
.tail { fill: #ffe08a; stroke: #9a6700 }
.new { fill: #ace7b8; stroke: #1a7f37 }
.gone { fill: #eaeef2; stroke: #8c959f; stroke-dasharray: 4 3 }
.header { fill: #f6f8fa; stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #161b22; stroke: #3d444d }
  .ink { fill: #f0f6fc }
  .muted { fill: #9ea7b3 }
  .line { stroke: #9ea7b3 }
  .strong { stroke: #ff7b72 }
  .head { fill: #9ea7b3 }
  .chunk { fill: #0d419d; stroke: #79c0ff }
  .other { fill: #4c2889; stroke: #d2a8ff }
  .tail { fill: #6e4c02; stroke: #e3b341 }
  .new { fill: #0f5323; stroke: #56d364 }
  .gone { fill: #21262d; stroke: #6e7681 }
  .header { fill: #21262d; stroke: #f0f6fc }
}
text { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 15px }
.small { font-size: 13px }
.code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px }
.bold { font-weight: 600 }
"""


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    """A line of text. It must not leave the paper: nobody else looks."""
    px = SMALL_PX if "small" in kind or "code" in kind else TEXT_PX
    width = len(words) * px * (CODE_SHARE if "code" in kind else CHAR_SHARE)
    left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
    assert 0 <= left <= WIDTH - width, f"{words!r} leaves the paper"
    kind = kind if "muted" in kind else f"ink {kind}"
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, words: str = "") -> str:
    """A rectangle, with words in its middle."""
    shape = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>'
    return shape + (text(x + width / 2, y + height / 2 + 5, words, "small", "middle") if words else "")


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line with a head at its end."""
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" class="line" marker-end="url(#head)"/>'


def rule(x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> str:
    """A line."""
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" class="{kind}"/>'


def foot(y: float, words: str) -> str:
    """A sentence below a picture."""
    return text(MARGIN, y, words, "small muted")


def lines(x: float, y: float, *words: str) -> Iterator[str]:
    """Lines of code, one below the other."""
    for number, line in enumerate(words):
        yield text(x, y + 20 * number, line, "code")


# -- pictures ------------------------------------------------------------------------------------------------


def segment() -> Iterator[str]:
    """A segment is a header that maps offsets to chunk files."""
    yield text(MARGIN, 38, "What a reader sees: one file", "bold")
    for x, width, kind, words in (
        (24, 108, "gone", "truncated"),
        (132, 170, "chunk", "64 MiB"),
        (302, 170, "chunk", "64 MiB"),
        (472, 170, "chunk", "64 MiB"),
        (642, 94, "tail", "newest"),
    ):
        yield box(x, 54, width, 44, kind, words)
    yield text(132, 118, "start", "small muted")
    yield text(736, 118, "length", "small muted", "end")
    yield text(MARGIN, 166, "What lies on the store", "bold")
    yield box(24, 182, 300, 152, "header")
    yield text(40, 206, "clicks$header", "code bold")
    yield from lines(40, 232, "start 64 MiB", "Chunk … 0000…-5f3a", "Chunk … 0000…-91c0", "Chunk … 0000…-77d2")
    yield text(40, 322, "and the newest bytes, inline", "small")
    yield box(236, 306, 76, 20, "tail")
    for number, name in enumerate(("0000…-5f3a", "0000…-91c0", "0000…-77d2")):
        y = 186 + number * 50
        yield box(520, y, 216, 36, "chunk", f"clicks$chunks/{name}")
        yield arrow(212, 248 + number * 20, 514, y + 18)


def append() -> Iterator[str]:
    """Small appends stay in the header; when they are enough for a file, they roll into a chunk."""
    for y, title, note in (
        (30, "1. Before", "the newest bytes lie in the header"),
        (122, "2. A small append: the tail grows", "one request: the header is replaced"),
        (214, "3. The tail is long enough: it rolls", "two requests: a new chunk, then the header"),
    ):
        yield text(MARGIN, y, title, "bold")
        yield text(736, y, note, "small muted", "end")
    yield box(24, 42, 300, 40, "chunk", "chunk")
    yield box(324, 42, 100, 40, "tail", "tail")
    yield box(24, 134, 300, 40, "chunk", "chunk")
    yield box(324, 134, 100, 40, "tail", "tail")
    yield box(424, 134, 60, 40, "new", "new")
    yield box(24, 226, 300, 40, "chunk", "chunk")
    yield box(324, 226, 300, 40, "chunk", "new chunk: the tail and what came")


def commit() -> Iterator[str]:
    """Two writers replace one header: the condition lets one of them win, and the other tries again."""
    for x, words in ((120, "writer A"), (380, "header"), (640, "writer B")):
        yield text(x, 38, words, "bold", "middle")
        yield rule(x, 50, x, 330)
    for x, other in ((130, 370), (630, 390)):
        yield arrow(other, 78, x, 78)
    yield text(245, 70, "version 41", "small", "middle")
    yield text(515, 70, "version 41", "small", "middle")
    yield arrow(126, 124, 370, 124)
    yield text(245, 116, "replace, if still 41", "small", "middle")
    yield box(340, 134, 80, 28, "new", "42: A")
    yield arrow(634, 190, 390, 190)
    yield text(515, 182, "replace, if still 41", "small", "middle")
    yield text(515, 212, "refused: it is 42", "small muted", "middle")
    yield arrow(390, 246, 628, 246)
    yield text(515, 238, "looks again: version 42", "small", "middle")
    yield arrow(634, 284, 390, 284)
    yield text(515, 276, "replace, if still 42", "small", "middle")
    yield box(340, 294, 80, 28, "new", "43: A, B")
    yield text(
        24,
        356,
        "There is no server. A writer that dies leaves the header as it was, or as its commit made it.",
        "small muted",
    )


def truncate() -> Iterator[str]:
    """A truncation moves the start; whole chunks before it are deleted, and offsets stay."""
    yield text(MARGIN, 34, "Before", "bold")
    yield text(MARGIN, 138, "After truncate(150)", "bold")
    for number in range(4):
        yield box(24 + 160 * number, 46, 160, 40, "chunk", f"{100 * number} to {100 * number + 100}")
    yield box(664, 46, 72, 40, "tail", "tail")
    yield box(24, 150, 160, 40, "gone", "deleted")
    yield box(184, 150, 80, 40, "gone", "hidden")
    yield box(264, 150, 80, 40, "chunk", "150 to")
    yield box(344, 150, 160, 40, "chunk", "200 to 300")
    yield box(504, 150, 160, 40, "chunk", "300 to 400")
    yield box(664, 150, 72, 40, "tail", "tail")
    yield rule(264, 92, 264, 200, "strong")
    yield text(264, 220, "start = 150", "small", "middle")
    yield text(
        24,
        248,
        "The byte at offset 250 stays at offset 250. The chunk that the start cuts stays whole on the store.",
        "small muted",
    )


def concat() -> Iterator[str]:
    """A concat hands over references: the chunks stay in the folders where they are."""
    yield text(MARGIN, 34, "Before: two sealed segments and a target", "bold")
    yield box(24, 46, 100, 36, "header", "mon$header")
    yield box(140, 46, 170, 36, "chunk", "mon$chunks/0000…")
    yield box(24, 92, 100, 36, "header", "tue$header")
    yield box(140, 92, 170, 36, "other", "tue$chunks/0000…")
    yield box(440, 46, 110, 36, "header", "week$header")
    yield text(566, 70, "empty", "small muted")
    yield text(MARGIN, 176, "After concat(week, [mon, tue])", "bold")
    yield box(140, 188, 170, 36, "chunk", "mon$chunks/0000…")
    yield box(140, 234, 170, 36, "other", "tue$chunks/0000…")
    yield box(440, 188, 110, 36, "header", "week$header")
    yield arrow(438, 206, 316, 206)
    yield arrow(438, 214, 316, 246)
    yield box(440, 234, 130, 36, "chunk", "mon")
    yield box(570, 234, 130, 36, "other", "tue")
    yield text(570, 290, "what a reader of week sees", "small muted", "middle")
    yield text(
        24,
        322,
        "No byte moves. The sources are gone; their chunk folders stay until nobody refers to them.",
        "small muted",
    )


def stream() -> Iterator[str]:
    """A stream is a folder of segments; a cut is one offset for each."""
    yield text(MARGIN, 34, "events/", "code bold")
    ends = (560, 660, 460)
    at = (400, 300, 350)
    for number, (end, cut) in enumerate(zip(ends, at, strict=True)):
        y = 52 + 54 * number
        yield text(24, y + 25, f"part-{number}", "code")
        yield box(110, y, cut - 110, 38, "other", "read by everybody")
        yield box(cut, y, end - cut, 38, "chunk", "still wanted")
        yield arrow(end + 6, y + 19, end + 40, y + 19)
        yield rule(cut, y - 6, cut, y + 44, "strong")
    yield rule(400, 96, 300, 100, "strong")
    yield rule(300, 150, 350, 154, "strong")
    yield text(400, 38, "a cut", "small", "middle")
    yield text(
        24,
        238,
        "trim(cut) truncates every segment to its offset. Retention chooses the cut by size or by time.",
        "small muted",
    )


def collect() -> Iterator[str]:
    """What happens to the files that a segment no longer needs."""
    yield text(MARGIN, 34, "Files in clicks$chunks/", "bold")
    rows = (
        ("chunk", "0000…-5f3a", "the header names it", "stays"),
        ("gone", "0000…-22b7", "truncated, own chunk", "truncate deletes it at once"),
        ("other", "stage-0f1e…", "truncated, but staged, or another segment's", "collect deletes it, after a day"),
        ("new", "0000…-aa10", "nobody names it, an hour old", "stays: a commit may come"),
        ("gone", "0000…-c3d4", "nobody names it, two days old: a writer died", "collect deletes it"),
    )
    for number, (kind, name, why, fate) in enumerate(rows):
        y = 48 + 44 * number
        yield box(24, y, 150, 32, kind, name)
        yield text(190, y + 21, why, "small")
        yield text(488, y + 21, fate, "small bold")


PICTURES: dict[str, tuple[Callable[[], Iterator[str]], int]] = {
    "segment": (segment, 352),
    "append": (append, 286),
    "commit": (commit, 372),
    "truncate": (truncate, 264),
    "concat": (concat, 338),
    "stream": (stream, 254),
    "collect": (collect, 276),
}
"""How each picture is drawn, and its height."""


def drawn(name: str) -> str:
    """The text of a picture."""
    draw, height = PICTURES[name]
    shapes = "\n".join(draw())
    title = escape((draw.__doc__ or name).strip())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img">\n<title>{title}</title>\n<style>{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z" class="head"/></marker></defs>\n'
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="paper"/>\n{shapes}\n</svg>\n'
    )


def draw_map(file: Path) -> None:
    """Let `rollingfs map` draw a segment of six days: truncated, and with chunks of many sizes and ages."""
    from rollingfs import RollingFileSystem
    from rollingfs.cli.app import app

    now = time.time()
    seconds = [now - 6 * DAY_S]
    path = "/events/clicks"
    fs = RollingFileSystem("memory", clock=lambda: seconds[0], max_bytes="64KiB", inline_bytes="4KiB")
    fs.create(path)
    for number in range(71):
        seconds[0] += DAY_S / 12
        fs.append(path, bytes(3_000 + 5_900 * (number * 7 % 11)))
    seconds[0] = now
    fs.append(path, bytes(30_000))
    fs.append(path, bytes(3_000))
    fs.truncate(path, 400_000)
    app(["map", f"memory:/{path}", "--output", str(file)])


if __name__ == "__main__":
    for each in PICTURES:
        Path(__file__).with_name(f"{each}.svg").write_text(drawn(each), encoding="utf-8")
    draw_map(Path(__file__).with_name("map.svg"))
