"""Makes filesystems from the paths and options of a command line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fsspec.registry import known_implementations, registry

from rollingfs.backend.objects.clouds import require_client
from rollingfs.cli.output import WrongUsage
from rollingfs.fs.arguments import Accepted, accepted_by, listed, meant, near, unknown
from rollingfs.fs.filesystem import OPTIONS, RollingFileSystem
from rollingfs.fs.target import options_of_url
from rollingfs.runtime.values import value_class

ENVIRONMENT = "ROLLINGFS_OPTION_"
"""``ROLLINGFS_OPTION_MAX_BYTES=1MiB`` is ``--option max_bytes=1MiB``; two underscores stand for a dot."""
ROLLING = "rolling"
OWN = OPTIONS - {"backend", "clock", "fs", "policy", "target_options", "target_protocol"}
"""Options of rolling; all others are the store's."""
_ALIAS = re.compile(r"rolling\+?([a-z0-9]+)://")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


@value_class
class GivenOption:
    """An option as the user gave it."""

    label: str
    """Its name in messages: ``--option key``, or the variable's name."""
    names: tuple[str, ...]
    """The names of the groups that it is nested in, then its own."""
    value: Any
    is_ambient: bool = False
    """Whether it comes from the environment, and so may be meant for a store that the command does not use."""

    def addressed(self, store: str) -> str:
        """Return the option with the name of its store, or of rolling."""
        if self.is_ambient:
            return f"{ENVIRONMENT}{store.upper()}_{'__'.join(self.names).upper()}"
        return f"--option {'.'.join((store, *self.names))}=..."


def split(text: str) -> tuple[str, str]:
    """Return the protocol of a path on a command line, and the path as the filesystem takes it.

    Raises
    ------
    WrongUsage
        The path names no store, or several.
    """
    path = _ALIAS.sub(r"\1://", text.removeprefix("rolling::"), count=1)
    if not path:
        raise WrongUsage("the path is empty: give a URL like s3://bucket/x, or a local path")
    if "::" in path and "://" in path:
        raise WrongUsage(f"{text} chains several filesystems: name the one store that the segments lie on")
    scheme = _SCHEME.match(path)
    if scheme is None:
        whole = os.path.abspath(path) + ("/" if path.endswith(("/", os.sep)) else "")
        return "file", whole.replace(os.sep, "/")
    if not scheme[2]:
        raise WrongUsage(f"{text}: write {scheme[1]}://... for a store, or ./{text} for a local path")
    if scheme[1] == "rolling":
        raise WrongUsage(f"{text} names no store: write rolling::s3://bucket/x, or a local path")
    return scheme[1], path


def parse_options(texts: Iterable[str], environment: Mapping[str, str]) -> list[GivenOption]:
    """Return the options of the environment, overridden by ``--option name=value``.

    A dot in a name leads into a nested option. A value is JSON if it parses as JSON, else text.

    Raises
    ------
    WrongUsage
        There is no ``=``, or no name before it.
    """
    found: list[GivenOption] = []
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT):
            names = name.removeprefix(ENVIRONMENT).lower().split("__")
            found.append(GivenOption(name, tuple(names), _value(environment[name]), is_ambient=True))
    for position, text in enumerate(texts, start=1):
        name, equals, value = text.partition("=")
        if not equals or not all(name.split(".")):
            # it is not shown: without a name, all of it may be a secret
            raise WrongUsage(f"--option number {position} is not of the form name=value")
        found.append(GivenOption(f"--option {name}", tuple(name.split(".")), _value(value)))
    return found


