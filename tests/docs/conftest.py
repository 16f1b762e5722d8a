"""Each page begins with an empty memory store, whichever pages ran before it in the same process."""

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RollingFileSystem


@pytest.fixture(autouse=True)
def empty_memory() -> None:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    for scheme in (RollingFileSystem, fsspec.get_filesystem_class("rolling+memory")):
        scheme.clear_instance_cache()  # an instance remembers headers
