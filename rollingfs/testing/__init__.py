"""The test class that a backend must pass.

Subclass `BackendContract` in a test module, say how the backend and a fresh folder are made, and pytest does the
rest::

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

from rollingfs.testing.conditions import Conditions
from rollingfs.testing.folders import Folders
from rollingfs.testing.racing import Factory, run
from rollingfs.testing.reading import Reading
from rollingfs.testing.writing import Writing

__all__ = ["BackendContract", "Factory", "run"]


class BackendContract(Reading, Conditions, Writing, Folders):
    """What rollingfs relies on, verb by verb and in races.

    What a subclass must say is in `rollingfs.testing.subject.Subject`.
    """
