"""The refusals that adapters share, with the same text on every store."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from rollingfs.errors import ConflictError, NoBucketError, UnflushedError, UnsafeBackendError, worded
from rollingfs.format import names

_TAKEN = "another writer took this name; nothing was written: overwrite it or choose another name"
no_file = partial(FileNotFoundError, errno.ENOENT, "no such file")
no_folder = partial(FileNotFoundError, errno.ENOENT, "no such folder")
not_a_folder = partial(NotADirectoryError, errno.ENOTDIR, "this is a file, not a folder")
name_taken = partial(FileExistsError, errno.EEXIST, _TAKEN)
not_empty = partial(OSError, errno.ENOTEMPTY, "the folder is not empty")
"""Errors for a path."""


def no_bucket(path: str, kind: str, remedy: str) -> NoBucketError:
    """Return the error for a file whose bucket or container, as `kind` calls it, does not exist."""
    bucket = path.partition("/")[0]
    text = f"the {kind} {bucket!r} does not exist, so nothing was read or written: {remedy}"
    return NoBucketError(errno.ENOENT, text, names.shown(path))


def linked(path: str) -> PermissionError:
    """Return the error for a symbolic link where a header, a chunk folder or a lock should be."""
    why = (
        f"{path.rpartition('/')[2]!r} is a symbolic link, and rollingfs changes, deletes and locks nothing through a "
        "link in this place; nothing was written: put what it leads to in its place, or remove it"
    )
    return PermissionError(errno.EPERM, why, path)


def no_links(path: str, error: OSError) -> OSError:
    """Return the error for a filesystem without hard links.

    Without them, two writers could make the same segment.
    """
    why = (
        f"this filesystem makes no hard links ({error.strerror}), and only a link gives a file a name that nobody else "
        "has taken in the same moment"
    )
    return OSError(errno.ENOTSUP, why, path)


def upload_closed(path: str) -> ValueError:
    return ValueError(f"the upload of {path!r} is finished or aborted; it takes no more bytes")


def changed(path: str, token: str, found: str | None) -> ConflictError:
    """Return the error for a file with the token `found`, not `token`.

    None stands for a file that is gone.
    """
    return ConflictError(f"{path!r} should have token {token}; {f'found {found}' if found else 'the file is gone'}")


def unlocked(path: str) -> ConflictError:
    """Return the error for a header whose lock another program has taken away."""
    return ConflictError(
        f"{path!r}: its lock was deleted, or another folder put in the place of its own; nothing was written"
    )


def unflushed(path: str, error: OSError) -> UnflushedError:
    """Return the error for a record whose flush failed."""
    why = f"the record can be read, but its flush failed ({error}), so a loss of power may take it back"
    return UnflushedError(error.errno, why, path)


def check_token(path: str, found: str | None, token: str) -> None:
    """Refuse a file that has another token than `token`, or is gone.

    Raises
    ------
    ConflictError
        The tokens differ.
    """
    if found != token:
        raise changed(path, token, found)


def export_ended(path: str) -> ConflictError:
    """Return the error for an unfinished file that somebody removed, as the next export to its name does."""
    return ConflictError(
        f"{names.shown(path)}: another export to this name, or a collection, removed what this one had written; "
        "nothing is left of it, export it again"
    )


def with_product(name: str, product: str) -> str:
    """Return the name of a store, with its product where that is known."""
    return f"{name} ({product})" if product else name


def not_atomic(path: str) -> UnsafeBackendError:
    """Return the error for a store without conditional writes or `single_writer`."""
    return UnsafeBackendError(
        f"{names.shown(path)}: this store cannot replace a file atomically, so two writers could lose each other's "
        f"data; nothing was written; if nobody else ever writes here, say so with {worded(single_writer=True)}"
    )


def read_only(path: str, kind: str) -> UnsafeBackendError:
    """Return the error for a filesystem through which no file can be deleted, so that segments could not live there."""
    return UnsafeBackendError(
        f"{names.shown(path)}: {kind} cannot delete a file, so segments can be read through it, but not written; "
        "nothing was written; write through the filesystem of the store itself"
    )


def delete_each(paths: Sequence[str], delete: Callable[[str], None]) -> None:
    """Delete files in order, as many as possible; a missing file is not an error.

    Raises
    ------
    OSError
        Some files could not be deleted; the message names the first.
    """
    failed: list[tuple[str, OSError]] = []
    for path in paths:
        try:
            delete(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # else there is no such file
                failed.append((path, error))
    if failed:
        path, first = failed[0]
        message = f"{len(failed)} of {len(paths)} files could not be deleted: {first.strerror or first}"
        raise OSError(first.errno, message, path) from first
