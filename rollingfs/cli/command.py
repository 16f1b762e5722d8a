"""`Commands` makes functions into commands, and adds the options that all commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rollingfs.cli.session import Session

OPTION_HELP = "An option of rolling or of the backend, NAME=VALUE; may be given several times."
COMMON = {
    "option": (Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help=OPTION_HELP)], None),
    "json": (Annotated[bool, typer.Option("--json", help="Write JSON.")], False),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")], False),
}

Paths = Annotated[list[str], typer.Argument(metavar="PATH...", show_default=False)]
PathOf = Annotated[str, typer.Argument(metavar="PATH", show_default=False)]

Body = Callable[..., None]


class Commands:
    """A group of commands: functions of the session and of what the user gives."""

    def __init__(self) -> None:
        self._bodies: dict[str, Body] = {}

    def __call__(self, name: str) -> Callable[[Body], Body]:
        """Make a function the command of this name; its docstring is the help."""

        def keep(body: Body) -> Body:
            self._bodies[name] = body
            return body

        return keep

    def add_to(self, app: typer.Typer) -> None:
        """Add the commands to an app."""
        for name, body in self._bodies.items():
            app.command(name, help=inspect.getdoc(body))(_with_session(body))


def _with_session(body: Body) -> Callable[..., None]:
    """The function that typer calls: it takes the common options too, and raises the exit code."""
    _, *own = inspect.signature(body, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        is_recursive = any(parameter.name == "recursive" for parameter in own)
        session = Session(common["option"] or (), common["json"], common["debug"], is_recursive)
        code = session.run(lambda: body(session, **given))
        if code:
            raise typer.Exit(code)

    kind = inspect.Parameter.KEYWORD_ONLY
    common = [
        inspect.Parameter(name, kind, default=default, annotation=hint) for name, (hint, default) in COMMON.items()
    ]
    parameters = [parameter.replace(kind=kind) for parameter in own] + common
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # `inspect` reads it first
    run.__annotations__ = {}
    return run
