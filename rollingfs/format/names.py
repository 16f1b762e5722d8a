"""The names on the backend: which file belongs to which segment, and how a header refers to a file. Pure."""

from __future__ import annotations

import functools
import os
import posixpath
import re
import unicodedata
import uuid

from rollingfs.errors import CorruptHeaderError

HEADER_SUFFIX = "$header"
CHUNKS_SUFFIX = "$chunks"
LOCK_NAME = "lock"
INDEX_PREFIX = "index-"
PIN_PREFIX = "pin-"
STAGED_PREFIX = "stage-"
TIER_PREFIX = "tier-"
SHARED = "shared"
"""In a tier, the part of a name that stands for `STAGED_PREFIX`."""
TIER_SCHEME = "tier:"
"""Begins the path of a file in a tier, as the core writes it: ``tier:cold/bucket/events$chunks/...``."""
TIER_MARK = "$tier"
"""The mark at the root of a tier, with its id."""
TIER_ID = "$tier-id"
"""Id for an empty mark of an older release; it replaces no file, so that all clients take the same id."""
PROBE_PREFIX = "probe-"
RESERVE_PREFIX = "reserve-"
"""On a disk that is nearly full: begins the names of files that are given up once it is full."""
TEMPORARY_PREFIX = "tmp-"
EXPORT_PREFIX = f"{TEMPORARY_PREFIX}export-"
REMOVED_NAME = "$removed"
"""The mark of a folder that was removed while tombstones had to stay in it. Without content, it does not exist."""
KEPT_NAME = HEADER_SUFFIX
"""A file of this name, the header of nothing, lets an empty folder be there on a store without folders."""
LEDGER_NAME = "$stream"
"""The segment in which the stream of a folder keeps its memory; listings hide it."""
LISTING_NAME = "$listing"
"""The segment with the rows of a folder, which spare listings most headers; listings hide it."""
_OWN_SEGMENTS = (LEDGER_NAME, LISTING_NAME)
OFFSET_DIGITS = 20
HEADED_BYTES_MAX = 248
"""Longest name that leaves room for `HEADER_SUFFIX` on a disk, whose names have at most 255 bytes."""
NAMES_KEPT_MAX = 1024
"""The names that were checked last are known to be good: programs append to a few segments again and again."""
_ODD_PARTS = frozenset(("", ".", ".."))
_SHARE = "/" if os.sep == "/" else "//"
"""Begins the path of a share on Windows: ``//server/share/x``."""
_CONTROLS = frozenset("\n\r\0")
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that ext4 with casefold and HFS+ leave out when they compare names."""


def folded(name: str) -> str:
    """Return a name as disks compare it that ignore case, or Unicode forms."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", _IGNORABLE.sub("", unicodedata.normalize("NFD", name)).casefold())


@functools.lru_cache(NAMES_KEPT_MAX)
def header_path(segment: str) -> str:
    """Return the header file of a segment."""
    return segment + HEADER_SUFFIX


def chunks_folder(segment: str) -> str:
    """Return the folder of a segment's own chunks."""
    return segment + CHUNKS_SUFFIX


def segment_of_header(path: str) -> str:
    """Return the segment whose header file this is."""
    assert path.endswith(HEADER_SUFFIX), path
    return path[: -len(HEADER_SUFFIX)]


def segment_of_folder(folder: str) -> str:
    """Return the segment whose chunk folder this is."""
    assert folder.endswith(CHUNKS_SUFFIX), folder
    return folder[: -len(CHUNKS_SUFFIX)]


def ledger_path(folder: str) -> str:
    """Return the hidden segment with the memory of the stream in a folder."""
    return f"{folder.rstrip('/')}/{LEDGER_NAME}"


def is_ledger(path: str) -> bool:
    """Return whether this segment holds the memory of a stream."""
    return path.rpartition("/")[2] == LEDGER_NAME


def listing_path(folder: str) -> str:
    """Return the hidden segment with the rows of a folder."""
    return f"{folder.rstrip('/')}/{LISTING_NAME}" if folder else LISTING_NAME


def is_listing(path: str) -> bool:
    """Return whether this segment holds the rows of a folder."""
    return path.rpartition("/")[2] == LISTING_NAME


