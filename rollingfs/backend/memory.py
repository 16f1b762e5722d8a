"""The memory backend: it shares the store of fsspec's `MemoryFileSystem`, so both see the same files."""

from __future__ import annotations

import errno
import itertools
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Adapt, Backend, Blob, Buffer, FileInfo, Listing, Metadata, Over, Part, Upload
from rollingfs.backend.contract_values import Capability
from rollingfs.format.names import NAMES_KEPT_MAX
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.system import at_fork

# one lock for all instances, because they share the global store; held for dictionary work only
_lock = threading.Lock()

# the nonce tells the tokens of processes apart: a pickled private store may be unpickled where another counter runs
_nonce = uuid.uuid4().hex[:8]
_generations = itertools.count(1)


def _after_fork_in_child() -> None:
    global _lock, _nonce
    _lock = threading.Lock()
    _nonce = uuid.uuid4().hex[:8]


at_fork(in_child=_after_fork_in_child)


class MemoryBackend(Backend):
    """A backend over the dictionary of a `MemoryFileSystem`.

    A file that fsspec wrote has a token too. A file that fsspec appends to gets another token, with its new
    length. This backend cannot see a change in place that keeps the length (``r+b``): fsspec leaves no trace of it.

    Parameters
    ----------
    fs : MemoryFileSystem, optional
        The filesystem over the store; by default, over the global store.
    """

    capability = Capability(
        can_copy=True,
        can_join=True,
        can_delete_if=True,
        can_extend=True,
        must_race=False,  # one lock decides
        has_folders=True,
        has_metadata=True,
        conflicts_are_final=True,
    )

    strip = staticmethod(lru_cache(NAMES_KEPT_MAX)(MemoryFileSystem._strip_protocol))

    def __init__(self, fs: MemoryFileSystem | None = None) -> None:
        self.fs = MemoryFileSystem() if fs is None else fs

    async def read(self, path: str) -> Blob:
        with _lock:
            file = self._file(path)
            return _blob(path, file)

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        with _lock:
            file = self._file(path)
            return None if _token(file) == token else _blob(path, file)

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        with _lock:
            file = self._file(path)
            if token is not None and not _is_still(file, token):
                raise shared_errors.changed(path, token, _token(file))
            # not `getbuffer`: while a buffer is in use, another thread's append to the file fails
            content: bytes = file.getvalue()
        return content[start:end]

    async def stat(self, path: str) -> FileInfo:
        with _lock:
            return _info(path, self._file(path))

    async def is_folder(self, path: str) -> bool:
        with _lock:
            return self._is_folder(path)

    async def list(self, folder: str) -> Listing:
        now = time.time()
        prefix = folder + "/"
        with _lock:
            if folder in self.fs.store:
                raise shared_errors.not_a_folder(folder)
            entries: dict[str, FileInfo] = {}
            store = self.fs.store.copy()
            for path in [path for path in store if path.startswith(prefix)]:
                end = path.find("/", len(prefix))
                if end < 0:
                    entries[path] = _info(path, store[path])
                elif (child := path[:end]) not in entries:
                    entries[child] = _folder_info(child)
            for path in tuple(self.fs.pseudo_dirs):
                if path.startswith(prefix):
                    child = prefix + path[len(prefix) :].partition("/")[0]
                    if child not in entries:
                        entries[child] = _folder_info(child)
            if not entries and folder and folder not in self.fs.pseudo_dirs:
                raise shared_errors.no_folder(folder)
        return Listing(tuple(map(entries.__getitem__, sorted(entries))), now)

    async def now(self, path: str) -> float:
        return time.time()

    async def create(self, path: str, data: Buffer) -> str:
        content = bytes(data)
        with _lock:
            return self._put_new(path, content)

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        content = bytes(data)
        with _lock:
            file = self.fs.store.get(path)
            if file is None or _token(file) != token:
                raise shared_errors.changed(path, token, None if file is None else _token(file))
            return self._put(path, content)

    async def extend(self, path: str, data: Buffer, token: str, adapt: Adapt | None = None) -> str | None:
        with _lock:
            file = self.fs.store.get(path)
            now = None if file is None else _token(file)
            known: dict[str, int] = getattr(file, "_rollingfs_known", {})
            if file is not None and adapt is not None and now != token:
                later = (file.getvalue()[known[token] :], None) if token in known else (file.getvalue(), now)
                if adapted := adapt(*later):
                    data, token = adapted, now or token
            if file is None or now != token:
                raise shared_errors.changed(path, token, now)
            content = file.getvalue()
            # a new file: whoever has opened the old one goes on reading it at its own place
            made = self._put(path, b"".join([content, data]))
            self.fs.store[path]._rollingfs_known = {**known, token: len(content)}
            return made

    async def delete_if(self, path: str, token: str) -> bool:
        with _lock:
            file = self.fs.store.get(path)
            if file is not None and _token(file) != token:
                return False
            self.fs.store.pop(path, None)
            return True

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        self.put_whole(path, b"".join(data), None, metadata)

    async def put(self, path: str, data: Buffer) -> None:
        self.put_whole(path, bytes(data), Over.ANYTHING)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        return _MemoryUpload(self, path, over, metadata or {})

    async def metadata(self, path: str) -> Mapping[str, str]:
        with _lock:
            return dict(getattr(self._file(path), "_rollingfs_metadata", {}))

    async def keeps_versions(self, path: str) -> bool:
        return False

    async def copy(self, source: str, target: str, token: str | None = None, metadata: Metadata = None) -> None:
        with _lock:
            file = self._file(source)
            if token is not None:
                shared_errors.check_token(source, _token(file), token)
            self._put_new(target, file.getvalue())
            self._keep_metadata(target, metadata or getattr(file, "_rollingfs_metadata", None))

    async def delete(self, paths: Sequence[str]) -> None:
        with _lock:
            for path in paths:
                self.fs.store.pop(path, None)

    async def make_folder(self, path: str) -> bool:
        with _lock:
            if path in self.fs.store:
                raise shared_errors.name_taken(path)
            is_new = not self._is_folder(path)
            self._make_folders(path)
            return is_new

    async def remove_folder(self, path: str) -> None:
        with _lock:
            if not self._is_folder(path):
                raise shared_errors.no_folder(path)
            if self._has_below(path):
                raise shared_errors.not_empty(path)
            if path:
                self.fs.pseudo_dirs.remove(path)

    def unstrip(self, path: str) -> str:
        return f"memory://{path}"

    def root(self, path: str) -> str:
        return "memory"

    def may_tear(self, path: str) -> bool:
        return False

    def put_whole(self, path: str, content: bytes, over: Over | None, metadata: Metadata = None) -> None:
        """Store a whole file."""
        with _lock:
            put = self._put if over is Over.ANYTHING and path in self.fs.store else self._put_new
            put(path, content)
            self._keep_metadata(path, metadata)

    # -- under the lock ------------------------------------------------------------------------------------

    def _file(self, path: str) -> MemoryFile:
        file = self.fs.store.get(path)
        if file is None:
            raise shared_errors.no_file(path)
        return file

    def _put_new(self, path: str, content: bytes) -> str:
        if path in self.fs.store or path in self.fs.pseudo_dirs:
            raise shared_errors.name_taken(path)
        self._make_folders(path.rpartition("/")[0])
        return self._put(path, content)

    def _put(self, path: str, content: bytes) -> str:
        file = self.fs.store[path] = MemoryFile(self.fs, path, content)
        file._rollingfs_generation = generation = f"{_nonce}-{next(_generations)}"
        return f"{generation}-{len(content)}"

    def _keep_metadata(self, path: str, metadata: Metadata) -> None:
        file = self.fs.store.get(path)
        if file is not None and metadata:
            file._rollingfs_metadata = dict(metadata)

    def _is_folder(self, path: str) -> bool:
        return not path or path in self.fs.pseudo_dirs or (path not in self.fs.store and self._has_below(path))

    def _has_below(self, path: str) -> bool:
        prefix = path + "/"
        # over copies: other threads change the store through fsspec, which takes no lock
        return any(other.startswith(prefix) for other in (*self.fs.store, *self.fs.pseudo_dirs))

    def _make_folders(self, path: str) -> None:
        while path and path not in self.fs.pseudo_dirs:
            if path in self.fs.store:
                raise shared_errors.not_a_folder(path)
            self.fs.pseudo_dirs.append(path)
            path = path.rpartition("/")[0]


