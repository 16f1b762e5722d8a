"""The header's text form: parse and format. Pure.

Both directions check the whole: what is written can be read, what is read is believed only if it is
well-formed, within the limits and true to its checksums. Specified in ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rollingfs import lines, words
from rollingfs.header import TEXT_BYTES_MAX, Adopted, Chunk, Commit, Drop, Entry, Header, Mark, Origin, PlainCopy

FORMAT = "rollingfs 1"


TEXTS_KEPT_MAX = 32

_texts: dict[int, tuple[tuple[Entry, ...], str]] = {}
"""The text of entries, by their identity: one commit after another writes the very same tuple, often of hundreds."""


def _entries_text(entries: tuple[Entry, ...]) -> str:
    kept = _texts.get(id(entries))
    if kept is not None and kept[0] is entries:
        return kept[1]
    text = "\n".join(
        lines.format_chunk(entry) if isinstance(entry, Chunk) else lines.format_page(entry) for entry in entries
    )
    if len(_texts) >= TEXTS_KEPT_MAX:
        _texts.clear()
    _texts[id(entries)] = entries, text
    return text


def _lines(header: Header) -> Iterable[str]:
    yield FORMAT
    yield f"segment {header.segment}"
    yield f"version {header.version}"
    yield lines.format_state(header)
    yield f"epoch {header.epoch}" + (f" {words.quote(header.owner)}" if header.owner is not None else "")
    yield lines.format_policy(header.policy)
    yield f"time created={words.format_time(header.created_ms)} modified={words.format_time(header.modified_ms)}"
    yield f"start {header.start}"
    if header.adopted is not None:
        yield f"Adopted {words.quote(header.adopted.token)} {words.format_time(header.adopted.modified_ms)}"
    if header.entries:
        yield _entries_text(header.entries)
    if header.tail:
        at = words.format_time(header.tail_at_ms)
        yield f"Inline {header.tail_start} {len(header.tail)} crc32c={words.crc32c(header.tail):08x} at={at}"
    for key, value in header.attrs.items():
        yield f"attr {words.quote(key)} {words.quote(value)}"
    for commit in header.commits:
        yield f"commit {words.quote(commit.writer)} {commit.number} {commit.version}"
    if header.evicted:
        yield f"evicted {header.evicted}"
    if header.turn is not None:
        yield f"turn {words.quote(header.turn)} {header.version}"
    for kind, marks in (("Merged", header.merges), ("Aborted", header.aborts)):
        for mark in marks:
            yield f"{kind} {mark.txn} {words.quote(mark.source)}"
    yield from map(lines.format_drop, header.drops)
    # last, where those who do not know it keep it
    if header.plain_copy is not None:
        copy = header.plain_copy
        since = "" if copy.began_ms is None else f" {words.format_time(copy.began_ms)}"
        yield f"plain {copy.segment} {copy.start}{since}"
    if header.origin is not None:
        yield f"origin {header.origin.segment} {words.format_time(header.origin.modified_ms)}"
    yield from header.unknown


def format_text(header: Header) -> bytes:
    """The header's text, without the inline tail; of any length (the caller pages what does not fit)."""
    text = "\n".join(_lines(header)).encode() + b"\n"
    return words.seal_text(text)


def format_header(header: Header) -> bytes:
    """The header file's content: text, blank line, inline tail.

    Raises
    ------
    ValueError
        The header breaks an invariant or a limit of the format.
    """
    header.check()
    text = format_text(header)
    if len(text) > TEXT_BYTES_MAX:
        raise ValueError(f"the header's text would be {len(text)} bytes, but at most {TEXT_BYTES_MAX} are allowed")
    return text + header.tail