def is_hidden_segment(path: str) -> bool:
    """Return whether listings hide this segment.

    A folder of hidden segments is empty.
    """
    return path.rpartition("/")[2] in _OWN_SEGMENTS


@functools.lru_cache(NAMES_KEPT_MAX)
def folder_of_header(header: str) -> str:
    """Return the chunk folder of the segment with this header file.

    Raises
    ------
    ValueError
        The file is not a header.
    """
    if not header.endswith(HEADER_SUFFIX):
        raise ValueError(f"{header!r} is not a header, whose name ends in {HEADER_SUFFIX!r}")
    return header[: -len(HEADER_SUFFIX)] + CHUNKS_SUFFIX


@functools.lru_cache(NAMES_KEPT_MAX)
def lock_path(header: str) -> str:
    """Return the lock file (on a disk) of the segment with this header file."""
    return f"{folder_of_header(header)}/{LOCK_NAME}"


def temporary_path(path: str) -> str:
    """Return a new name for a temporary file in the chunk folder to which a path (segment, header or chunk) belongs."""
    if path.endswith(HEADER_SUFFIX):
        folder = path[: -len(HEADER_SUFFIX)] + CHUNKS_SUFFIX
    elif path.endswith(CHUNKS_SUFFIX):
        folder = path
    elif not (folder := path.rpartition("/")[0]).endswith(CHUNKS_SUFFIX):
        folder = temporary_folder(path)
    return f"{folder}/{TEMPORARY_PREFIX}{os.urandom(16).hex()}"


def temporary_folder(path: str) -> str:
    """Return the chunk folder for temporary files of a plain file; of a shorter name, where its own has no room."""
    folder, slash, name = path.rpartition("/")
    return chunks_folder(folder + slash + name.encode(errors="replace")[:HEADED_BYTES_MAX].decode(errors="ignore"))


def export_path(target: str) -> str:
    """Return a new hidden name for the file of an export to `target`."""
    return f"{temporary_folder(target)}/{EXPORT_PREFIX}{uuid.uuid4().hex}"


def _random() -> str:
    return uuid.uuid4().hex[:12]


def new_chunk_name(start: int) -> str:
    """Return a new name for a chunk file: the start offset when written, then a random part."""
    return f"{start:0{OFFSET_DIGITS}d}-{_random()}"


def new_staged_name() -> str:
    """Return a new name for a staged chunk. The prefix marks it, because only collection may delete a staged chunk."""
    return f"{STAGED_PREFIX}{uuid.uuid4().hex}"


def new_tier_key() -> str:
    """Return a new key, which the names of a segment's chunks in a tier have."""
    return _random()


def new_tier_name(key: str, start: int) -> str:
    """Return a new name for a chunk file in a tier."""
    return f"{TIER_PREFIX}{key}-{new_chunk_name(start)}"


def new_shared_tier_name(key: str) -> str:
    """Return a new name for a chunk file in a tier that several entries name; only collection may delete it."""
    return f"{TIER_PREFIX}{key}-{SHARED}-{uuid.uuid4().hex}"


def renewed(name: str) -> str:
    """Return a new name of the same kind for a copy of a chunk."""
    if name.startswith(STAGED_PREFIX):
        return new_staged_name()
    if not name.startswith(TIER_PREFIX):
        return new_chunk_name(int(name.split("-")[0]))
    _, key, kind, _ = name.split("-")
    return new_shared_tier_name(key) if kind == SHARED else new_tier_name(key, int(kind))


def key_of(name: str) -> str | None:
    """Return the key in the name of a chunk in a tier; None for another name."""
    parts = name.split("-")
    return parts[1] if name.startswith(TIER_PREFIX) and len(parts) == 4 else None


def offset_of(name: str) -> int | None:
    """Return the offset that the writer of a chunk expected, by its name, or None."""
    digits, dash, rest = name.partition("-")
    if digits == TIER_PREFIX[:-1]:
        digits, dash, rest = rest.partition("-")[2].partition("-")
    is_offset = len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit() and dash and rest
    return int(digits) if is_offset else None


def new_index_name(start: int) -> str:
    """Return a new name for an index page: the segment offset at which it begins, then a random part."""
    return f"{INDEX_PREFIX}{start}-{_random()}"


