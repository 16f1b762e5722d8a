"""The header's text form: parse and format. Pure.

Both directions check the whole header: its form, its limits and its checksums. So every written header can be read.
``docs/protocol/`` specifies the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rollingfs.format import commit_lines, invariants, line_codec, records, tokens
from rollingfs.format.crc import crc32c
from rollingfs.format.header import (
    HEADER_BYTES_MAX,
    RECORDS_MAX,
    TEXT_BYTES_MAX,
    VERSION,
    Adopted,
    Chunk,
    Commit,
    Edges,
    Entry,
    Header,
    MergeOutcome,
    Origin,
    Page,
)
from rollingfs.format.names import HEADER_SUFFIX, chunks_folder, find, parent
from rollingfs.format.records import Record

FORMAT = "rollingfs 1"


TEXTS_KEPT_MAX = 32

_texts: dict[int, tuple[tuple[Entry, ...], str]] = {}
"""The text of entries, by identity: many commits in a row write the same tuple, often of hundreds of entries."""


def _known_text(entries: tuple[Entry, ...]) -> str:
    """Return the text of entries."""
    kept = _texts.get(id(entries))
    if kept is not None and kept[0] is entries:
        return kept[1]
    text = "\n".join(
        line_codec.format_chunk(entry) if isinstance(entry, Chunk) else line_codec.format_page(entry)
        for entry in entries
    )
    if len(_texts) >= TEXTS_KEPT_MAX:
        _texts.clear()
    _texts[id(entries)] = entries, text
    return text


def format_text(header: Header) -> bytes:
    """Return the header's text without the inline tail, of any length.

    The caller moves entries to pages if it is too long.
    """
    times = f"created={tokens.format_time(header.created_ms)} modified={tokens.format_time(header.modified_ms)}"
    lines = [
        FORMAT,
        f"segment {header.segment}",
        f"version {header.version}",
        line_codec.format_state(header),
        f"epoch {header.epoch}" + (f" {tokens.quote(header.owner)}" if header.owner is not None else ""),
        line_codec.format_policy(header.policy),
        f"time {times}",
        f"start {header.start}",
    ]
    if header.adopted is not None:
        lines.append(f"Adopted {tokens.quote(header.adopted.token)} {tokens.format_time(header.adopted.modified_ms)}")
    lines += map(line_codec.format_tier, header.tiers)
    if header.entries:
        lines.append(_known_text(header.entries))
    if tail := header.tail:
        at = tokens.format_time(header.tail_at_ms)
        until = f" until={tokens.format_time(header.tail_until_ms)}" if header.tail_until_ms is not None else ""
        lines.append(f"Inline {header.tail_start} {len(tail)} crc32c={crc32c(tail):08x} at={at}{until}")
    for key, value in header.attrs.items():
        lines.append(f"attr {tokens.quote(key)} {tokens.quote(value)}")
    lines += map(format_commit, header.commits)
    if header.evicted:
        lines.append(f"evicted {header.evicted}")
    if header.turn is not None:
        lines.append(f"turn {tokens.quote(header.turn)}")
    if header.offload is not None:
        lines.append(line_codec.format_offload(header.offload))
    if header.origin is not None:
        lines.append(f"origin {header.origin.segment} {tokens.format_time(header.origin.modified_ms)}")
    if header.root is not None:
        lines.append(f"root {header.root}")
    if header.rewritten:
        lines.append(f"rewritten {header.rewritten}")
    if header.edges is not None:
        lines.append(line_codec.format_edges(header.edges))
    for kind, marks in (("Merged", header.merges), ("Aborted", header.aborts)):
        lines += [f"{kind} {mark.txn} {tokens.quote_path(mark.source)}" for mark in marks] if marks else ()
    lines += map(line_codec.format_drop, header.drops)
    lines += header.unknown
    return tokens.seal_text("\n".join((*lines, "")).encode())


def format_commit(line: Commit) -> str:
    """Return the line of a writer's last operation."""
    offset = f" {line.offset}" if line.offset is not None else ""
    return f"commit {tokens.quote(line.writer)} {line.number} {line.version}{offset}"


def format_header(header: Header, text: bytes | None = None) -> bytes:
    """Return the header file's content: text, blank line, inline tail.

    Parameters
    ----------
    text
        Its text, where the caller has made it.

    Raises
    ------
    ValueError
        The header breaks an invariant or a limit of the format.
    """
    invariants.check(header)
    text = format_text(header) if text is None else text
    if len(text) > TEXT_BYTES_MAX:
        raise ValueError(f"the header's text would be {len(text)} bytes, but at most {TEXT_BYTES_MAX} are allowed")
    return text + header.tail


