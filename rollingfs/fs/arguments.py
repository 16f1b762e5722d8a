"""Checks of arguments and options: refuse a value of a wrong kind, or an unknown name, before anything is done."""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects import clouds
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.values import value_class

NOTHING = "nothing was written"
Attrs = Mapping[str, str | None] | None
"""Attributes of a segment; None as a value removes the attribute, or asserts that it is not there."""
CREATE = "create"
OVERWRITE = "overwrite"
WRITE_MODES = ("wb", "xb", "ab")
"""Of `open`."""


def check_attrs(path: str, attrs: Mapping[str, Any] | None, name: str = "attrs") -> None:
    """Refuse attributes that are neither text nor None.

    Raises
    ------
    TypeError, ValueError
        With the key.
    """
    if attrs is None:
        return
    if not isinstance(attrs, Mapping):
        raise TypeError(f"{path}: {name} is {attrs!r}: it must be a dictionary, as {{'batch': '1'}}; {NOTHING}")
    key: Any
    for key, value in attrs.items():
        if not isinstance(key, str):
            raise TypeError(f"{path}: the key {key!r} in {name} must be str, not {type(key).__name__}; {NOTHING}")
        if value is not None and not isinstance(value, str):
            raise TypeError(
                f"{path}: the value of {key!r} in {name} must be str, not {type(value).__name__}: "
                f"give {str(value)!r} for {value!r}; {NOTHING}"
            )
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path}: {key!r}={value!r} in {name} is not valid Unicode; {NOTHING}") from error


def check_switches(**given: Any) -> None:
    """Refuse a value that is neither True nor False: text like ``"no"`` would count as True.

    Raises
    ------
    TypeError
        With the option's name.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}: it must be true or false")


def local_path(**given: Any) -> str:
    """Return the local path that is the value of an option.

    Raises
    ------
    TypeError, ValueError
        With the option's name.
    """
    [(name, value)] = given.items()
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} is {value!r}: it must be the path of a local file or folder, or a truth")
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "://" in path:
        raise ValueError(f"{name} is {value!r}: it must be the path of a local file or folder, or a truth")
    return os.path.expanduser(path)


def check_seconds(**given: Any) -> None:
    """Refuse a value that is not a number of at least 0 seconds.

    Raises
    ------
    TypeError, ValueError
        With the option's name.
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}: it must be a number of seconds")
        if not value >= 0:
            raise ValueError(f"{name} is {value!r}: it must be at least 0 seconds")


def check_offset(path: str, offset: Any, name: str = "offset") -> None:
    """Refuse an offset that is not a whole number.

    Raises
    ------
    TypeError
        It is not.
    """
    try:
        operator.index(offset)
    except TypeError as error:
        raise TypeError(f"{path}: {name} is {offset!r}: it must be a whole number of bytes; {NOTHING}") from error


def check_policy(path: str, policy: Any) -> None:
    """Refuse a value that is not a policy.

    Raises
    ------
    TypeError
        It is not.
    """
    if not isinstance(policy, RollingPolicy | None):
        raise TypeError(
            f"{path}: the policy is {policy!r}: it must be a RollingPolicy, as RollingPolicy(max_bytes='1MiB'); "
            f"{NOTHING}"
        )


def make_policy(
    policy: RollingPolicy | None,
    max_bytes: int | str | None,
    max_age: float | str | None,
    inline_bytes: int | str | None,
) -> RollingPolicy:
    """Return the policy of new segments, from a policy or from its three numbers.

    Raises
    ------
    TypeError
        The policy is not a `RollingPolicy`.
    ValueError
        Both are given, or a number is out of its range.
    """
    check_policy("rolling", policy)
    numbers = {"max_bytes": max_bytes, "max_age": max_age, "inline_bytes": inline_bytes}
    given = {name: value for name, value in numbers.items() if value is not None}
    if policy is not None and given:
        raise ValueError("give either policy= or max_bytes=, max_age=, inline_bytes=, not both")
    return policy or RollingPolicy(**given)  # type: ignore[arg-type]  # each name has a value of its type


def check_default(backend: Backend, policy: OffloadPolicy | Mapping[str, Any] | None) -> OffloadPolicy | None:
    """Return the offload policy of a filesystem, which names a tier of it, if any.

    Raises
    ------
    ValueError
        It names another, or a value is outside its range.
    TypeError
        It is not a policy.
    """
    if policy is None:
        return None
    found = OffloadPolicy.of(policy, "offload_policy")
    if found.tier and found.tier not in backend.tiers:
        raise ValueError(
            f"offload_policy moves chunks to the tier {found.tier!r}, which is none of `tiers`: give its root"
        )
    return found


def creates_only(mode: str, path: str) -> bool:
    """Return whether a mode of `pipe_file` or `put_file` refuses to replace an existing file.

    Raises
    ------
    ValueError
        There is no such mode.
    """
    if mode not in (CREATE, OVERWRITE):
        raise ValueError(f"{path}: mode {mode!r} must be {OVERWRITE!r} or {CREATE!r}; nothing was written")
    return mode == CREATE


# -- options of a store ----------------------------------------------------------------------------------------

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
        """Return whether the store takes an option; a name that it lacks must not be a slip of a name in `own`."""
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
    """Return the options of the store of a protocol."""
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
    """Return the names of the parameters that a method takes by name."""
    _self, *found = inspect.signature(getattr(cls, method)).parameters.values()
    return frozenset(one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))


def near(name: str, names: Iterable[str], alike_min: float = NEAR_MIN) -> list[str]:
    """Return the names that a caller may mean, the likeliest first."""
    import difflib  # for an error alone

    return difflib.get_close_matches(name, sorted(names), cutoff=alike_min)


def meant(name: str, names: Iterable[str]) -> str:
    """Return a half-sentence with the names that a caller may mean."""
    found = near(name, names)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def unknown(name: str, own: Iterable[str], accepted: Accepted) -> str:
    """Return the message about an option that neither rolling, which takes `own`, nor the store has."""
    store, names = accepted.store, accepted.names
    return (
        f"neither rolling nor {store} has an option {name!r}{meant(name, {*own, *names})}; "
        f"rolling takes {listed(own)}; {store} takes {listed(names)}"
    )


def listed(names: Iterable[str]) -> str:
    """Return names as a list for people."""
    return ", ".join(sorted(names)) or "none"
