"""Asks: bytes that one writer leaves beside the header, for another writer's commit to carry. Pure.

An ask lies in a file of its own. The next plain append may put its bytes behind its own. Which asks a header admits,
and which of them a commit carries, is decided against the very header that the commit replaces. Specified in
``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rollingfs.format import names, tokens
from rollingfs.format.codec import format_commit
from rollingfs.format.crc import crc32c
from rollingfs.format.header import CARRIED_LINES_MAX, COMMITS_MAX, OFFSET_MAX, Commit, Header, Phase
from rollingfs.runtime.values import value_class

ASK_FORMAT = "rollingfs-ask 1"
ASK_BYTES_MAX = 256 * 1024
"""The most bytes that one ask may hold, without its text."""
ASK_TEXT_BYTES_MAX = 4 * 1024
"""The most bytes that its text has."""
CARRIED_BYTES_MAX = 1024 * 1024
"""The most bytes of asks that one commit carries."""
CARRIED_TEXT_BYTES_MAX = 32 * 1024
"""The most bytes of header lines that one commit writes for asks."""
CARRIED_TEXT_BYTES_MARKED_MAX = 4 * 1024
"""The same while the header has marks of concats and renames, which may be long."""
WINDOW_VERSIONS = 64
"""Age of an ask's base, in versions, from which a commit does not carry it."""
PLAIN_TEXT_BYTES_MAX = 256
"""By how much a plain append that carries nothing can lengthen a header's text."""


@value_class
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


@value_class
class Carry:
    """What a plain append adds to its header beside its bytes."""

    floor: int
    lines: tuple[Commit, ...] = ()
    """Those of the asks, as the header will have them."""

    @property
    def text_bytes_max(self) -> int:
        """By how much it can lengthen the header's text."""
        return PLAIN_TEXT_BYTES_MAX + sum(map(_line_bytes, self.lines))


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
        f"data {len(ask.data)} crc32c={crc32c(ask.data):08x}\n"
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
        tokens.check_size(data, ASK_BYTES_MAX + ASK_TEXT_BYTES_MAX)
        text_lines, end = tokens.split_text(data, ASK_FORMAT)
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            kind, *parts = line.split(" ")
            if kind not in ("ask", "data") or kind in found:
                raise tokens.Malformed(f"line kind {kind!r} is unknown or comes twice: upgrade rollingfs to read it")
            found[kind] = _ask_words(parts) if kind == "ask" else _data_words(parts)
        position, line = 0, ""
        tokens.need(found, "ask", "data")
        rest = bytes(data[end:])
        if found["data"] != (len(rest), crc32c(rest)):
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


def _line_bytes(line: Commit) -> int:
    return len(format_commit(line).encode()) + 1


def is_void(ask: Ask, header: Header) -> bool:
    """Whether no commit on this header, or on a later one, can carry the ask."""
    return ask.segment != header.segment or header.floor > ask.base


def admits(header: Header, ask: Ask, committer: str) -> bool:
    """Whether a plain append of `committer` that replaces this header may carry the ask."""
    return _admits(header, ask, committer, header.commit_of(ask.writer))


def _admits(header: Header, ask: Ask, committer: str, line: Commit | None) -> bool:
    if not takes_plain(header) or is_void(ask, header) or ask.writer == committer or ask.base > header.version:
        return False
    return line.number < ask.number if line is not None else header.evicted <= ask.base


def select(header: Header, asks: Iterable[Ask], committer: str) -> tuple[Ask, ...]:
    """The asks that a plain append of `committer` on this header carries, in the order of their bytes.

    Those come first whose writers have waited longest since their last commit.
    """
    newest: dict[str, Ask] = {}
    for ask in asks:
        if ask.writer not in newest or ask.number > newest[ask.writer].number:
            newest[ask.writer] = ask
    of = {line.writer: line for line in header.commits}
    versions = {writer: line.version for writer, line in of.items()}
    admitted = [ask for ask in newest.values() if _admits(header, ask, committer, of.get(ask.writer))]
    chosen: list[Ask] = []
    size, text_bytes, lines = 0, 0, _young_lines(header, committer)
    text_bytes_max = CARRIED_TEXT_BYTES_MARKED_MAX if header.must_settle else CARRIED_TEXT_BYTES_MAX
    for ask in sorted(admitted, key=lambda ask: (versions.get(ask.writer, 0), ask.writer)):
        more_bytes = _line_bytes(Commit(ask.writer, ask.number, header.version + 1, OFFSET_MAX))
        is_short = size + len(ask.data) <= CARRIED_BYTES_MAX and text_bytes + more_bytes <= text_bytes_max
        if is_short and (ask.writer in lines or len(lines) < CARRIED_LINES_MAX):
            chosen.append(ask)
            lines.add(ask.writer)
            size, text_bytes = size + len(ask.data), text_bytes + more_bytes
    return tuple(chosen)


def _young_lines(header: Header, committer: str) -> set[str]:
    """The writers of lines of carried asks that a commit on this header may not evict."""
    since = header.version + 1 - COMMITS_MAX
    return {line.writer for line in header.carried if line.version > since and line.writer != committer}


def carry(header: Header, asks: Sequence[Ask], offset: int) -> Carry:
    """What a plain append on this header adds to its successor.

    Parameters
    ----------
    offset
        Where the data of the first ask begins: behind the data of the append itself.
    """
    lines, version = [], header.version + 1
    for ask in asks:
        lines.append(Commit(ask.writer, ask.number, version, offset))
        offset += len(ask.data)
    return Carry(max(header.floor, version - WINDOW_VERSIONS), tuple(lines))
