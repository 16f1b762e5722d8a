"""`value_class` against ``dataclass(frozen=True, slots=True)``: a user of a value sees no difference."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from rollingfs.runtime.values import value_class

_standard = dataclass(frozen=True, slots=True)


def _make(decorate: Callable[[Any], Any]) -> dict[str, Any]:
    """Classes of the same bodies, made in two ways."""

    @decorate
    class Plain:
        """With defaults, a factory, and a field that neither compares nor shows."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: int = field(default=4, compare=False, repr=False)

        @property
        def twice(self) -> int:
            return 2 * self.a

    @decorate
    class Checked:
        """With a check."""

        a: int
        b: int = -1

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")
            if self.b < 0:
                object.__setattr__(self, "b", self.a)

    @decorate
    class More(Plain):
        """Inherits fields."""

        e: int = 5

    @decorate
    class Empty:
        """Has none."""

    return {cls.__name__: cls for cls in (Plain, Checked, More, Empty)}


OURS, THEIRS = _make(value_class), _make(_standard)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(("Plain", (1,), {}), ("Plain", (1, "x"), {"d": 9}), ("Plain", (), {"a": 1, "c": [3]})),
    *(("Checked", (1,), {}), ("Checked", (1, 2), {}), ("More", (1,), {}), ("More", (1,), {"e": 2, "b": "y"})),
    ("Empty", (), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_values_are_made_shown_compared_changed_alike(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    ours, theirs = OURS[name](*args, **kwargs), THEIRS[name](*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert type(ours).__match_args__ == type(theirs).__match_args__
    assert ours == OURS[name](*args, **kwargs)
    assert not hasattr(ours, "__dict__")
    for cls in (OURS[name], THEIRS[name]):
        one = cls(*args, **kwargs)
        if hasattr(one, "c"):
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)
        else:
            assert hash(one) == hash(cls(*args, **kwargs))
        for changed in (copy.copy(one), copy.deepcopy(one), dataclasses.replace(one)):
            assert changed == one


def test_two_values_differ_by_the_fields_that_compare() -> None:
    for classes in (OURS, THEIRS):
        plain, more = classes["Plain"], classes["More"]
        assert plain(1, d=1) == plain(1, d=2)
        assert plain(1) != plain(2)
        assert plain(1) != more(1)
        assert plain(1) != 1
        assert plain(1).c is not plain(1).c, "each gets a default of its own from a factory"


@pytest.mark.parametrize("name", list(OURS))
def test_signatures_and_annotations_are_the_same(name: str) -> None:
    ours, theirs = OURS[name].__init__, THEIRS[name].__init__
    assert str(inspect.signature(OURS[name])) == str(inspect.signature(THEIRS[name]))
    assert (ours.__qualname__, ours.__module__) == (theirs.__qualname__, theirs.__module__)
    assert ours.__annotations__ == theirs.__annotations__


def test_a_value_without_slots_has_a_dictionary_and_is_frozen_all_the_same() -> None:
    @value_class(slots=False)
    class Loose:
        """Has a dictionary."""

        a: int
        b: int = 2

    one: Any = Loose(1)
    assert vars(one) == {"a": 1, "b": 2}
    assert len({one, Loose(1), Loose(2)}) == 2, "equal values have one hash"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        one.a = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del one.a