def index_start(path: str) -> int | None:
    """Return the segment offset at which an index page began, by its name; None for another name."""
    parts = path.rpartition("/")[2].removeprefix(INDEX_PREFIX).split("-")
    return int(parts[0]) if len(parts) == 2 and parts[0].isascii() and parts[0].isdecimal() else None


def is_index(path: str) -> bool:
    """Return whether this is an index page."""
    return path.rpartition("/")[2].startswith(INDEX_PREFIX)


def is_staged(reference: str) -> bool:
    """Return whether only collection deletes a chunk: staged, or shared."""
    name = posixpath.basename(reference)
    return name.startswith(STAGED_PREFIX) or (name.startswith(TIER_PREFIX) and f"-{SHARED}-" in name)


@functools.lru_cache(NAMES_KEPT_MAX)
def has_odd_part(path: str) -> bool:
    """Return whether a part of a path is empty, ``.`` or ``..``; a URL's scheme and a leading slash do not count."""
    scheme, _, rest = path.partition("://")
    if rest and scheme and "/" not in scheme:  # some stores keep the URL as the path
        path = rest
    return not _ODD_PARTS.isdisjoint(path.removeprefix(_SHARE if path.startswith(_SHARE) else "/").split("/"))


def check_segment_name(path: str) -> str:
    """Return a segment's name, unless the name is empty, reserved or cannot stand in a header.

    Raises
    ------
    ValueError
        A segment cannot have this name; the message has the reason.
    """
    if (fault := fault_of(path)) is not None:
        raise ValueError(f"{path!r} is not a segment name: {fault}")
    return path


def fault_of(path: str) -> str | None:
    """Return why a segment cannot have this name, if it cannot."""
    if not path or path.endswith("/"):
        return "it is empty or ends in '/'"
    if is_reserved(path):
        return "'$header' at the end, '$chunks' anywhere and '$removed' are reserved, in capital letters, too"
    if has_odd_part(path):
        return (
            "a part between slashes is empty, '.' or '..', which other tools skip or resolve; nothing was written, "
            "leave that part out"
        )
    if not _CONTROLS.isdisjoint(path):
        return "it has a line break or a NUL character"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return None


@functools.lru_cache(NAMES_KEPT_MAX)
def check_relative_name(path: str) -> str:
    """Return the relative path of a segment from a mark or a pin.

    It climbs at its front only.

    Raises
    ------
    ValueError
        The path is malformed; the message has the reason.
    """
    rest = path
    while rest.startswith("../"):
        rest = rest[3:]
    if ".." in rest.split("/") or "//" in rest:
        raise ValueError(f"{path!r} is not a plain relative path")
    check_segment_name(rest)
    return path


@functools.lru_cache(NAMES_KEPT_MAX)
def check_new_name(path: str) -> str:
    """Check a name that a user gives to something new, as `check_segment_name` does.

    Raises
    ------
    ValueError
        A segment cannot have this name, or it is the name of a folder's rows.
    """
    if is_listing(path):
        raise ValueError(f"{path!r} is not a name for a segment: '$listing' is reserved; nothing was written")
    return check_segment_name(path)


def is_hidden(name: str) -> bool:
    """Return whether listings hide this base name: a header, a chunk folder, the mark of a removed folder.

    So do all names that differ from these in case only.
    """
    if "$" not in name:
        return False
    last = folded(name)
    return (
        last.endswith(HEADER_SUFFIX)
        or CHUNKS_SUFFIX in last
        or last == REMOVED_NAME
        or (last in _OWN_SEGMENTS and name not in _OWN_SEGMENTS)
    )


@functools.lru_cache(NAMES_KEPT_MAX)
def is_reserved(path: str) -> bool:
    """Return whether no segment, plain file or folder of a user can have this path.

    A name in other letters counts, too, on every store: some disks take ``x$HEADER`` for the header of ``x``.
    """
    return "$" in path and (is_hidden(path.rpartition("/")[2]) or CHUNKS_SUFFIX in folded(path))


