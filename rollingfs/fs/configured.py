"""How fsspec's configuration meets what a caller gives by position."""

from __future__ import annotations

from typing import Any

from fsspec import AbstractFileSystem
from fsspec.config import apply_config

_BY_POSITION = ("target_protocol", "target_options", "fs")


class Configured(type(AbstractFileSystem)):  # type: ignore[misc]  # the class of fsspec's classes
    """Makes filesystems. What the caller gives counts before the configuration, by position as by name.

    fsspec hands on the options of its configuration by name, beside an argument that has the same name.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(_BY_POSITION, args, strict=False))
        if len(given) == len(args) and given.keys() & apply_config(cls, {}).keys() and not given.keys() & kwargs.keys():
            return super().__call__(**given, **kwargs)
        return super().__call__(*args, **kwargs)
