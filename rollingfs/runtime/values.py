"""Immutable values: what ``dataclass(frozen=True, slots=True)`` makes, in a fourth of the time.

`dataclasses` compiles six methods for each class, which took nearly half of the time of an import of the core. Here it
makes the fields and the slots. The methods are functions for all classes, but for ``__init__``: that is compiled once
for all classes with the same number of fields, and a class gets a copy with the names of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from types import CodeType, FunctionType, MemberDescriptorType
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


@cache
def _template(are_made: tuple[bool, ...], has_post_init: bool, has_slots: bool) -> CodeType:
    """Return the code of ``__init__``, compiled once for all classes whose fields differ only by their names.

    The setter of a slot takes half the time of ``object.__setattr__``.
    """
    names = [f"_{nth}" for nth in range(len(are_made))]
    lines = [f"def __init__({', '.join(['self', *names])}):"]
    for name, is_made in zip(names, are_made, strict=True):
        given = f"{name}.make() if {name}.__class__ is _Made else {name}" if is_made else name
        lines.append(f" _set{name}(self, {given})" if has_slots else f" _set(self, {name!r}, {given})")
    lines.append(" self.__post_init__()" if has_post_init else " pass")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    code: CodeType = scope["__init__"].__code__
    return code


def _init(made: Any, fields: tuple[dataclasses.Field[Any], ...]) -> FunctionType:
    """Return the method ``__init__``: the template with the names of the fields."""
    defaults = [
        field.default if field.default_factory is dataclasses.MISSING else _Made(field.default_factory)
        for field in fields
    ]
    are_made = tuple(isinstance(default, _Made) for default in defaults)
    names = {f"_{nth}": field.name for nth, field in enumerate(fields)}
    slots: dict[str, Any] = {f"_set{nth}": getattr(made, name, None) for nth, name in names.items()}
    has_slots = all(isinstance(slot, MemberDescriptorType) for slot in slots.values())
    setters = {nth: slot.__set__ for nth, slot in slots.items()} if has_slots else {"_set": object.__setattr__}
    code = _template(are_made, hasattr(made, "__post_init__"), has_slots)
    code = code.replace(
        co_varnames=tuple(names.get(name, name) for name in code.co_varnames),
        co_consts=tuple(names.get(value, value) for value in code.co_consts),
        co_qualname=f"{made.__qualname__}.__init__",
    )
    given = [value for value in defaults if value is not dataclasses.MISSING]
    if any(value is dataclasses.MISSING for value in defaults[len(fields) - len(given) :]):
        raise TypeError(f"{made.__qualname__} has a field without a default after one with a default")
    init = FunctionType(code, {**setters, "_Made": _Made}, "__init__", tuple(given))
    init.__module__ = made.__module__
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
