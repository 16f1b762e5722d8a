"""WebHDFS, for Hadoop's own client, Spark, Trino, ``hdfs dfs`` and fsspec's client.

No answer has a Content-Type: the client of Hadoop 3.5 fails at it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rollingfs.folders.folders import delete, keep, remove_empty
from rollingfs.folders.moving import move
from rollingfs.format.crc import crc32c
from rollingfs.segment.verbs.concat import concat
from rollingfs.server.operations import Call, query_of
from rollingfs.server.problems import headers_of, status_of, text_of
from rollingfs.server.segment_routes import streamed
from rollingfs.server.served_store import ServedStore
from rollingfs.server.tails import Watches

PREFIX = "/webhdfs/v1"
BLOCK_BYTES, CRC_BYTES = 128 * 1024 * 1024, 512
PAGE = 1000
JAVA = {
    400: "java.lang.IllegalArgumentException",
    **dict.fromkeys((401, 403), "org.apache.hadoop.security.AccessControlException"),
    404: "java.io.FileNotFoundException",
    501: "java.lang.UnsupportedOperationException",
}
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


class Hdfs(Call):
    """A request of WebHDFS."""

    def __init__(self, request: Request, store: ServedStore, watches: Watches) -> None:
        path = unquote(request.path_params["path"], errors="surrogateescape").strip("/")
        super().__init__(request, store, watches, request.state.access, path, request.method != "GET")
        self.fs, self.at = store.fs, self.place()
        self.query = {name.lower(): value for name, value in query_of(request).items()}
        self.op = self.query.get("op", "").upper()

    def is_on(self, name: str) -> bool:
        """Return whether a switch is given."""
        return self.query.get(name, "").lower() == "true"

    def status(self, info: dict[str, Any], suffix: str = "") -> dict[str, Any]:
        """Return a FileStatus."""
        at_ms, owner = int(1000 * info.get("mtime", 0)), self.query.get("user.name", "rollingfs")
        found = {"pathSuffix": suffix, "length": info["size"], "modificationTime": at_ms, "accessTime": at_ms}
        found |= {"owner": owner, "group": "rollingfs", "fileId": 0, "childrenNum": 0, "storagePolicy": 0}
        if info["type"] == "directory":
            return {**found, "type": "DIRECTORY", "permission": "755", "blockSize": 0, "replication": 0}
        return {**found, "type": "FILE", "permission": "644", "blockSize": BLOCK_BYTES, "replication": 1}

    async def info(self) -> dict[str, Any]:
        """Return fsspec's info of the request's path; the root is always a folder.

        Raises
        ------
        FileNotFoundError
            The path does not exist.
        """
        return cast(Any, await self.fs._info(self.at)) if self.path else {"type": "directory", "size": 0}

    async def listed(self) -> list[dict[str, Any]]:
        """Return the FileStatus of each thing in a folder, or of the file itself, sorted by name."""
        found = await self.store.listed(self.at, on_error="raise")
        return [self.status(one, one["name"].removeprefix(self.at).strip("/")) for one in found]


def answer(value: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer, or an answer without a body."""
    return Response(b"" if value is None else json.dumps(value).encode(), status, headers)


async def handle(store: ServedStore, watches: Watches, request: Request) -> Response:
    """Answer an operation."""
    call = Hdfs(request, store, watches)
    found = OPS.get((request.method, call.op))
    if found is None:
        raise NotImplementedError(f"{request.method} {call.op or 'without op'} is not supported here")
    if call.op not in ("OPEN", "CREATE", "APPEND") or call.is_on("data"):
        return await found(call)
    # the client is sent to where the data go, which is here
    url = str(request.url.remove_query_params("noredirect").include_query_params(data="true"))
    return answer({"Location": url}) if call.is_on("noredirect") else answer(None, 307, {"Location": url})


def remote_exception(error: Exception, root: str, *, changes: bool = False) -> Response:
    """Return an error as Hadoop's clients raise it again."""
    status = status_of(error)
    name = EXISTS if isinstance(error, FileExistsError | IsADirectoryError) else JAVA.get(status, "java.io.IOException")
    said = {"exception": name.rpartition(".")[2], "javaClassName": name, "message": text_of(error, root)}
    shown = 400 if status == 501 else 403 if status in (409, 410, 412, 416, 422, 423) else status
    return answer({"RemoteException": said}, shown, headers_of(error))