def within_text(header: Header) -> Header:
    """Return the header without its oldest commit lines, until its text fits.

    Lines of its version stay.
    """
    over = len(format_text(header)) - TEXT_BYTES_MAX
    count = 0
    for line in sorted(header.commits, key=VERSION):
        if over <= 0 or line.version == header.version:
            break
        count += 1
        over -= len(format_commit(line).encode()) + 1
    if not count:
        return header
    kept, evicted = commit_lines.without_oldest(header.commits, count)
    return replace(header, commits=tuple(kept), evicted=max(header.evicted, evicted))


def _parse_epoch(parts: Sequence[str]) -> dict[str, Any]:
    owner = tokens.unquote(tokens.exactly(parts, 2)[1]) if len(parts) > 1 else None
    return {"epoch": tokens.number(parts[0]), "owner": owner}


def _parse_times(parts: Sequence[str]) -> dict[str, Any]:
    fields = tokens.fields(parts, {"created": tokens.parse_time, "modified": tokens.parse_time}, strict=False)
    return {"created_ms": fields.get("created", 0), "modified_ms": fields.get("modified", 0)}


def _parse_inline(parts: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the tail, and its offset, length and checksum as ``inline``."""
    fields = tokens.fields(parts[2:], {"crc32c": tokens.crc, "at": tokens.parse_time, "until": tokens.parse_time})
    tokens.need(fields, "crc32c", "at")
    inline = tokens.number(parts[0]), tokens.number(parts[1]), fields["crc32c"]
    return {"tail_at_ms": fields["at"], "tail_until_ms": fields.get("until"), "inline": inline}


def _parse_commit(parts: Sequence[str]) -> Commit:
    writer, *numbers = tokens.exactly(parts, 4 if len(parts) > 3 else 3)
    return Commit(tokens.unquote(writer), *map(tokens.number, numbers))


def _words(make: Callable[..., Any], *parsers: Callable[[str], Any]) -> Callable[[Sequence[str]], Any]:
    """Return the parser of a line that has a word for each argument of a value."""
    return lambda parts: make(
        *(parse(word) for parse, word in zip(parsers, tokens.exactly(parts, len(parsers)), strict=True))
    )


def _word(name: str, parse: Callable[[str], Any]) -> Callable[[Sequence[str]], dict[str, Any]]:
    """Return the parser of a line with a single word for a field of the header."""
    return _words(lambda value: {name: value}, parse)


_ONCE: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "segment": _word("segment", tokens.uuid),
    "version": _word("version", tokens.number),
    "state": line_codec.parse_state,
    "epoch": _parse_epoch,
    "policy": lambda parts: {"policy": line_codec.parse_policy(*parts)},
    "time": _parse_times,
    "start": _word("start", tokens.number),
    "Adopted": _words(lambda *of: {"adopted": Adopted(*of)}, tokens.unquote, tokens.parse_time),
    "Inline": _parse_inline,
    "evicted": _word("evicted", tokens.number),
    "asks": lambda _: {},  # of an older release: any commit leaves the line out, as the protocol demands
    "turn": _word("turn", tokens.unquote),
    "offload": lambda parts: {"offload": line_codec.parse_offload(parts)},
    "origin": _words(lambda *of: {"origin": Origin(*of)}, tokens.uuid, tokens.parse_time),
    "root": _word("root", tokens.uuid),
    "rewritten": _word("rewritten", tokens.number),
    "ends": _words(lambda *of: {"edges": Edges(*of)}, *2 * (tokens.number, lambda word: word.strip("-"))),
}
"""The parsers of lines that a header has once: each gives fields of the header."""
_MANY: dict[str, tuple[str, Callable[[Sequence[str]], Any]]] = {
    "Tier": ("tiers", line_codec.parse_tier),
    "Chunk": ("entries", line_codec.parse_chunk),
    "Page": ("entries", line_codec.parse_page),
    "commit": ("commits", _parse_commit),
    "Merged": ("merges", _words(MergeOutcome, tokens.uuid, tokens.segment_path)),
    "Aborted": ("aborts", _words(MergeOutcome, tokens.uuid, tokens.segment_path)),
    "Drop": ("drops", line_codec.parse_drop),
}
"""The fields of lines that a header may have many times, and their parsers."""
LINE_KINDS = (*_ONCE, *_MANY, "attr")
"""The first words of all lines."""


class _Parser:
    """Collects the fields of a header, line by line."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.attrs: dict[str, str] = {}
        self.unknown: list[str] = []
        self.lists: dict[str, list[Any]] = {field: [] for field, _ in _MANY.values()}

    def line(self, line: str) -> None:
        if line.startswith(line_codec.ENTRY_KINDS) and (entry := line_codec.parse_entry_line(line)) is not None:
            self.lists["entries"].append(entry)
            return
        kind, *parts = line.split(" ")
        if kind in _ONCE:
            fields = _ONCE[kind](parts)
            if not self.fields.keys().isdisjoint(fields):
                raise tokens.Malformed("comes twice")
            self.fields |= fields
        elif kind in _MANY:
            field, parse = _MANY[kind]
            self.lists[field].append(parse(parts))
        elif kind == "attr":
            key, value = map(tokens.unquote, tokens.exactly(parts, 2))
            if key in self.attrs:
                raise tokens.Malformed("comes twice")
            self.attrs[key] = value
        elif kind[:1].isupper():
            raise tokens.Malformed(f"line kind {kind!r} is too new for this release: upgrade rollingfs to read it")
        elif kind[:1].islower():
            self.unknown.append(line)
        else:
            raise tokens.Malformed("does not begin with a word")

    def header(self, tail: bytes) -> Header:
        tokens.need(self.fields, "segment", "version", "phase", "epoch", "policy", "start")
        lists: dict[str, Any] = {field: tuple(found) for field, found in self.lists.items()}
        inline = self.fields.pop("inline", None)
        header = Header(**self.fields, **lists, tail=tail, attrs=self.attrs, unknown=tuple(self.unknown))
        if (inline is not None) != bool(tail):
            raise tokens.Malformed("the inline tail and its line do not go together")
        if inline is not None and inline != (header.tail_start, len(tail), crc32c(tail)):
            raise tokens.Malformed("the inline tail does not have the offset, length and checksum that its line says")
        invariants.check(header)
        return header


def _check_pages(header: Header, name: str) -> None:
    """Refuse an index page that is named twice, by two spellings of the reference too."""
    pages = [entry.file for entry in header.entries if isinstance(entry, Page)]
    if any("/" in page for page in pages):
        segment = name.removesuffix(HEADER_SUFFIX)
        folder, own = parent(segment), f"{chunks_folder(segment)}/"
        if len({find(folder, page) or page if "/" in page else own + page for page in pages}) != len(pages):
            raise tokens.Malformed("an index page is named twice")


def parse_header(data: bytes, name: str) -> Header | None:
    """Return the header of `parse_file`."""
    return parse_file(data, name)[0]


def parse_file(data: bytes, name: str) -> tuple[Header | None, int]:
    """Read a header file's content.

    Parameters
    ----------
    data
        The whole file, with the inline tail and the records.
    name
        The file's path, for the error.

    Returns
    -------
    header : Header or None
        With the records folded in. None for an empty file, the rest of an interrupted create.
    room : int
        The number of records that it can still take; 0 if the rest of a torn record is in their way.

    Raises
    ------
    CorruptHeaderError
        The header is malformed; the message has the line and the reason.
    """
    if not data:
        return None, 0
    parser, position, line = _Parser(), 0, ""
    try:
        tokens.check_size(data, HEADER_BYTES_MAX)
        text_lines, end = tokens.split_text(data, FORMAT)
        if end > TEXT_BYTES_MAX:
            raise tokens.Malformed(f"its text has {end} bytes, but at most {TEXT_BYTES_MAX} are allowed")
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            parser.line(line)
        position, line = 0, ""
        tail_end = end + parser.fields.get("inline", (0, 0))[1]
        header = parser.header(data[end:tail_end])
        _check_pages(header, name)
        return _with_records(header, data, tail_end) if len(data) > tail_end else (header, RECORDS_MAX)
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, position, line, error)


