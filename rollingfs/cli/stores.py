"""From the paths and options of a command line to filesystems."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rollingfs.cli.errors import WrongUsage

if TYPE_CHECKING:
    from rollingfs.filesystem import RollingFileSystem

ENVIRONMENT = "ROLLINGFS_OPTION_"
"""``ROLLINGFS_OPTION_MAX_BYTES=1MiB`` is ``--option max_bytes=1MiB``; two underscores stand for a dot."""
OWN = frozenset({"commit_timeout_s", "header_cache_s", "inline_bytes", "max_age", "max_bytes", "single_writer", "sync"})
"""Options of rolling itself; all others are the backend's."""
_ALIAS = re.compile(r"rolling\+([a-z0-9]+)://")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def split(text: str) -> tuple[str, str]:
    """The protocol of a path on a command line, and the path as the filesystem takes it.

    Raises
    ------
    WrongUsage
        It names no store, or more than one.
    """
    path = _ALIAS.sub(r"\1://", text.removeprefix("rolling::"), count=1)
    if not path:
        raise WrongUsage("the path is empty: give a URL like s3://bucket/x, or a local path")
    if "::" in path and "://" in path:
        raise WrongUsage(f"{text} chains several filesystems: name the one store that the segments lie on")
    scheme = _SCHEME.match(path)
    if scheme is None:
        return "file", os.path.abspath(path) + ("/" if path.endswith(("/", os.sep)) else "")
    if scheme[1] == "rolling":
        raise WrongUsage(f"{text} names no store: write rolling::s3://bucket/x, or a local path")
    return scheme[1], path


def parse_options(texts: Iterable[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The options of ``--option name=value``, over those in the environment.

    A dot in a name leads into a nested option. A value is JSON where it can be, else text.

    Raises
    ------
    WrongUsage
        There is no ``=``, or a name is an option and a group of options at once.
    """
    found: dict[str, Any] = {}
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT):
            dotted = name.removeprefix(ENVIRONMENT).lower().replace("__", ".")
            _put(found, dotted, environment[name])
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUsage(f"--option {text!r} is not of the form name=value")
        _put(found, name, value)
    return found


def _put(options: dict[str, Any], dotted: str, text: str) -> None:
    *groups, name = dotted.split(".")
    for group in groups:
        options = options.setdefault(group, {})
        if not isinstance(options, dict):
            raise WrongUsage(f"option {dotted!r}: {group!r} has a value of its own already")
    options[name] = _value(text)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def open_store(protocol: str, options: Mapping[str, Any]) -> RollingFileSystem:
    """The filesystem over a store.

    Raises
    ------
    WrongUsage
        There is no such protocol.
    """
    from fsspec.registry import known_implementations, registry

    from rollingfs.filesystem import RollingFileSystem

    if protocol not in known_implementations and protocol not in registry:
        raise WrongUsage(f"there is no filesystem for {protocol}://; fsspec knows file, s3, memory and others")
    own = {name: value for name, value in options.items() if name in OWN}
    target = {name: value for name, value in options.items() if name not in OWN}
    return RollingFileSystem(target_protocol=protocol, target_options=target, **own)
