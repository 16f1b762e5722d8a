"""What the documentation site needs beyond its plugins; see `mkdocs.yml`."""

from __future__ import annotations

import re
from typing import Any

import griffe

_FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take from the head of a code block what the tests of the pages read there: no renderer knows it."""
    return _FENCE.sub(r"\1", markdown)


class PlainDefaults(griffe.Extension):
    """Shows the default value of a parameter as text: the templates ask objects for attributes."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace defaults that are objects, such as fsspec's callback, whose attributes are all methods."""
        for parameter in func.parameters:
            if parameter.default is not None and not isinstance(parameter.default, str | griffe.Expr):
                parameter.default = type(parameter.default).__name__ + "()"