# -- reading ---------------------------------------------------------------------------------------------------


async def _open(call: Hdfs) -> Response:
    view = await call.store.look(call.at)
    offset, length = int(call.query.get("offset") or 0), int(call.query.get("length") or view.size)
    if length < 0:
        raise ValueError(f"length: {length} is negative")
    first = view.start + offset
    last = min(view.length, first + length)
    if not view.start <= first <= view.length:
        raise HTTPException(416, f"the offset lies outside of the file; {view.extent}")
    return await streamed(call.store.pieces(view, first, last), 200, {"Content-Length": str(last - first)}, None)


async def _getfilestatus(call: Hdfs) -> Response:
    return answer({"FileStatus": call.status(await call.info())})


async def _liststatus(call: Hdfs) -> Response:
    return answer({"FileStatuses": {"FileStatus": await call.listed()}})


async def _liststatus_batch(call: Hdfs) -> Response:
    after = call.query.get("startafter", "")
    found = [one for one in await call.listed() if not after or one["pathSuffix"] > after]
    listing = {"partialListing": {"FileStatuses": {"FileStatus": found[:PAGE]}}}
    return answer({"DirectoryListing": {**listing, "remainingEntries": max(0, len(found) - PAGE)}})


async def _getcontentsummary(call: Hdfs) -> Response:
    info = await call.info()
    found: Any = await call.fs._find(call.at, withdirs=True, detail=True)
    sizes = [one["size"] or 0 for one in found.values() if one["type"] == "file"]
    summary = {"length": sum(sizes), "fileCount": len(sizes), "spaceConsumed": sum(sizes), "quota": -1}
    folders = len(found) - len(sizes) or int(info["type"] == "directory")
    return answer({"ContentSummary": {**summary, "directoryCount": folders, "spaceQuota": -1}})


async def _getfilechecksum(call: Hdfs) -> Response:
    """Return the checksum of HDFS for blocks of 128 MiB.

    It is the MD5 of each block's MD5 of its CRCs.
    """
    view = await call.store.look(call.at)
    blocks, starts = hashlib.md5(usedforsecurity=False), range(view.start, view.length, BLOCK_BYTES)
    for start in starts:
        crcs = hashlib.md5(usedforsecurity=False)
        async for piece in call.store.pieces(view, start, min(start + BLOCK_BYTES, view.length)):
            for at in range(0, len(piece), CRC_BYTES):
                crcs.update(crc32c(piece[at : at + CRC_BYTES]).to_bytes(4))
        blocks.update(crcs.digest())
    count = BLOCK_BYTES // CRC_BYTES if len(starts) > 1 else 0
    fields = {"algorithm": f"MD5-of-{count}MD5-of-{CRC_BYTES}CRC32C", "length": 28}
    return answer({"FileChecksum": {**fields, "bytes": f"{CRC_BYTES:08x}{count:016x}{blocks.hexdigest()}"}})


async def _getfileblocklocations(call: Hdfs) -> Response:
    size = (await call.info())["size"]
    block: dict[str, Any] = {"hosts": ["localhost"], "names": ["localhost:0"], "offset": 0, "length": size}
    block |= {"cachedHosts": [], "topologyPaths": [], "storageTypes": ["DISK"], "corrupt": False}
    return answer({"BlockLocations": {"BlockLocation": [block] if size else []}})


async def _gethomedirectory(call: Hdfs) -> Response:
    home = f"/user/{quote(call.query.get('user.name', 'rollingfs'), safe='')}"
    return answer({"Path": f"{home}/.Trash" if call.op == "GETTRASHROOT" else home})


async def _getserverdefaults(call: Hdfs) -> Response:
    found = {"blockSize": BLOCK_BYTES, "bytesPerChecksum": CRC_BYTES, "writePacketSize": 65536, "replication": 1}
    found |= {"fileBufferSize": 4096, "checksumType": 2, "trashInterval": 0}
    return answer({"FsServerDefaults": {**found, "encryptDataTransfer": False, "keyProviderUri": ""}})