def parse_more(header: Header, room: int, data: bytes, name: str) -> tuple[Header, int]:
    """Parse the bytes that a file got since its header and room were parsed."""
    try:
        return _with_records(header, data, 0, room)
    except ValueError as error:
        tokens.corrupt(name, 0, "", error)


def fold_more(header: Header, more: Sequence[Record | bytes], name: str) -> Header:
    """Return a header with records that came since folded in, of which some are as the file has them."""
    try:
        found: list[Record] = []
        for piece in more:
            found += records.parse(piece, 0, header.segment)[0] if isinstance(piece, bytes) else [piece]
        folded = records.fold(header, found)
        invariants.check(folded, known=header)
        return folded
    except ValueError as error:
        tokens.corrupt(name, 0, "", error)


def _with_records(header: Header, data: bytes, start: int = 0, room: int = RECORDS_MAX) -> tuple[Header, int]:
    """Return a header with the records from a position on folded in, and its room.

    Raises
    ------
    ValueError
        No writer writes such records.
    """
    found, end = records.parse(data, start, header.segment)
    if len(found) > room:
        raise tokens.Malformed(
            f"it has {RECORDS_MAX - room + len(found)} records, but at most {RECORDS_MAX} are allowed"
        )
    folded = records.fold(header, found)
    invariants.check(folded, known=header)
    return folded, room - len(found) if end == len(data) else 0
