"""The forms of the verbs that the filesystem has by path and `Segment` has for its own segment: a line for each verb.

To add a verb, write the coroutine in `segment_verbs` or `upkeep_verbs`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from rollingfs.fs import segment_verbs, upkeep_verbs
from rollingfs.fs.binding import Binding
from rollingfs.fs.sync_async import both

P = ParamSpec("P")
T = TypeVar("T")


class Form(Generic[P, T]):
    """Two methods, a blocking and an awaited form, which `ByPath` and `ByHandle` make for their subclasses.

    Parameters
    ----------
    verb
        The coroutine function.
    path
        The name of the first parameter by path.
    options
        As of `both`.
    """

    def __init__(self, verb: Callable[..., Any], path: str, options: dict[str, Any]) -> None:
        self.verb, self.path, self.options = verb, path, options

    if TYPE_CHECKING:

        @overload
        def __get__(self, face: ByPath, owner: Any) -> Callable[Concatenate[str, P], T]: ...
        @overload
        def __get__(self, face: ByHandle, owner: Any) -> Callable[P, T]: ...
        @overload
        def __get__(self, face: None, owner: Any) -> Callable[..., T]: ...
        def __get__(self, face: Any, owner: Any) -> Any: ...


def forms(
    verb: Callable[Concatenate[Binding, P], Coroutine[Any, Any, T]], *, path: str = "path", **options: Any
) -> tuple[Form[P, T], Form[P, Coroutine[Any, Any, T]]]:
    """The blocking and the awaited form of a verb, by path and by handle; see `both` for the options."""
    return Form(verb, path, options), Form(verb, path, options)


class Forms:
    """The verbs of the filesystem and of a handle."""

    append, _append = forms(segment_verbs.append, takes=segment_verbs.take_append)
    stage, _stage = forms(segment_verbs.stage)
    seal, _seal = forms(segment_verbs.seal, commits=True)
    truncate, _truncate = forms(segment_verbs.truncate, commits=True)
    concat, _concat = forms(segment_verbs.concat, commits=True, path="target")
    roll, _roll = forms(upkeep_verbs.roll, commits=True)
    offload, _offload = forms(upkeep_verbs.offload, commits=True)
    onload, _onload = forms(upkeep_verbs.onload, commits=True)
    set_policy, _set_policy = forms(upkeep_verbs.set_policy, commits=True)


class ByPath(Forms):
    """Gives a class all these verbs by path; its attribute `_at` makes a `Binding` of a path."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if ByPath in cls.__bases__:
            for name, form in _forms().items():
                _give(cls, name, both(form.verb, of="_at", path=form.path, **form.options))


class ByHandle(Forms):
    """Gives a class all these verbs for the `Binding` that is its attribute `_binding`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, form in _forms().items():
            _give(cls, name, both(form.verb, of="_binding", **form.options))


def _forms() -> dict[str, Form[..., Any]]:
    return {name: form for name, form in vars(Forms).items() if isinstance(form, Form) and not name.startswith("_")}


def _give(cls: type, name: str, methods: tuple[Any, Any]) -> None:
    for method_name, method in zip((name, f"_{name}"), methods, strict=True):
        setattr(cls, method_name, method)
