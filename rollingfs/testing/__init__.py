"""The test class that a backend must pass.

In: a backend, and ways to read and write its files without it. Out: pytest's verdict on every verb, with and without
races. Must not be here: tests of anything above `rollingfs.backend`.

Subclass `BackendContract` in a test module, define how to make the backend and a fresh folder, and run pytest::

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self):
            return MyBackend("http://localhost:9000")

        @pytest.fixture
        def folder(self):
            return f"bucket/{uuid.uuid4().hex}"

        def raw_read(self, path): ...
        def raw_write(self, path, data): ...

        def spawn_arguments(self):
            return MyBackend, ("http://localhost:9000",)
"""

from __future__ import annotations

from rollingfs.testing.conditions import BackendContract
from rollingfs.testing.reading import Factory, run

__all__ = ["BackendContract", "Factory", "run"]
