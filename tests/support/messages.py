"""The rules for messages to users: a message names the path, says what is true now, and has no internal name."""

import functools
import importlib
import inspect
import pkgutil
import re

import rollingfs
from rollingfs.cli.errors import in_one_line

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


@functools.cache
def internal_classes() -> set[str]:
    """The names, of two words or more, of all classes of the package that are not public."""
    found = set[str]()
    for module in pkgutil.walk_packages(rollingfs.__path__, "rollingfs."):
        if ".spark" in module.name or module.name.endswith("__main__") or ".demo" in module.name:
            continue
        for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__.startswith("rollingfs.") and name not in rollingfs.__all__:
                found.add(name)
    return {name for name in found if sum(letter.isupper() for letter in name) > 1} | {"Methods", "Verbs", "Upkeep"}


def check_message(error: BaseException, path: str, *, changes: bool = True) -> None:
    """Check an error against the rules, as it is raised and as the command line shows it.

    Parameters
    ----------
    path
        The path that the message must name.
    changes
        Whether the message is about a change.
    """
    for text in (str(error), in_one_line(error)):
        check_text(text, path, changes=changes)


def check_text(text: str, path: str, *, changes: bool = True) -> None:
    """`check_message` of a text."""
    assert path in text, text
    for pattern in (*FORBIDDEN, *(rf"\b{name}\b" for name in internal_classes())):
        assert not re.search(pattern, text), (pattern, text)
    assert not changes or any(re.search(outcome, text) for outcome in OUTCOMES), text
