"""Options of the filesystem of a store, and the messages about options that it does not take."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.objects import clouds
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS
from rollingfs.runtime.values import value_class

CHAIN_OPTIONS = frozenset({"fo", "fs", "target_options", "target_protocol"})
"""Options that fsspec gives to a filesystem over another."""
S3_BASE_OPTIONS = FSSPEC_OPTIONS - {"batch_size"}
"""Options that s3fs takes apart from the parameters that it names; it hands all others to a botocore session."""
NEAR_MIN = 0.6
"""Likeness of two names, of 1, if a message offers the second in place of the first."""
SLIP_MIN = 0.8
"""Likeness of two names, of 1, if the first counts as a slip of the second."""


@value_class
class Accepted:
    """The options of a kind of store."""

    store: str
    """The store's protocol."""
    names: frozenset[str]
    protocols: frozenset[str] = frozenset()
    """All protocols of the same store."""
    is_open: bool = False
    """Whether the store hands options that it does not name to a library of its own, and only that can check them."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The names within options that are dictionaries, if they are known."""

    def knows(self, name: str, own: Iterable[str] = ()) -> bool:
        """Whether the store takes an option; a name that it does not have must not be a slip of a name in `own`."""
        return name in self.names or (self.is_open and not near(name, own, SLIP_MIN))

    def check(self, options: Mapping[str, Any], where: str = "") -> None:
        """Refuse options that the store does not have.

        Parameters
        ----------
        where
            The option, a dictionary, in which they are given, if any.

        Raises
        ------
        TypeError
            The message has the name, not the value, which may be secret.
        """
        names = self.groups[where] if where else self.names
        for name, value in options.items():
            if name not in names and (where or not self.is_open):
                raise TypeError(
                    f"{self.store} has no option {name!r}{f' in {where}' if where else ''}{meant(name, names)}; "
                    f"it takes {listed(names)}"
                )
            if not where and name in self.groups and value is not None:
                if not isinstance(value, Mapping):
                    raise TypeError(
                        f"{self.store}'s option {name!r} is a mapping of names to values (a command line takes JSON), "
                        f"not {value!r}"
                    )
                self.check(value, name)


def accepted_by(protocol: str) -> Accepted:
    """The options of the store of a protocol."""
    if (module := clouds.direct(protocol)) is not None:
        return Accepted(protocol, module.OPTIONS | FSSPEC_OPTIONS, clouds.names_of(protocol))
    cls = fsspec.get_filesystem_class(protocol)
    named = {cls.protocol} if isinstance(cls.protocol, str) else set(cls.protocol)
    protocols = frozenset(named | {protocol})
    if cls in (LocalFileSystem, MemoryFileSystem):
        return Accepted(protocol, _parameters(cls) | FSSPEC_OPTIONS, protocols)
    if cls.__module__ == "s3fs.core" and cls.__name__ == "S3FileSystem":
        from botocore.session import Session

        names = _parameters(cls) | _parameters(Session) | S3_BASE_OPTIONS
        return Accepted(protocol, names, protocols, groups=_groups_of_s3())
    is_open = any(one.kind is one.VAR_KEYWORD for one in inspect.signature(cls.__init__).parameters.values())
    return Accepted(protocol, _parameters(cls) | FSSPEC_OPTIONS, protocols, is_open)


def _groups_of_s3() -> dict[str, frozenset[str]]:
    from aiobotocore.config import AioConfig
    from botocore.config import Config
    from botocore.session import Session

    return {
        "client_kwargs": _parameters(Session, "create_client") - {"service_name"},
        "config_kwargs": frozenset({*Config.OPTION_DEFAULTS, *_parameters(AioConfig)}),
    }


def _parameters(cls: type, method: str = "__init__") -> frozenset[str]:
    """The names of the parameters that a method takes by name."""
    _self, *found = inspect.signature(getattr(cls, method)).parameters.values()
    return frozenset(one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))


def near(name: str, names: Iterable[str], alike_min: float = NEAR_MIN) -> list[str]:
    """The names that a caller may mean, the likeliest first."""
    import difflib  # for an error alone

    return difflib.get_close_matches(name, sorted(names), cutoff=alike_min)


def meant(name: str, names: Iterable[str]) -> str:
    """A half-sentence with the names that a caller may mean."""
    found = near(name, names)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def unknown(name: str, own: Iterable[str], accepted: Accepted) -> str:
    """The message about an option that neither rolling, which takes `own`, nor the store has."""
    store, names = accepted.store, accepted.names
    return (
        f"neither rolling nor {store} has an option {name!r}{meant(name, {*own, *names})}; "
        f"rolling takes {listed(own)}; {store} takes {listed(names)}"
    )


def listed(names: Iterable[str]) -> str:
    """Names as a list for people."""
    return ", ".join(sorted(names)) or "none"
