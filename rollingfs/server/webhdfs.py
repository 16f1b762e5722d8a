"""WebHDFS: what Hadoop's own client, Spark, Trino, ``hdfs dfs`` and fsspec's client send.

No answer has a Content-Type: the client of Hadoop 3.5 fails at one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from rollingfs.server.problems import Refused, status_of, text_of
from rollingfs.server.segments import streamed
from rollingfs.server.store import Store, etag

PREFIX = "/webhdfs/v1"
BLOCK_BYTES = 128 * 1024 * 1024
PAGE = 1000
SMALL_BYTES_MAX = 1024 * 1024
"""A rename that must not replace anything copies a file up to this size: that is one commit."""
EMPTY_TOKEN = "AAAAAA"
JAVA = {
    400: "java.lang.IllegalArgumentException",
    **dict.fromkeys((401, 403), "org.apache.hadoop.security.AccessControlException"),
    404: "java.io.FileNotFoundException",
    501: "java.lang.UnsupportedOperationException",
}
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


class Call:
    """A request of WebHDFS."""

    def __init__(self, request: Request, store: Store) -> None:
        self.request, self.store, self.fs = request, store, store.fs
        raw = request.scope["raw_path"].partition(b"?")[0].decode("latin-1")
        self.path = unquote(raw.removeprefix(PREFIX), errors="surrogateescape").strip("/")
        self.query = {name.lower(): value for name, value in request.query_params.items()}
        self.op = self.query.get("op", "").upper()
        self.place = self.checked(self.path)

    def checked(self, path: str) -> str:
        """The filesystem's path for one that the client may use."""
        self.request.state.access.check(path, self.request.method != "GET")
        return self.store.place(path)

    def is_on(self, name: str) -> bool:
        """Whether a switch is given."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A number of bytes."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{name} is {text!r}: it must be a number of bytes")
        return int(text[:19])

    def status(self, info: dict[str, Any], suffix: str = "") -> dict[str, Any]:
        """A FileStatus."""
        at_ms, owner = int(1000 * info.get("mtime", 0)), self.query.get("user.name", "rollingfs")
        found = {"pathSuffix": suffix, "length": info["size"], "modificationTime": at_ms, "accessTime": at_ms}
        found |= {"owner": owner, "group": "rollingfs", "fileId": 0, "childrenNum": 0, "storagePolicy": 0}
        if info["type"] == "directory":
            return {**found, "type": "DIRECTORY", "permission": "755", "blockSize": 0, "replication": 0}
        return {**found, "type": "FILE", "permission": "644", "blockSize": BLOCK_BYTES, "replication": 1}

    async def info(self) -> dict[str, Any]:
        """What fsspec knows of the path; the root is always a folder."""
        if not self.path:
            return {"type": "directory", "size": 0}
        found: dict[str, Any] = await self.fs._info(self.place)
        return found

    async def listed(self) -> list[dict[str, Any]]:
        """The FileStatus of each thing in a folder, or of the file itself."""
        info = await self.info()
        if info["type"] != "directory":
            return [self.status(info)]
        found = await self.store.listed(self.place, on_error="raise")
        return sorted((self.status(one, one["name"].rpartition("/")[2]) for one in found), key=_suffix)


def _suffix(status: dict[str, Any]) -> str:
    return str(status["pathSuffix"])


def answer(value: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer, or one without a body."""
    return Response(b"" if value is None else json.dumps(value).encode(), status, headers)


async def handle(store: Store, request: Request) -> Response:
    """Any operation."""
    call = Call(request, store)
    found = OPS.get((request.method, call.op))
    if found is None:
        raise NotImplementedError(f"{request.method} {call.op or 'without op'} is not supported here")
    if call.op in ("OPEN", "CREATE", "APPEND") and not call.is_on("data"):
        return _redirect(call)
    return await found(call)


def remote_exception(error: Exception, root: str, *, changes: bool = False) -> Response:
    """An error as Hadoop's clients raise it again."""
    status = status_of(error)
    name = EXISTS if isinstance(error, FileExistsError | IsADirectoryError) else JAVA.get(status, "java.io.IOException")
    said = {"exception": name.rpartition(".")[2], "javaClassName": name, "message": text_of(error, root)}
    shown = 400 if status == 501 else 403 if status in (409, 410, 412, 416, 422, 423) else status
    return answer({"RemoteException": said}, shown, error.headers if isinstance(error, Refused) else None)