async def _checked(call: Hdfs) -> Response:
    """Check a call without effect: dates, owners and permissions are not kept."""
    await call.info()
    return answer({"boolean": True} if call.op == "SETREPLICATION" else None)


# -- changing --------------------------------------------------------------------------------------------------


async def _create(call: Hdfs) -> Response:
    overwrites = call.is_on("overwrite") or "OVERWRITE" in call.query.get("createflag", "").upper()
    async with await call.fs.open_async(call.at, "wb" if overwrites else "xb") as file:
        async for part in call.request.stream():
            await file.write(part)
    return answer(None, 201, {"Location": f"webhdfs://{call.request.url.netloc}/{quote(call.path)}"})


async def _append(call: Hdfs) -> Response:
    await call.store.append(call.at, call.request.stream())
    return answer()


async def _concat(call: Hdfs) -> Response:
    sources = [call.place(one) for one in call.query.get("sources", "").split(",")]
    await call.store.run(concat(call.store.client, call.at, sources, as_bytes=False, sealed=False))
    return answer()


async def _rename(call: Hdfs) -> Response:
    """Rename as HDFS does: without options it returns success, with options it raises."""
    path, options = call.query.get("destination", "").strip("/"), call.query.get("renameoptions")
    target, overwrites, into = call.place(path), "OVERWRITE" in str(options).upper(), None if options is None else False
    if options is None and (f"{path}/".startswith(f"{call.path}/") or path == call.path.rpartition("/")[0]):
        return answer({"boolean": False})  # into itself, or to where it is
    if overwrites and (await call.info())["type"] == "directory":
        with contextlib.suppress(FileNotFoundError):
            await call.fs._rmdir(target)
        overwrites = False
    try:
        await call.store.run(move(call.store.client, call.at, target, into=into, overwrite=overwrites))
    except (FileNotFoundError, FileExistsError, IsADirectoryError):
        if options is not None:
            raise
        return answer({"boolean": False})
    return answer({"boolean": True} if options is None else None)


async def _delete(call: Hdfs) -> Response:
    if not call.path:
        raise ValueError("the root cannot be deleted")
    try:
        try:
            await call.store.run(delete(call.store.client, [call.at], recursive=call.is_on("recursive")))
        except IsADirectoryError:
            await call.store.run(remove_empty(call.store.client, call.at))
    except FileNotFoundError:
        return answer({"boolean": False})
    return answer({"boolean": True})


async def _mkdirs(call: Hdfs) -> Response:
    found = None
    with contextlib.suppress(FileNotFoundError):
        found = await call.info()
    if found is not None and found["type"] == "file":
        raise FileExistsError(17, "a file has the name; no folder was made", call.at)
    await call.fs._makedirs(call.at, exist_ok=True)
    if found is None:
        await call.store.run(keep(call.store.client, call.at))  # Hadoop's committers list the folder they made
    return answer({"boolean": True})


async def _truncate(call: Hdfs) -> Response:
    raise NotImplementedError("TRUNCATE cuts the end of a file, and a segment is cut at its head only")


METHODS = {
    "GET": "OPEN GETFILESTATUS LISTSTATUS LISTSTATUS_BATCH GETCONTENTSUMMARY GETFILECHECKSUM GETSERVERDEFAULTS "
    "GETFILELINKSTATUS GETFILEBLOCKLOCATIONS GETHOMEDIRECTORY GETTRASHROOT CHECKACCESS",
    "PUT": "CREATE MKDIRS RENAME SETTIMES SETOWNER SETPERMISSION SETREPLICATION",
    "POST": "APPEND CONCAT TRUNCATE",
    "DELETE": "DELETE",
}
ALIKE = {
    **dict.fromkeys(("SETTIMES", "SETOWNER", "SETPERMISSION", "SETREPLICATION", "CHECKACCESS"), _checked),
    **{"GETFILELINKSTATUS": _getfilestatus, "GETTRASHROOT": _gethomedirectory},
}
OPS: dict[tuple[str, str], Callable[[Hdfs], Awaitable[Response]]] = {
    (method, op): ALIKE.get(op) or globals()[f"_{op.lower()}"] for method, ops in METHODS.items() for op in ops.split()
}
"""The function of each operation; most have its name."""