def shown(path: str) -> str:
    """Return the users' name for the file at a path: the segment, for its header, its lock and its temporary files."""
    folder, _, name = path.rpartition("/")
    if folder.endswith(CHUNKS_SUFFIX) and (name == LOCK_NAME or name.startswith((PROBE_PREFIX, TEMPORARY_PREFIX))):
        return segment_of_folder(folder)
    if name == REMOVED_NAME:
        return folder
    return path.removesuffix(HEADER_SUFFIX)


def parent(path: str) -> str:
    """Return the folder that holds a path; at the top, "/" for an absolute path and "" for another ("bucket")."""
    folder, slash, _ = path.rpartition("/")
    return folder or slash


# -- references: how a header names a file ---------------------------------------------------------------------
#
# "name"               in the segment's own chunk folder
# "x$chunks/name"      in the chunk folder of a neighbour
# "../y/x$chunks/name" further away
#
# References are relative to the header's folder, so that a user can move a whole tree.


def check_reference(reference: str) -> None:
    """Refuse a reference that does not name a file in a chunk folder.

    Otherwise a header could make its reader open an arbitrary file.

    Raises
    ------
    ValueError
        The message is the rest of a sentence that begins with the reference.
    """
    folder, _, name = reference.rpartition("/")
    last = folded(name)
    if not name or name in (".", "..") or last == LOCK_NAME or last.endswith((HEADER_SUFFIX, CHUNKS_SUFFIX)):
        raise ValueError("names no chunk file")
    if "\0" in reference:
        raise ValueError("has a NUL character")
    if not folder:
        return
    if folder.startswith("/") or not folder.endswith(CHUNKS_SUFFIX):
        raise ValueError("refers outside a '$chunks' folder")
    parts = folder.split("/")
    climbing = True
    for index, part in enumerate(parts):
        climbing = climbing and part == ".."
        if part in ("", ".") or (part == ".." and not climbing):
            raise ValueError("is not a plain relative path")
        if CHUNKS_SUFFIX in part and index != len(parts) - 1:
            raise ValueError("refers inside a chunk folder")
    if parts[-1] == CHUNKS_SUFFIX:
        raise ValueError("names a chunk folder without a segment")


def resolve(segment: str, reference: str) -> str:
    """Return the backend path of a file that the header of `segment` refers to."""
    if "/" not in reference:
        return f"{chunks_folder(segment)}/{reference}"
    return climb(parent(segment), reference)


def locate(segment: str, reference: str, tier: str = "") -> str:
    """Return the path of a file that the header of `segment` refers to, perhaps in a tier."""
    path = resolve(segment, reference)
    return in_tier(tier, path) if tier else path


def in_tier(alias: str, path: str) -> str:
    """Return the path of the file or folder in a tier that is parallel to a path of the hot store."""
    return f"{TIER_SCHEME}{alias}/{path}"


def split_tier(path: str) -> tuple[str, str]:
    """Return the alias of a path's tier ("" for the hot store), and the parallel path in the hot store."""
    if not path.startswith(TIER_SCHEME):
        return "", path
    alias, _, rest = path[len(TIER_SCHEME) :].partition("/")
    return alias, rest


def climb(folder: str, relative: str) -> str:
    """Apply a relative path to a folder.

    Raises
    ------
    CorruptHeaderError
        The path climbs above the root.
    """
    found = find(folder, relative)
    if found is None:
        raise CorruptHeaderError(f"{folder}: the reference {relative!r} from here climbs above the root of the store")
    return found


def find(folder: str, relative: str) -> str | None:
    """Climb as `climb` does, but return None above the root, as after another tool has moved a tree towards it."""
    while relative.startswith("../"):
        if folder in ("", "/"):
            return None
        folder, relative = parent(folder), relative[3:]
    return folder + relative if folder in ("", "/") else f"{folder}/{relative}"


def relate(segment: str, path: str) -> str:
    """Return the reference of the header of `segment` to `path`; inverse of `resolve`."""
    folder, _, name = path.rpartition("/")
    if folder == chunks_folder(segment):
        return name
    return relative(parent(segment), path)


def relative(folder: str, path: str) -> str:
    """Return `path` as seen from `folder`."""
    here = folder.rstrip("/").split("/") if folder else []
    there = path.split("/")
    common = 0
    while common < len(here) and common < len(there) - 1 and here[common] == there[common]:
        common += 1
    return "/".join([".."] * (len(here) - common) + there[common:])