def _redirect(call: Call) -> Response:
    """Send the client to where the data go, which is here."""
    url = str(call.request.url.remove_query_params("noredirect").include_query_params(data="true"))
    return answer({"Location": url}) if call.is_on("noredirect") else answer(None, 307, {"Location": url})


# -- reading ---------------------------------------------------------------------------------------------------


async def _open(call: Call) -> Response:
    view = await call.store.look(call.path)
    first = view.start + call.number("offset", 0)
    last = min(view.length, first + call.number("length", view.size))
    if first > view.length:
        raise Refused(416, f"the offset lies beyond the end; {view.extent}")
    return await streamed(call.store.pieces(view, first, last), 200, {"Content-Length": str(last - first)}, None)


async def _getfilestatus(call: Call) -> Response:
    return answer({"FileStatus": call.status(await call.info())})


async def _liststatus(call: Call) -> Response:
    return answer({"FileStatuses": {"FileStatus": await call.listed()}})


async def _liststatus_batch(call: Call) -> Response:
    after = call.query.get("startafter", "")
    found = [one for one in await call.listed() if not after or _suffix(one) > after]
    listing = {"partialListing": {"FileStatuses": {"FileStatus": found[:PAGE]}}}
    return answer({"DirectoryListing": {**listing, "remainingEntries": max(0, len(found) - PAGE)}})


async def _getcontentsummary(call: Call) -> Response:
    info = await call.info()
    found = [info] if info["type"] == "file" else []
    if not found:
        below: Any = await call.fs._find(call.place, withdirs=True, detail=True)
        found = list(below.values())
    sizes = [one["size"] or 0 for one in found if one["type"] == "file"]
    summary = {"length": sum(sizes), "fileCount": len(sizes), "spaceConsumed": sum(sizes), "quota": -1}
    folders = 0 if info["type"] == "file" else max(1, len(found) - len(sizes))
    return answer({"ContentSummary": {**summary, "directoryCount": folders, "spaceQuota": -1}})


async def _getfilechecksum(call: Call) -> Response:
    """What changes whenever the content may have: an ETag, in the form of Hadoop's MD5 of CRCs."""
    digest = hashlib.md5(etag(await call.store.look(call.path)).encode(), usedforsecurity=False).hexdigest()
    fields = {"algorithm": "MD5-of-1MD5-of-1CRC32C", "bytes": f"{1:08x}{1:016x}{digest}", "length": 28}
    return answer({"FileChecksum": fields})


async def _getfileblocklocations(call: Call) -> Response:
    info = await call.info()
    size = info["size"]
    if call.op == "GETFILEBLOCKLOCATIONS":
        block: dict[str, Any] = {"hosts": ["localhost"], "names": ["localhost:0"], "offset": 0, "length": size}
        block |= {"cachedHosts": [], "topologyPaths": [], "storageTypes": ["DISK"], "corrupt": False}
        return answer({"BlockLocations": {"BlockLocation": [block] if size else []}})
    block = {"block": {"blockPoolId": "", "blockId": 0, "generationStamp": 0, "numBytes": size}, "startOffset": 0}
    block |= {"isCorrupt": False, "locations": [], "cachedLocations": [], "blockToken": {"urlString": EMPTY_TOKEN}}
    found = {"fileLength": size, "isUnderConstruction": False, "isLastBlockComplete": True}
    blocks = {"locatedBlocks": [block] if size else [], "lastLocatedBlock": block if size else None}
    return answer({"LocatedBlocks": {**found, **blocks}})


async def _gethomedirectory(call: Call) -> Response:
    home = f"/user/{quote(call.query.get('user.name', 'rollingfs'), safe='')}"
    return answer({"Path": f"{home}/.Trash" if call.op == "GETTRASHROOT" else home})


async def _getserverdefaults(call: Call) -> Response:
    found = {"blockSize": BLOCK_BYTES, "bytesPerChecksum": 512, "writePacketSize": 65536, "replication": 1}
    found |= {"fileBufferSize": 4096, "checksumType": 2, "trashInterval": 0}
    return answer({"FsServerDefaults": {**found, "encryptDataTransfer": False, "keyProviderUri": ""}})


async def _getdelegationtoken(call: Call) -> Response:
    return answer({"Token": None})


async def _checked(call: Call) -> Response:
    """What changes nothing here: dates, owners and permissions are not kept."""
    await call.info()
    return answer({"boolean": True} if call.op == "SETREPLICATION" else None)


# -- changing --------------------------------------------------------------------------------------------------


