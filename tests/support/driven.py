"""A backend whose verbs are plain functions."""

import inspect
from typing import Any

from rollingfs.backend.contract import Upload
from rollingfs.testing import run


class Driven:
    """Runs each verb to its end, those of an upload, too; all else is the backend's own."""

    def __init__(self, backend: Any, verbs_of: Any = None) -> None:
        self.backend = backend
        self._verbs_of = backend if verbs_of is None else verbs_of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._verbs_of, name)
        if not inspect.ismethod(found):
            return found

        def driven(*args: Any, **options: Any) -> Any:
            answer = found(*args, **options)
            if inspect.iscoroutine(answer):
                answer = run(self.backend, answer)
            return Driven(self.backend, answer) if isinstance(answer, Upload) else answer

        return driven
