"""Each page begins with an empty memory store, whichever pages ran before it in the same process."""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RollingFileSystem
from rollingfs.fs.schemes import RollingMemoryFileSystem


@pytest.fixture(autouse=True)
def empty_memory() -> None:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    for scheme in (RollingFileSystem, RollingMemoryFileSystem):
        scheme.clear_instance_cache()  # an instance remembers headers
