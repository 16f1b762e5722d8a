"""The rules for messages to users: a message names the path, says what is true now, and has no internal name."""

import contextlib
import functools
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import rollingfs
from rollingfs.cli.output import in_one_line

FORBIDDEN = (
    r"\$chunks/(probe|tmp|lock|stage|index)",
    r"object at 0x",
    r"\bNoneType\b",
    r"An error occurred \(404\)",
    r"__init__|got an unexpected keyword argument '_",
)
"""Patterns of text that means nothing to users; names of classes that are not public are forbidden too."""
OUTCOMES = (
    "nothing was (written|changed|committed|joined|moved|deleted|read or written|trimmed)",
    "as before",
    "still there",
    "(would begin|begin) again",
)
"""Phrases by which a message about a change says what is true now."""

OTHER_SYSTEMS = {"rollingfs.backend.local.windows"} if os.sep == "/" else {"rollingfs.backend.local.posix"}
"""Modules that this system cannot import."""


@functools.cache
def internal_classes() -> set[str]:
    """The names, of two words or more, of all classes of the package that are not public."""
    found = set[str]()
    for module in pkgutil.walk_packages(rollingfs.__path__, "rollingfs."):
        if ".spark" in module.name or module.name.endswith("__main__") or ".demo" in module.name:
            continue
        if module.name in OTHER_SYSTEMS:
            continue
        for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__.startswith("rollingfs.") and name not in rollingfs.__all__:
                found.add(name)
    return {name for name in found if sum(letter.isupper() for letter in name) > 1} | {"Methods", "Verbs", "Upkeep"}


@contextlib.contextmanager
def refused(
    kind: Any, path: str, said: str | None = None, *, changes: bool = True
) -> Iterator[pytest.ExceptionInfo[OSError]]:
    """What is done in the block raises an error that keeps the rules, as it is and as the command line shows it.

    Parameters
    ----------
    path
        The path that the message must name.
    said
        A pattern that the message has.
    changes
        Whether the message is about a change.
    """
    with pytest.raises(kind, match=said) as caught:
        yield caught
    for text in (str(caught.value), in_one_line(caught.value)):
        check_text(text, path, changes=changes)


def check_text(text: str, path: str, *, changes: bool = True) -> None:
    """The rules of `refused`, for a text."""
    assert path in text, text
    for pattern in (*FORBIDDEN, *(rf"\b{name}\b" for name in internal_classes())):
        assert not re.search(pattern, text), (pattern, text)
    assert not changes or any(re.search(outcome, text) for outcome in OUTCOMES), text
