"""`value_class` against ``dataclass(frozen=True, slots=True)``: a user of a value sees no difference."""

import copy
import dataclasses
import inspect
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from rollingfs.runtime.values import added, cached, value_class
from rollingfs.segment.verbs.offload import Offloaded
from rollingfs.stream.trim import Trimmed
from rollingfs.stream.upkeep import Upkept

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


def shown(cls: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """All that a user sees of a value and of its class."""
    one, again, init = cls(*args, **kwargs), cls(*args, **kwargs), cls.__init__
    try:
        is_hashed: Any = hash(one) == hash(again)
    except TypeError as error:
        is_hashed = str(error)
    return {
        "repr": repr(one),
        "values": dataclasses.asdict(one),
        "fields": [(one.name, one.type) for one in dataclasses.fields(one)],
        "pattern": cls.__match_args__,
        "copies": [changed == one for changed in (again, copy.copy(one), copy.deepcopy(one), dataclasses.replace(one))],
        "hash": is_hashed,
        "dict": hasattr(one, "__dict__"),
        "init": (str(inspect.signature(cls)), init.__qualname__, init.__module__, init.__annotations__),
    }


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_values_are_made_shown_compared_changed_alike(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    theirs = shown(THEIRS[name], *args, **kwargs)
    assert shown(OURS[name], *args, **kwargs) == theirs
    assert all(theirs["copies"])
    assert theirs["hash"] in (True, "unhashable type: 'list'")


def test_two_values_differ_by_the_fields_that_compare() -> None:
    for classes in (OURS, THEIRS):
        plain, more = classes["Plain"], classes["More"]
        assert plain(1, d=1) == plain(1, d=2)
        assert plain(1) != plain(2)
        assert plain(1) != more(1)
        assert plain(1) != 1
        assert plain(1).c is not plain(1).c, "each gets a default of its own from a factory"


def test_a_value_without_slots_is_frozen() -> None:
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


def test_a_sum_of_reports_has_all_fields():
    first = Upkept("a", True, 1, ("x",), offloaded=Offloaded(1, 2), failed={"x": "old"})
    second = Upkept("b", False, 2, ("y",), offloaded=Offloaded(3, bytes=4), has_policy=True, failed={"x": "new"})
    expected = Upkept("a", True, 3, ("x", "y"), offloaded=Offloaded(4, 2, 4), has_policy=True, failed={"x": "new"})
    assert added(first, second) == expected
    assert added(first) == first
    dropped = added(Trimmed(dropped={"a": 1, "b": 2}), Trimmed(dropped={"b": 3})).dropped
    assert dropped == {"a": 1, "b": 5}


def test_one_instance_computes_while_another_does() -> None:
    others_answer = threading.Event()

    class Lazy:
        def __init__(self, wait: Callable[[], bool]) -> None:
            self.wait = wait

        @cached
        def is_done(self) -> bool:
            return self.wait()

    first = Lazy(lambda: others_answer.wait(10))
    computing = threading.Thread(target=lambda: first.is_done)
    computing.start()

    def ask() -> bool:
        others_answer.set()
        return True

    assert Lazy(ask).is_done  # with a lock for the class, it waits for the first
    computing.join()
    assert first.is_done
