"""The plain file that a header hides: which one it names, and its deletion once it is dead."""

from __future__ import annotations

from rollingfs.backend.contract import FileInfo
from rollingfs.commit.loop import Committer
from rollingfs.format.header import Adopted, Header

CLOCKS_APART_MS_MAX = 24 * 3600 * 1000
"""Of files older than this, by the client's clock, the store's clock is not asked."""


def modified_ms(info: FileInfo) -> int:
    """A file's date as headers write it: milliseconds since 1970."""
    return round(info.modified * 1000)


def shadow(plain: FileInfo | None) -> Adopted | None:
    """The line by which a header hides this plain file, and no other."""
    return Adopted(plain.token or "", modified_ms(plain)) if plain is not None else None


def is_shadowed(header: Header | None, info: FileInfo) -> bool:
    """Whether a plain file is hidden by a header: by any live one, by a tombstone only if it names this file."""
    if header is None:
        return False
    return not header.deleted or names_file(header, info)


def names_file(header: Header, info: FileInfo) -> bool:
    """Whether the header says that this plain file is the segment's, because it was adopted or overwritten.

    Token *and* date: on S3 the token is a hash of the bytes, so another tool's file of the same bytes has the same.
    """
    return header.adopted is not None and header.adopted == shadow(info)


async def let_pass(committer: Committer, path: str, adopted: Adopted | None) -> None:
    """Wait until the store gives new files another date than that of a plain file which a tombstone is to name.

    Else one of the same bytes and the same second that comes after the tombstone would be hidden, and collected.
    """
    step_s = committer.backend.date_step_s
    if adopted is None or not step_s or committer.now_ms() - adopted.modified_ms > CLOCKS_APART_MS_MAX:
        return
    while (left_s := adopted.modified_ms / 1000 + step_s - await committer.backend.now(path)) > 0:
        await committer.runtime.sleep(min(left_s, step_s))


async def delete_shadowed(committer: Committer, path: str, adopted: Adopted | None) -> bool:
    """Delete the plain file that a header names, where the store can, and only if it still is that file.

    The date is looked at right before, because a store compares nothing but the token. What remains is the time of
    one request, within which another tool would have to write the very same bytes.
    """
    if adopted is None or not (await committer.abilities(path)).delete_if:
        return False
    try:
        info = await committer.backend.stat(path)
    except FileNotFoundError:
        return False
    return adopted == shadow(info) and await committer.backend.delete_if(path, adopted.token)
