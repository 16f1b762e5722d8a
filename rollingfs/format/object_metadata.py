"""Labels: metadata of chunks and index pages, for a rebuild after the loss of a header. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from rollingfs import __version__
from rollingfs.format.header import Chunk, Header
from rollingfs.runtime.values import value_class

INCARNATION = "rollingfs-incarnation"
OFFSET = "rollingfs-offset"
CHECKSUM = "rollingfs-crc32c"
LAST = "rollingfs-last"
SEGMENT = "rollingfs-segment"
END = "rollingfs-end"
VERSION = "rollingfs-version"

NAME_BYTES_MAX = 1024
"""A store keeps some 2 KiB of metadata with an object."""

# `re` compiles them at their first use: only a rebuild reads labels
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NUMBER = r"0|[1-9][0-9]{0,18}"
_LAST = r"(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9A-Za-z._-]+)(?: ([0-9a-z_-]+))?"
_CRC = r"[0-9a-f]{8}"


@value_class
class Last:
    """The last chunk of a header that was committed: it has the whole of a file in the own folder."""

    start: int
    length: int
    file: str
    tier: str = ""

    @staticmethod
    def of(header: Header) -> Last | None:
        """Return the last chunk of a header; None if its last entry is not such a chunk."""
        entry = header.entries[-1] if header.entries else None
        if not isinstance(entry, Chunk) or entry.length != entry.size:
            return None
        found = Last(entry.start, entry.length, entry.file, entry.tier)
        return found if re.fullmatch(_LAST, found.text) else None

    @property
    def text(self) -> str:
        return f"{self.start} {self.length} {self.file} {self.tier}".rstrip()


@value_class
class Label:
    """Facts of a file when its writing begins; no reader of a segment relies on them."""

    incarnation: str | None = None
    """Of the segment that it is written for."""
    offset: int | None = None
    """Segment offset that its first byte is expected to have."""
    crc32c: int | None = None
    """Checksum of the file."""
    last: Last | None = None
    """The last chunk of the incarnation when the writing began: it proves the place of that chunk."""
    end: int | None = None
    """Of a file that was moved or joined: the segment offset after its last byte."""
    name: str | None = None
    """Of such a file: the path of the segment."""

    def metadata(self) -> dict[str, str]:
        """Return the label as metadata of an object."""
        crc, last = self.crc32c, self.last
        fields = {
            INCARNATION: self.incarnation,
            OFFSET: self.offset,
            CHECKSUM: None if crc is None else f"{crc:08x}",
            LAST: None if last is None else last.text,
        }
        found = {name: str(value) for name, value in fields.items() if value is not None}
        if self.end is not None and self.name is not None:
            found |= {END: str(self.end), SEGMENT: quote(self.name)[:NAME_BYTES_MAX], VERSION: __version__}
        return found


def parse_label(metadata: Mapping[str, str]) -> Label | None:
    """Return the label in an object's metadata; malformed fields count as missing."""
    given = {key.lower().replace("_", "-"): value for key, value in metadata.items()}
    incarnation, offset, crc = (given.get(key, "") for key in (INCARNATION, OFFSET, CHECKSUM))
    last = re.fullmatch(_LAST, given.get(LAST, ""))
    label = Label(
        incarnation if re.fullmatch(_UUID, incarnation) else None,
        int(offset) if re.fullmatch(_NUMBER, offset) else None,
        int(crc, 16) if re.fullmatch(_CRC, crc) else None,
        Last(int(last[1]), int(last[2]), last[3], last[4] or "") if last else None,
    )
    return label if label != Label() else None
