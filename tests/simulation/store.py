"""The store: files in memory with dates by its own clock; it tells a witness of every change, in their order."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from rollingfs.backend.contract import Adapt, Buffer, Listing
from rollingfs.backend.memory import MemoryBackend, _token
from rollingfs.errors import LockedError
from rollingfs.format import names
from tests.simulation.history import running

LOCK_S_MAX = 1.0
"""How long a verb waits for a lock before it says that another holds the lock."""
LOCK_PAUSE_S = 0.01
TIERS = MappingProxyType({"cold": True, "warm": True})


class Witness(Protocol):
    """Who is told of changes, after each."""

    def written(self, path: str, data: bytes) -> None: ...
    def deleted(self, path: str) -> None: ...
    def moved(self, path: str, target: str) -> None: ...


class Unwatched:
    """Is told, and does nothing."""

    def written(self, path: str, data: bytes) -> None: ...
    def deleted(self, path: str) -> None: ...
    def moved(self, path: str, target: str) -> None: ...


@dataclass(frozen=True)
class Replaced:
    """What the newest write of a header has replaced."""

    token: str | None
    file: MemoryFile | None
    at_s: float


class Files(dict[str, MemoryFile]):
    """The files by path. A file that goes is told of."""

    witness: Witness

    def pop(self, path: str, *default: Any) -> Any:  # type: ignore[override]
        is_there = path in self
        found = super().pop(path, *default)
        if is_there:
            self.witness.deleted(path)
        return found


class Store(MemoryBackend):
    """An object store: requests may arrive late and twice, and a conflict may answer the request that took effect."""

    tiers = TIERS
    capability = replace(
        MemoryBackend.capability, has_folders=False, can_extend=False, conflicts_are_final=False, has_clock=True
    )
    is_disk = False

    def __init__(self, clock: Callable[[], float], witness: Witness) -> None:
        super().__init__(MemoryFileSystem(global_store=False, skip_instance_cache=True))
        self.fs.store = self.files = Files()
        self.files.witness = witness
        self.clock = clock
        self.replaced: dict[str, Replaced] = {}

    def may_tear(self, path: str) -> bool:
        """As for an object store: so clients compare what they load with their commits, and none may count as lost."""
        return not self.is_disk

    def _put(self, path: str, content: bytes) -> str:
        token = self.dated(path, super()._put(path, content), content)
        self.files.witness.written(path, content)
        return token

    async def create(self, path: str, data: Buffer) -> str:
        token = await super().create(path, data)
        self.replaced[path] = Replaced(None, None, asyncio.get_running_loop().time())
        return token

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        before = self.files.get(path)
        new = await super().replace(path, data, token)
        self.replaced[path] = Replaced(token, before, asyncio.get_running_loop().time())
        return new

    def take_back(self, path: str) -> None:
        """Put back what the newest write of a header has replaced; the witness is not told."""
        file = self.replaced.pop(path).file
        dict.pop(self.files, path)
        if file is not None:
            self.files[path] = file

    def dated(self, path: str, token: str, content: bytes) -> str:
        """Give a new file its date, and perhaps another token."""
        self.files[path].modified = datetime.fromtimestamp(self.clock(), UTC)
        return token

    def put_silently(self, path: str, content: bytes) -> None:
        """Give a file bytes that nobody has written; the witness is not told."""
        before = self.files.get(path)
        file = self.files[path] = MemoryFile(self.fs, path, content)
        if before is not None:
            file.modified = before.modified

    def copy_silently(self, path: str, target: str) -> None:
        """Copy a file with its date and metadata; the witness is not told."""
        self.put_silently(target, self.content(path) or b"")
        file = self.files[target]
        file.modified = self.files[path].modified
        self._keep_metadata(target, getattr(self.files[path], "_rollingfs_metadata", None))

    async def now(self, path: str) -> float:
        return self.clock()

    async def list(self, folder: str) -> Listing:
        return Listing((await super().list(folder)).entries, self.clock())

    def content(self, path: str) -> bytes | None:
        """The bytes of a file."""
        file = self.files.get(path)
        return None if file is None else bytes(file.getvalue())

    def snapshot(self) -> dict[str, bytes]:
        """All files with their content."""
        return {path: bytes(file.getvalue()) for path, file in self.files.items()}


class HashingStore(Store):
    """An object store like S3: a token is a hash of the bytes, and dates are whole seconds."""

    capability = replace(Store.capability, date_step_s=1.0)

    def dated(self, path: str, token: str, content: bytes) -> str:
        file = self.files[path]
        file.modified = datetime.fromtimestamp(int(self.clock()), UTC)
        file._rollingfs_generation = hashlib.md5(content).hexdigest()
        return f"{file._rollingfs_generation}-{len(content)}"


class Disk(Store):
    """A disk: no request arrives late or twice, headers are extended in place, and folders exist."""

    capability = replace(Store.capability, has_folders=True, can_extend=True, conflicts_are_final=True)
    is_disk = True


class LockedDisk(Disk):
    """A disk as it is in earnest: no clock of its own, locks, and segments that are deleted or moved in one step.

    A lock belongs to an operation, which stands for a thread. The lock of a dead process is free.
    """

    capability = replace(Disk.capability, has_clock=False, has_turns=True, removes_whole=True, shows_unflushed=True)

    def __init__(self, clock: Callable[[], float], witness: Witness) -> None:
        super().__init__(clock, witness)
        self._turns: dict[str, object] = {}

    async def _locked(self, path: str) -> None:
        """Wait until no other operation has the lock of a header."""
        waited_s, mine = 0.0, running.get()
        while self._turns.get(path, mine) is not mine:
            if waited_s > LOCK_S_MAX:
                if mine is not None:
                    mine.is_locked_out = True
                raise LockedError(f"{path}: another process holds the lock; nothing was written")
            await asyncio.sleep(LOCK_PAUSE_S)
            waited_s += LOCK_PAUSE_S

    async def take_turn(self, path: str) -> None:
        await self._locked(path)
        if path in self.files:
            self._turns[path] = running.get()

    def end_turn(self, path: str) -> None:
        if self._turns.get(path) is running.get():
            self._turns.pop(path, None)

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        await self._locked(path)
        self.end_turn(path)
        return await super().replace(path, data, token)

    async def extend(self, path: str, data: Buffer, token: str, adapt: Adapt | None = None) -> str | None:
        await self._locked(path)
        self.end_turn(path)
        return await super().extend(path, data, token, adapt)

    async def delete_if(self, path: str, token: str) -> bool:
        await self._locked(path)
        return await super().delete_if(path, token)

    async def remove_whole(self, headers: Sequence[tuple[str, str]]) -> Sequence[bool]:
        taken = []
        for header, token in headers:
            await self._locked(header)
            taken.append(self._is_alone(header, token))
            if taken[-1]:
                self.files.pop(header)
        return taken

    async def move_whole(self, headers: Sequence[tuple[str, str, str]]) -> Sequence[bool]:
        taken = []
        for header, token, target in headers:
            await self._locked(header)
            is_free = target not in self.files and names.segment_of_header(target) not in self.files
            taken.append(is_free and self._is_alone(header, token))
            if taken[-1]:
                self._make_folders(names.parent(target))
                self.files[target] = dict.pop(self.files, header)
                self.files.witness.moved(header, target)
        return taken

    def _is_alone(self, header: str, token: str) -> bool:
        folder = names.chunks_folder(names.segment_of_header(header))
        file = self.files.get(header)
        is_same = file is not None and _token(file) == token
        return is_same and not any(path.startswith(f"{folder}/") for path in self.files)


KINDS: tuple[type[Store], ...] = (Store, HashingStore, Disk, LockedDisk)
