"""A reader of headers in forty lines: chapters 2 and 3 of the protocol, for other implementations."""

import re

from fastcrc.crc32 import iscsi

LINE = re.compile(rb"Record (\d+) (\S* \d+) (\d+) \S+ ([0-9a-f]{8}) ([0-9a-f]{8})\n")
KNOWN = (
    "segment version state epoch policy time start Adopted Tier Chunk Page Inline attr commit evicted Merged Aborted"
)
KNOWN += " Drop"


def unescape(word):
    parts = word.split("%")
    return parts[0] + "".join(chr(int(part[:2], 16)) + part[2:] for part in parts[1:])


def read_header(data):
    """The lines by kind (lists of words), and the inline tail."""
    if not data.startswith(b"rollingfs 1\n"):
        raise ValueError("not a header of this format")
    text, found, rest = data.partition(b"\nend crc32c=")
    text += b"\n"
    if not found or rest[8:10] != b"\n\n" or int(rest[:8], 16) != iscsi(text):
        raise ValueError("cut off, or damaged")
    lines, tail = {}, rest[10:]
    for line in text.decode().split("\n")[1:-1]:
        kind, *words = line.split(" ")
        if kind in KNOWN.split():
            lines.setdefault(kind, []).append([unescape(word) for word in words])
        elif kind[:1].isupper():
            raise ValueError(f"{kind}: too new for this reader")
    size = sum(int(words[1]) for words in lines.get("Inline", []))
    tail, rest = tail[:size], tail[size:]
    for _, length, crc32c, *_ in lines.get("Inline", []):
        if int(length) != len(tail) or int(crc32c[7:], 16) != iscsi(tail):
            raise ValueError("the inline tail is damaged")
    while line := LINE.match(rest):  # a record that is not whole ends the file
        data, sealed = rest[line.end() :][: int(line[3])], lines["segment"][0][0].encode() + rest[: line.start(5)]
        if iscsi(data) != int(line[4], 16) or iscsi(sealed) != int(line[5], 16):
            break
        lines["version"], tail, rest = [[line[1].decode()]], tail + data, rest[line.end() + len(data) :]
    return lines, tail