class _Parser:
    """Collects the fields of a header, line by line."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {"unknown": ()}
        self.entries: list[Entry] = []
        self.attrs: dict[str, str] = {}
        self.commits: list[Commit] = []
        self.drops: list[Drop] = []
        self.marks: dict[str, list[Mark]] = {"Merged": [], "Aborted": []}
        self.inline: tuple[int, int, int] | None = None

    def line(self, line: str) -> None:
        entry = lines.parse_entry_line(line)
        if entry is not None:
            self.entries.append(entry)
            return
        kind, *parts = line.split(" ")
        handler = getattr(self, f"_on_{kind}", None) if kind.isascii() and kind.isalpha() else None
        if handler is not None:
            handler(parts)
        elif kind[:1].isupper():
            raise words.Malformed(f"line kind {kind!r} is too new for this release: upgrade rollingfs to read it")
        elif kind[:1].islower():
            self.fields["unknown"] += (line,)
        else:
            raise words.Malformed("begins with no word")

    def _once(self, **fields: Any) -> None:
        for name, value in fields.items():
            if name in self.fields:
                raise words.Malformed("comes twice")
            self.fields[name] = value

    def _on_segment(self, parts: Sequence[str]) -> None:
        self._once(segment=words.uuid(*words.exactly(parts, 1)))

    def _on_version(self, parts: Sequence[str]) -> None:
        self._once(version=words.number(*words.exactly(parts, 1)))

    def _on_state(self, parts: Sequence[str]) -> None:
        self._once(**lines.parse_state(parts))

    def _on_epoch(self, parts: Sequence[str]) -> None:
        self._once(
            epoch=words.number(parts[0]), owner=words.unquote(words.exactly(parts, 2)[1]) if len(parts) > 1 else None
        )

    def _on_policy(self, parts: Sequence[str]) -> None:
        self._once(policy=lines.parse_policy(parts))

    def _on_time(self, parts: Sequence[str]) -> None:
        fields = words.fields(parts, {"created": words.parse_time, "modified": words.parse_time}, strict=False)
        self._once(created_ms=fields.get("created", 0), modified_ms=fields.get("modified", 0))

    def _on_start(self, parts: Sequence[str]) -> None:
        self._once(start=words.number(*words.exactly(parts, 1)))

    def _on_Adopted(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        token, modified = words.exactly(parts, 2)
        self._once(adopted=Adopted(words.unquote(token), words.parse_time(modified)))

    def _on_plain(self, parts: Sequence[str]) -> None:
        segment, start, *since = parts
        began_ms = words.parse_time(*words.exactly(since, 1)) if since else None
        self._once(plain_copy=PlainCopy(words.uuid(segment), words.number(start), began_ms))

    def _on_origin(self, parts: Sequence[str]) -> None:
        segment, modified = words.exactly(parts, 2)
        self._once(origin=Origin(words.uuid(segment), words.parse_time(modified)))

    def _on_Chunk(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.entries.append(lines.parse_chunk(parts))

    def _on_Page(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.entries.append(lines.parse_page(parts))

    def _on_Inline(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        fields = words.fields(parts[2:], {"crc32c": words.crc, "at": words.parse_time})
        words.need(fields, "crc32c", "at")
        self._once(tail_at_ms=fields["at"])
        self.inline = words.number(parts[0]), words.number(parts[1]), fields["crc32c"]

    def _on_attr(self, parts: Sequence[str]) -> None:
        key, value = map(words.unquote, words.exactly(parts, 2))
        if key in self.attrs:
            raise words.Malformed("comes twice")
        self.attrs[key] = value

    def _on_commit(self, parts: Sequence[str]) -> None:
        writer, number, version = words.exactly(parts, 3)
        self.commits.append(Commit(words.unquote(writer), words.number(number), words.number(version)))

    def _on_evicted(self, parts: Sequence[str]) -> None:
        self._once(evicted=words.number(*words.exactly(parts, 1)))

    def _on_turn(self, parts: Sequence[str]) -> None:
        writer, version = words.exactly(parts, 2)
        self._once(turn=(words.unquote(writer), words.number(version)))

    def _on_Merged(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        txn, source = words.exactly(parts, 2)
        self.marks["Merged"].append(Mark(words.uuid(txn), words.unquote(source)))

    def _on_Aborted(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        txn, source = words.exactly(parts, 2)
        self.marks["Aborted"].append(Mark(words.uuid(txn), words.unquote(source)))

    def _on_Drop(self, parts: Sequence[str]) -> None:  # noqa: N802 - the name of the line
        self.drops.append(lines.parse_drop(parts))

    def header(self, tail: bytes) -> Header:
        words.need(self.fields, "segment", "version", "phase", "epoch", "policy", "start")
        if "turn" in self.fields:  # one of another version was carried on by a client that does not know the line
            writer, version = self.fields["turn"]
            self.fields["turn"] = writer if version == self.fields["version"] else None
        header = Header(
            **self.fields,
            entries=tuple(self.entries),
            tail=tail,
            attrs=self.attrs,
            commits=tuple(self.commits),
            drops=tuple(self.drops),
            merges=tuple(self.marks["Merged"]),
            aborts=tuple(self.marks["Aborted"]),
        )
        if (self.inline is not None) != bool(tail):
            raise words.Malformed("the inline tail and its line do not go together")
        if self.inline is not None and self.inline != (header.tail_start, len(tail), words.crc32c(tail)):
            raise words.Malformed("the inline tail has not the offset, the length or the checksum that its line says")
        header.check()
        return header


def parse_header(data: bytes, name: str) -> Header | None:
    """Read a header file's content.

    Parameters
    ----------
    data
        The whole file, inline tail included.
    name
        The file's path, for the error.

    Returns
    -------
    Header or None
        None for an empty file: an interrupted create, which is no segment.

    Raises
    ------
    CorruptHeaderError
        With the line and why; nothing is guessed.
    """
    if not data:
        return None
    parser, position, line = _Parser(), 0, ""
    try:
        text_lines, end = words.split_text(data, FORMAT)
        if end > TEXT_BYTES_MAX:
            raise words.Malformed(f"its text has {end} bytes, but at most {TEXT_BYTES_MAX} are allowed")
        for position, line in enumerate(text_lines, start=2):  # noqa: B007 - the error names it
            parser.line(line)
        position, line = 0, ""
        return parser.header(data[end:])
    except (ValueError, IndexError) as error:
        words.corrupt(name, position, line, error)
