"""Immutable values: what ``dataclass(frozen=True, slots=True)`` makes, in a third of the time.

`dataclasses` compiles six methods for each class, which took a fifth of the time of an import of the core. Here it
makes the fields and the slots, and only ``__init__`` is compiled: the other methods are functions for all classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import chain
from operator import attrgetter
from types import FunctionType, MemberDescriptorType
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


@overload
def value_class(cls: type[T], /) -> type[T]: ...
@overload
def value_class(*, slots: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def value_class(cls: type[T] | None = None, /, *, slots: bool = True) -> Any:
    """Return a frozen dataclass with slots. The methods that the class defines itself stay."""
    return _made(cls, slots) if cls is not None else lambda cls: _made(cls, slots)


def _made(cls: type, slots: bool) -> type:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = dataclasses.fields(made)
    compared = [field.name for field in fields if field.compare]
    values: Callable[[Any], Any] = attrgetter(*compared) if compared else lambda value: ()

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    methods: dict[str, Callable[..., Any]] = {"__eq__": equals, "__hash__": lambda self: hash(values(self)), **_SHARED}
    own = dict(vars(cls))  # without slots, it would show the methods that are set below
    if "__init__" not in own:
        methods["__init__"] = _init(made, fields)
    for name, method in methods.items():
        # Python notes no hash for a class that defines only its comparison
        if own.get(name) is None and not (name == "__hash__" and "__eq__" in own):
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def cached(method: Callable[[Any], T]) -> cached_property[T]:
    """Return a cached property without the lock of Python 3.11.

    That lock is one for all instances, so a child that is forked while another thread holds it would wait for ever. Two
    threads that ask at the same time may both compute the value.
    """
    made = cached_property(method)
    made.lock = nullcontext()  # type: ignore[attr-defined]
    return made


def added(first: T, *others: T) -> T:
    """Return the sum of values of a class, field by field; a text is the text of the first.

    Numbers are added, also of a key in two mappings; tuples are joined, mappings united, and of flags one is enough.
    """
    several, fields = (first, *others), dataclasses.fields(cast(Any, first))
    return type(first)(*(_sum([getattr(one, field.name) for one in several]) for field in fields))


def _sum(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, int):
        return any(values) if isinstance(first, bool) else sum(values)
    if isinstance(first, tuple):
        return tuple(chain.from_iterable(values))
    if isinstance(first, Mapping):
        found: dict[Any, Any] = {}
        for key, value in chain.from_iterable(one.items() for one in values):
            found[key] = found.get(key, 0) + value if isinstance(value, int) else value
        return found
    return added(*values) if dataclasses.is_dataclass(first) else first


class _Made:
    """The default of a parameter whose value a field's factory makes."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __repr__(self) -> str:
        return "<factory>"


def _init(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> FunctionType:
    """Return the method ``__init__``. The setter of a slot takes half the time of ``object.__setattr__``."""
    scope: dict[str, Any] = {"_Made": _Made, "_set": object.__setattr__}
    lines = [f"def __init__({', '.join(['self', *(field.name for field in fields)])}):"]
    defaults = []
    for field in fields:
        given = name = field.name
        if field.default_factory is not dataclasses.MISSING:
            defaults.append(_Made(field.default_factory))
            given = f"{name}.make() if {name}.__class__ is _Made else {name}"
        elif field.default is not dataclasses.MISSING:
            defaults.append(field.default)
        elif defaults:
            raise TypeError(f"{made.__qualname__} has a field without a default after one with a default")
        slot = getattr(made, name, None)
        if isinstance(slot, MemberDescriptorType):
            scope[f"_set_{name}"] = slot.__set__
            lines.append(f" _set_{name}(self, {given})")
        else:
            lines.append(f" _set(self, {name!r}, {given})")
    lines.append(" self.__post_init__()" if hasattr(made, "__post_init__") else " pass")
    exec("\n".join(lines), scope)
    init: FunctionType = scope["__init__"]
    init.__defaults__, init.__module__, init.__qualname__ = (
        (*defaults,),
        made.__module__,
        f"{made.__qualname__}.__init__",
    )
    init.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return init


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set(self: Any, name: str, value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