def _token(file: MemoryFile) -> str:
    generation: str | None = getattr(file, "_rollingfs_generation", None)
    if generation is None:
        generation = f"{_nonce}-{next(_generations)}"
        file._rollingfs_generation = generation
    return f"{generation}-{len(file.getvalue())}"


def _blob(path: str, file: MemoryFile) -> Blob:
    """Return the content, up to what the format allows for its name."""
    return Blob(file.getvalue()[: read_bytes_max(path)], _token(file), file.modified.timestamp())


def _is_still(file: MemoryFile, token: str) -> bool:
    """Return whether a file had `token`; it may have grown since."""
    (generation, _, size), (now, _, size_now) = token.rpartition("-"), _token(file).rpartition("-")
    return generation == now and int(size) <= int(size_now)


def _info(path: str, file: MemoryFile) -> FileInfo:
    return FileInfo(path, len(file.getvalue()), file.modified.timestamp(), _token(file))


def _folder_info(path: str) -> FileInfo:
    return FileInfo(path, 0, 0.0, is_folder=True)


class _MemoryUpload(Upload):
    def __init__(self, backend: MemoryBackend, path: str, over: Over | None, metadata: Mapping[str, str]) -> None:
        self._metadata = metadata
        self._backend = backend
        self._path = path
        self._over = over
        self._content: bytearray | None = bytearray()

    async def write(self, data: Buffer) -> None:
        if self._content is None:
            raise shared_errors.upload_closed(self._path)
        self._content += data

    async def copy(self, part: Part) -> None:
        piece = await self._backend.read_range(part.path, part.start, part.end, part.token)
        if len(piece) != part.end - part.start:
            raise OSError(errno.EIO, f"the file ends before byte {part.end}", part.path)
        await self.write(piece)

    async def finish(self) -> None:
        if self._content is None:
            raise shared_errors.upload_closed(self._path)
        self._backend.put_whole(self._path, bytes(self._content), self._over, self._metadata)
        self._content = None

    async def abort(self) -> None:
        self._content = None