def nest(given: Iterable[tuple[tuple[str, ...], GivenOption]]) -> dict[str, Any]:
    """Return options by name, nested in groups; a later option overrides.

    Raises
    ------
    WrongUsage
        A name has a value, and is a group of options.
    """
    found: dict[str, Any] = {}
    for (*groups, name), one in given:
        options = found
        for group in groups:
            options = options.setdefault(group, {})
            if not isinstance(options, dict):
                raise WrongUsage(f"{one.label}: {group!r} has a value of its own already")
        options[name] = one.value
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass
class Stores:
    """Opens the filesystems of a command, each with the options that are meant for it."""

    given: Sequence[GivenOption]
    _taken: dict[str, str] = field(default_factory=dict)
    """The store that got each variable that names no store, by label."""
    _opened: dict[str, RollingFileSystem] = field(default_factory=dict)

    def open(self, protocol: str, url: str = "") -> RollingFileSystem:
        """Return the filesystem over a store, shared by all URLs of the store.

        Raises
        ------
        WrongUsage
            There is no such protocol. Or an option is unknown, may be meant for several stores, or has a bad value.
        """
        known = {*known_implementations, *registry}
        if protocol not in known:
            raise WrongUsage(f"there is no filesystem for {protocol}://; fsspec knows file, s3, memory and others")
        require_client(protocol)
        of_url = options_of_url(protocol, url)
        if (name := f"{protocol} {sorted(of_url.items())}") not in self._opened:
            self._opened[name] = self._open(protocol, of_url, known)
        return self._opened[name]

    def _open(self, protocol: str, of_url: Mapping[str, Any], known: Set[str]) -> RollingFileSystem:
        accepted = accepted_by(protocol)
        own: list[tuple[tuple[str, ...], GivenOption]] = []
        target: list[tuple[tuple[str, ...], GivenOption]] = []
        for one in self.given:
            store, names = _addressee(one, known, accepted)
            store = self._meant(one, accepted) if store is None else store
            if store == ROLLING:
                own.append((names, one))
            elif store in accepted.protocols:
                target.append((names, one))
        for names, one in own:
            if names[0] not in OWN:
                raise WrongUsage(
                    f"{one.label}: rolling has no option {names[0]!r}{meant(names[0], OWN)}; it takes {listed(OWN)}"
                )
        options = nest(target)
        try:
            accepted.check(options)
        except TypeError as error:
            raise WrongUsage(str(error)) from error
        make = partial(RollingFileSystem, target_protocol=protocol, target_options={**of_url, **options})
        try:
            return make(**nest(own))
        except (TypeError, ValueError) as error:
            label, why = f"the options of {protocol}", error
            if _fault(make, {}) is None:
                alone = ((one.label, _fault(make, nest([(names, one)]))) for names, one in own)
                label, why = next(((by, fault) for by, fault in alone if fault), (label, why))
            raise WrongUsage(f"{label}: {why}") from error

    def _meant(self, one: GivenOption, accepted: Accepted) -> str:
        """Return the store, or rolling, of an option without the name of its store; "" if it is for another store."""
        name = one.names[0]
        if name in OWN:
            if name in accepted.names:
                raise WrongUsage(
                    f"{one.label}: {name!r} is an option of rolling and of {accepted.store}: "
                    f"write {one.addressed(ROLLING)} or {one.addressed(accepted.store)}"
                )
            return ROLLING
        if not one.is_ambient:
            if not accepted.knows(name, OWN):
                raise WrongUsage(f"{one.label}: {unknown(name, OWN, accepted)}")
            return accepted.store
        if name not in accepted.names:
            if near(name, OWN | accepted.names):
                raise WrongUsage(
                    f"{one.label}: {unknown(name, OWN, accepted)}; if it is meant for another store, put that before "
                    f"the name, as in {ENVIRONMENT}S3_KEY"
                )
            return ""
        other = self._taken.setdefault(one.label, accepted.store)
        if other not in accepted.protocols:
            raise WrongUsage(
                f"{one.label} may be meant for {other} or {accepted.store}: "
                f"write {one.addressed(other)} or {one.addressed(accepted.store)}"
            )
        return accepted.store


def _fault(make: Callable[..., object], options: Mapping[str, Any]) -> TypeError | ValueError | None:
    """Return why a filesystem refuses these options, if it does."""
    try:
        make(**options)
    except (TypeError, ValueError) as error:
        return error
    return None


def _addressee(one: GivenOption, known: Set[str], accepted: Accepted) -> tuple[str | None, tuple[str, ...]]:
    """Return the store (or rolling, or None) of an option, and its own name."""
    first, *rest = one.names
    if rest and (first == ROLLING or first in known):
        return first, tuple(rest)
    if one.is_ambient and first not in OWN and first not in accepted.names:
        for store in sorted({*known, ROLLING}, key=len, reverse=True):
            if first.startswith(f"{store.lower()}_"):
                return store, (first[len(store) + 1 :], *rest)
    return None, one.names