async def _create(call: Call) -> Response:
    overwrites = call.is_on("overwrite") or "OVERWRITE" in call.query.get("createflag", "").upper()
    await call.store.replace(call.path, call.request.stream(), create_only=not overwrites)
    return answer(None, 201, {"Location": f"webhdfs://{call.request.url.netloc}/{quote(call.path)}"})


async def _append(call: Call) -> Response:
    await call.store.append(call.path, call.request.stream())
    return answer()


async def _concat(call: Call) -> Response:
    sources = [call.checked(one.strip("/")) for one in call.query.get("sources", "").split(",")]
    for source in sources:
        await call.fs._seal(source)  # a file of HDFS that is closed takes no more bytes either
    await call.fs._concat(call.place, sources)
    return answer()


async def _rename(call: Call) -> Response:
    """Rename as HDFS does: without options it says whether it did, with options it raises."""
    path = call.query.get("destination", "").strip("/")
    target, options = call.checked(path), call.query.get("renameoptions")
    source = await _info_or_none(call, call.place)
    found = await _info_or_none(call, target)
    if options is None:
        if found is not None and found["type"] == "directory":
            path = f"{path}/{call.path.rpartition('/')[2]}".strip("/")
            target = call.checked(path)
            found = await _info_or_none(call, target)
        if source is None or found is not None or f"{path}/".startswith(f"{call.path}/"):
            return answer({"boolean": False})
        await call.fs._mv(call.place, target, recursive=True)
        return answer({"boolean": True})
    if source is None:
        raise FileNotFoundError(2, "there is nothing to rename", call.place)
    if found is not None and "OVERWRITE" not in options.upper():
        raise FileExistsError(17, "something has the new name; nothing was changed", target)
    if found is None and source["type"] == "file" and source["size"] <= SMALL_BYTES_MAX:
        await call.fs._pipe_file(target, await call.fs._cat_file(call.place), mode="create")
        await call.fs._rm_file(call.place)
    elif source["type"] == "file":
        await call.fs._mv_file(call.place, target)
    else:
        await call.fs._mv(call.place, target, recursive=True)
    return answer()


async def _info_or_none(call: Call, place: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await call.fs._info(place)
    except FileNotFoundError:
        return None if place != (call.store.root or "/") else {"type": "directory", "size": 0}
    return found


async def _delete(call: Call) -> Response:
    if not call.path:
        raise ValueError("the root cannot be deleted")
    info = await _info_or_none(call, call.place)
    if info is None:
        return answer({"boolean": False})
    if info["type"] == "file":
        await call.fs._rm_file(call.place)
    elif call.is_on("recursive") or not await call.store.listed(call.place):
        await call.fs._rm(call.place, recursive=True)
    else:
        raise OSError(39, "the folder is not empty; nothing was deleted", call.place)
    return answer({"boolean": True})


async def _mkdirs(call: Call) -> Response:
    await call.fs._makedirs(call.place, exist_ok=True)
    return answer({"boolean": True})


async def _truncate(call: Call) -> Response:
    raise NotImplementedError("TRUNCATE cuts the end of a file, and a segment is cut at its head only")


METHODS = {
    "GET": "OPEN GETFILESTATUS LISTSTATUS LISTSTATUS_BATCH GETCONTENTSUMMARY GETFILECHECKSUM GETSERVERDEFAULTS "
    "GETFILELINKSTATUS GETFILEBLOCKLOCATIONS GET_BLOCK_LOCATIONS GETHOMEDIRECTORY GETTRASHROOT GETDELEGATIONTOKEN "
    "CHECKACCESS",
    "PUT": "CREATE MKDIRS RENAME SETTIMES SETOWNER SETPERMISSION SETREPLICATION",
    "POST": "APPEND CONCAT TRUNCATE",
    "DELETE": "DELETE",
}
ALIKE = {
    **dict.fromkeys(("SETTIMES", "SETOWNER", "SETPERMISSION", "SETREPLICATION", "CHECKACCESS"), _checked),
    **{"GETFILELINKSTATUS": _getfilestatus, "GET_BLOCK_LOCATIONS": _getfileblocklocations},
    **{"GETTRASHROOT": _gethomedirectory},
}
OPS: dict[tuple[str, str], Callable[[Call], Awaitable[Response]]] = {
    (method, op): ALIKE.get(op) or globals()[f"_{op.lower()}"] for method, ops in METHODS.items() for op in ops.split()
}
"""The function of each operation; most have its name."""
