"""Asks: bytes that one writer leaves beside the header, for another writer's commit to carry. Pure.

An ask lies in a file of its own. The next plain append may put its bytes behind its own. Which asks a header admits,
and which of them a commit carries, is decided against the very header that the commit replaces. Specified in
``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rollingfs.format import names, tokens
from rollingfs.format.header import COMMITS_MAX, Header, Phase, Placed

ASK_FORMAT = "rollingfs-ask 1"
ASK_BYTES_MAX = 256 * 1024
"""The most bytes that one ask may hold, without its text."""
CARRIED_ASKS_MAX = 63
CARRIED_BYTES_MAX = 1024 * 1024
"""The most bytes of asks that one commit carries."""
WINDOW_VERSIONS = 64
"""A commit carries no ask whose base is so many versions older."""
YOUNG_VERSIONS = 4
YOUNG_LINES_MAX = COMMITS_MAX - YOUNG_VERSIONS
"""A commit that carries asks leaves at most so many commit lines of the last `YOUNG_VERSIONS`.

A commit's own line evicts at most one, so no line is evicted for as many versions, in which its writer looks for it.
"""
CARRIED_LINES_BYTES_MAX = 256
"""By how much one carried ask can lengthen a header's text: a commit line and a `placed` line."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One operation's bytes, which its writer asks others to commit."""

    writer: str
    number: int
    """The operation's number; it stands for the same bytes for ever."""
    segment: str
    """The incarnation to which the bytes are to be appended."""
    base: int
    """The version of a header in which the writer has judged that the operation did not take place."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Carry:
    """What a plain append adds to its header beside its bytes."""

    floor: int
    placed: tuple[Placed, ...] = ()

    @property
    def text_bytes_max(self) -> int:
        """By how much it can lengthen the header's text."""
        return CARRIED_LINES_BYTES_MAX * (len(self.placed) + 1)


# -- the file --------------------------------------------------------------------------------------------------


def ask_path(segment: str, writer: str) -> str:
    """The file in which a writer asks."""
    return f"{names.chunks_folder(segment)}/{names.ASK_PREFIX}{writer}"


def format_ask(ask: Ask) -> bytes:
    """The content of an ask's file.

    Raises
    ------
    ValueError
        It has no bytes, or too many.
    """
    if not 1 <= len(ask.data) <= ASK_BYTES_MAX:
        raise ValueError(f"an ask holds 1 to {ASK_BYTES_MAX} bytes, not {len(ask.data)}")
    text = (
        f"{ASK_FORMAT}\nask {tokens.quote(ask.writer)} {ask.number} {ask.segment} {ask.base}\n"
        f"data {len(ask.data)} crc32c={tokens.crc32c(ask.data):08x}\n"
    )
    return tokens.seal_text(text.encode()) + ask.data


def parse_ask(data: bytes, name: str) -> Ask:
    """Read the content of an ask's file.

    Parameters
    ----------
    name
        The file's path, for the error.

    Raises
    ------
    CorruptHeaderError
        It is cut off, damaged or of a newer release; the message has the line and the reason.
    """
    position, line = 0, ""
    found: dict[str, Any] = {}
    try:
        text_lines, end = tokens.split_text(data, ASK_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, *parts = line.split(" ")
            if kind not in ("ask", "data") or kind in found:
                raise tokens.Malformed(f"line kind {kind!r} is unknown or comes twice: upgrade rollingfs to read it")
            found[kind] = _ask_words(parts) if kind == "ask" else _data_words(parts)
        position, line = 0, ""
        tokens.need(found, "ask", "data")
        rest = bytes(data[end:])
        if found["data"] != (len(rest), tokens.crc32c(rest)):
            raise tokens.Malformed("its bytes do not have the length and checksum that its line says")
        writer, number, segment, base = found["ask"]
        return Ask(writer, number, segment, base, rest)
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)


def _ask_words(parts: Sequence[str]) -> tuple[str, int, str, int]:
    writer, number, segment, base = tokens.exactly(parts, 4)
    return tokens.unquote(writer), tokens.number(number), tokens.uuid(segment), tokens.number(base)


def _data_words(parts: Sequence[str]) -> tuple[int, int]:
    length = tokens.number(parts[0])
    fields = tokens.fields(parts[1:], {"crc32c": tokens.crc})
    tokens.need(fields, "crc32c")
    if not 1 <= length <= ASK_BYTES_MAX:
        raise tokens.Malformed(f"holds {length} bytes, but an ask holds 1 to {ASK_BYTES_MAX}")
    return length, fields["crc32c"]


# -- what a header admits --------------------------------------------------------------------------------------


def takes_plain(header: Header) -> bool:
    """Whether a plain append may replace this header: an open segment without an owner."""
    return header.phase is Phase.OPEN and header.owner is None


def is_void(ask: Ask, header: Header) -> bool:
    """Whether no commit on this header, or on a later one, can carry the ask."""
    return ask.segment != header.segment or header.floor > ask.base


def admits(header: Header, ask: Ask, committer: str) -> bool:
    """Whether a plain append of `committer` that replaces this header may carry the ask."""
    if not takes_plain(header) or is_void(ask, header) or ask.writer == committer or ask.base > header.version:
        return False
    line = header.commit_of(ask.writer)
    return line.number < ask.number if line is not None else header.evicted <= ask.base


def select(header: Header, asks: Iterable[Ask], committer: str) -> tuple[Ask, ...]:
    """The asks that a plain append of `committer` on this header carries, in the order of their bytes.

    Those come first whose writers have waited longest since their last commit.
    """
    newest: dict[str, Ask] = {}
    for ask in asks:
        if ask.writer not in newest or ask.number > newest[ask.writer].number:
            newest[ask.writer] = ask
    versions = {line.writer: line.version for line in header.commits}
    admitted = [ask for ask in newest.values() if admits(header, ask, committer)]
    chosen: list[Ask] = []
    size, lines = 0, _Lines(header, committer)
    for ask in sorted(admitted, key=lambda ask: (versions.get(ask.writer, 0), ask.writer)):
        if len(chosen) == CARRIED_ASKS_MAX:
            break
        if size + len(ask.data) <= CARRIED_BYTES_MAX and lines.take(ask.writer):
            chosen.append(ask)
            size += len(ask.data)
    return tuple(chosen)


class _Lines:
    """The commit lines of a header's successor, while asks are chosen for it."""

    def __init__(self, header: Header, committer: str) -> None:
        since = header.version + 1 - YOUNG_VERSIONS
        self._writers = {line.writer for line in header.commits} | {committer}
        self._young = {line.writer for line in header.commits if line.version > since} | {committer}

    def take(self, writer: str) -> bool:
        """Make room for the line of a carried ask; False if it would evict a line, or let young ones be evicted."""
        writers, young = self._writers | {writer}, self._young | {writer}
        if len(writers) > max(COMMITS_MAX, len(self._writers)) or len(young) > YOUNG_LINES_MAX:
            return False
        self._writers, self._young = writers, young
        return True


def carry(header: Header, asks: Sequence[Ask], offset: int) -> Carry:
    """What a plain append on this header adds to its successor.

    Parameters
    ----------
    offset
        Where the data of the first ask begins: behind the data of the append itself.
    """
    placed = []
    for ask in asks:
        placed.append(Placed(ask.writer, ask.number, offset))
        offset += len(ask.data)
    return Carry(max(header.floor, header.version + 1 - WINDOW_VERSIONS), tuple(placed))
