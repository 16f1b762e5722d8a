"""The verbs without a change, as coroutines of the core: listings and facts about paths."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from fsspec.utils import stringify_path

from rollingfs.folders import listing
from rollingfs.folders.info import Info
from rollingfs.folders.listing import RAISE, REPORT, Wanted, check_on_error
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.fs.core import Core
from rollingfs.fs.upkeep_verbs import look_at, policies_at

if TYPE_CHECKING:
    from rollingfs.stream.ledger import Policies
    from rollingfs.stream.states import SegmentState

logger = logging.getLogger("rollingfs")


# -- listings ------------------------------------------------------------------------------------------


async def info(core: Core, path: str, on_error: str = RAISE, refresh: bool = False, **kwargs: Any) -> Info:
    """Return the info of a path, in the form of fsspec.

    Parameters
    ----------
    on_error
        For a segment whose header cannot be read: ``"raise"``, or ``"report"`` as `ls` does.
    refresh
        Ask the store also within the cache time of headers.

    Returns
    -------
    dict
        ``name``, ``size`` (bytes retained; on a filesystem that is `absolute`, the end offset), ``type`` (``"file"``
        or ``"directory"``); for files also ``start_offset`` (of the first retained byte), ``length`` (the end offset),
        ``sealed``, ``chunks`` (their count), ``version``, ``created`` and ``mtime`` (seconds since 1970), and ``ETag``,
        which changes with the content.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    CorruptHeaderError
        It is a segment whose header is damaged or too new.
    """
    found = check_on_error(on_error)
    there = await listing.info(core.client, core.strip(path), fresh=bool(refresh), on_error=found)
    return _placed([there])[0] if core.absolute else there


def _placed(infos: Iterable[Info]) -> list[Info]:
    """Return infos in which the size of a file is its end offset."""
    return [{**info, "size": info.get("length", info["size"])} for info in infos]


async def exists(core: Core, path: str, **kwargs: Any) -> bool:
    """Return whether there is a segment, a plain file or a folder of this name now."""
    return await listing.is_there(core.client, core.strip(path))


async def isfile(core: Core, path: str) -> bool:
    """Return whether there is a segment or a plain file of this name."""
    return await _type(core, path) == "file"


async def isdir(core: Core, path: str) -> bool:
    """Return whether there is a folder of this name (and no file)."""
    return await _type(core, path) == "directory"


async def _type(core: Core, path: str) -> str | None:
    try:
        kind: str = (await listing.info(core.client, core.strip(path), fresh=True, on_error=REPORT))["type"]
    except FileNotFoundError:
        return None
    return kind


async def ls(
    core: Core, path: str, detail: bool = True, on_error: str = REPORT, **kwargs: Any
) -> list[Info] | list[str]:
    """Return the entries of a folder, as of the call: segments, plain files and folders, sorted by name.

    Parameters
    ----------
    detail
        Return infos rather than names.
    on_error
        For segments that cannot be read (the header is damaged, too new, or not permitted): ``"report"`` lists
        them with ``size`` None and their ``error`` as text, ``"raise"`` raises the first error. A read of such a
        segment raises the error in any case.

    Raises
    ------
    FileNotFoundError
        No file or folder has this name.
    """
    infos = await listing.ls(core.client, core.strip(path), check_on_error(on_error))
    if core.absolute:
        infos = _placed(infos)
    return infos if detail else [info["name"] for info in infos]


async def find(
    core: Core,
    path: str,
    maxdepth: int | None = None,
    withdirs: bool = False,
    detail: bool = False,
    on_error: str = REPORT,
    prefix: str = "",
    *,
    wanted: Wanted | None = None,
    **kwargs: Any,
) -> dict[str, Info] | list[str]:
    """Return everything below a path, as of the call: segments and plain files, and folders on request.

    Parameters
    ----------
    maxdepth
        Maximum levels of folders to look into; None for all.
    withdirs
        Return folders as well.
    detail
        Return infos by name rather than names.
    on_error
        The same as in `ls`; a folder that may not be listed is reported, too.
    prefix
        Return only what begins so, counted from `path`.
    wanted
        Return only files for whose name this is true, and perhaps other folders; headers of other files are not read.
    """
    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
    below, raises = core.strip(path), check_on_error(on_error)
    infos = await listing.find(core.client, below, maxdepth, with_folders=withdirs, on_error=raises, wanted=wanted)
    if prefix:
        start = f"{below.rstrip('/')}/{prefix}" if below else prefix
        infos = {name: info for name, info in infos.items() if name.startswith(start)}
    if core.absolute:
        infos = dict(zip(infos, _placed(infos.values()), strict=True))
    found = _spelled(infos, stringify_path(path), below)
    return found if detail else list(found)


async def streams(core: Core, path: str) -> list[str]:
    """Return the folders at or below a path that have the memory of a stream: a retention, cuts or subscribers; sorted.

    It lists every folder, and reads the header of each memory.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    PermissionError
        A folder cannot be listed.
    """
    from rollingfs.folders.collect_tree import tree_at

    found = await tree_at(core.client, core.strip(path), RAISE)
    ledgers = [one for one in sorted(found.segments) if names.is_ledger(one)]
    loaded = await core.client.contents.gather([partial(core.client.headers.load, one) for one in ledgers])
    return [names.parent(one) for one, ledger in zip(ledgers, loaded, strict=True) if ledger.live]


async def du(
    core: Core,
    path: str,
    total: bool = True,
    maxdepth: int | None = None,
    withdirs: bool = False,
    on_error: str = REPORT,
    **kwargs: Any,
) -> int | dict[str, int]:
    """Return the number of retained bytes below a path: their sum, or by name.

    Parameters
    ----------
    on_error
        The same as in `ls`; a reported path counts as 0 bytes, and a warning in the log names it.
    """
    found = await find(core, path, maxdepth, withdirs, detail=True, on_error=on_error)
    assert isinstance(found, dict)
    for name, info in found.items():
        if "error" in info:
            logger.warning("%s counts as 0 bytes, because it cannot be read: %s", name, info["error"])
    sizes = {name: int(info["size"] or 0) for name, info in found.items()}
    if core.absolute:
        sizes = {name: size - found[name].get("start_offset", 0) for name, size in sizes.items()}
    return sum(sizes.values()) if total else sizes


async def states(
    core: Core,
    path: str,
    maxdepth: int | None = None,
    after_bytes: int | str | None = None,
    after_age: float | str | None = None,
) -> list[SegmentState]:
    """Return the state of each segment and plain file at or below a path, as of the call, sorted by path.

    It lists every folder, and reads the headers that have changed since this filesystem saw them. Segments that
    cannot be read is reported in its place.

    Parameters
    ----------
    maxdepth
        Maximum levels of folders to look into; None for all.
    after_bytes, after_age
        Chunks that an `offload` would move, which count as lag; by default all, if there are tiers.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    """
    from rollingfs.segment.files.rewrite_plan import Chosen
    from rollingfs.stream.states import states_below

    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
    chosen = Chosen.parse(None, after_bytes, after_age)
    return await states_below(core.ledgers, core.strip(path), maxdepth, chosen)


async def get_policy(core: Core, path: str) -> Policies:
    """Return the policies of a segment or of a folder: the resolved policy, and each level's.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    """
    path, client = core.strip(path), core.client
    view, default = await look_at(client, path), client.inherited.default
    header = None if view is None else view.header or Header("", 1, policy=default)
    return await policies_at(client, path, header)


async def created(core: Core, path: str) -> datetime:
    """Return when a file was created."""
    return await _date(core, path, "created")


async def modified(core: Core, path: str) -> datetime:
    """Return when a file was last changed."""
    return await _date(core, path, "mtime")


async def _date(core: Core, path: str, key: str) -> datetime:
    found = await info(core, path)
    if key not in found:
        raise IsADirectoryError(21, "A folder has no date", found["name"])
    return datetime.fromtimestamp(found[key], UTC)


def _spelled(found: dict[str, Info], given: str, path: str) -> dict[str, Info]:
    """Return the paths found below an absolute path, with names that begin as the caller has written it.

    pyarrow refuses an answer for ``/a/../b`` that begins with ``/b``.
    """
    given = given.rstrip("/")
    if given == path or not (given.startswith("/") and path.startswith("/") and names.has_odd_part(given)):
        return found
    spelled = {given + name[len(path) :]: info for name, info in found.items()}
    return {name: info | {"name": name} for name, info in spelled.items()}
