"""Labels: what the metadata of a chunk or an index page say of it, for the day when the header is lost. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

INCARNATION = "rollingfs-incarnation"
OFFSET = "rollingfs-offset"
CHECKSUM = "rollingfs-crc32c"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_CRC = re.compile(r"[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Label:
    """What is known of a file when its writing begins; no reader of a segment relies on it."""

    incarnation: str | None = None
    """Of the segment that it is written for."""
    offset: int | None = None
    """Segment offset that its first byte is expected to have."""
    crc32c: int | None = None
    """Checksum of the file."""

    def metadata(self) -> dict[str, str]:
        """The label as metadata of an object."""
        found = {}
        if self.incarnation is not None:
            found[INCARNATION] = self.incarnation
        if self.offset is not None:
            found[OFFSET] = str(self.offset)
        if self.crc32c is not None:
            found[CHECKSUM] = f"{self.crc32c:08x}"
        return found


def parse_label(metadata: Mapping[str, str]) -> Label | None:
    """The label in an object's metadata; what is malformed counts as missing, because other programs may write any."""
    given = {key.lower().replace("_", "-"): value for key, value in metadata.items()}
    incarnation, offset, crc = (given.get(key, "") for key in (INCARNATION, OFFSET, CHECKSUM))
    label = Label(
        incarnation if _UUID.fullmatch(incarnation) else None,
        int(offset) if _NUMBER.fullmatch(offset) else None,
        int(crc, 16) if _CRC.fullmatch(crc) else None,
    )
    return label if label != Label() else None
