"""`Commands` makes functions into commands, and adds the options that all commands have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollingfs.cli.session import Session

OPTION_HELP = "An option of rolling or of the backend, NAME=VALUE; may be given several times."
COMMON = {
    "option": (Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help=OPTION_HELP)], None),
    "json": (Annotated[bool, typer.Option("--json", help="Write JSON.")], False),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")], False),
}

PATHS_HELP = "Names, or patterns in quotes ('s3://bucket/log-*'), which are expanded on the store."
PathsOf = Annotated[list[str], typer.Argument(metavar="PATH...", show_default=False, help=PATHS_HELP)]
PathOf = Annotated[str, typer.Argument(metavar="PATH", show_default=False, help="s3://…, file:///… or a local path.")]
FolderOf = Annotated[str, typer.Argument(metavar="FOLDER", show_default=False, help="Everything below it.")]
_COUNT = re.compile(r"-[0-9]+")

Body = Callable[..., None]


class Command(TyperCommand):
    """A command. One that has ``-n`` also takes ``-5`` for ``-n 5``, as `head` and `tail` always did."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any("-n" in parameter.opts for parameter in self.params):
            end = args.index("--") if "--" in args else len(args)
            args = [f"-n{one[1:]}" if _COUNT.fullmatch(one) else one for one in args[:end]] + args[end:]
        return super().parse_args(ctx, args)


class Groups(TyperGroup):
    """All commands; the help lists them by group, with the whole first sentence of each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        titles: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            summary = " ".join((command.help or "").partition("\n\n")[0].split())
            titles.setdefault(str(getattr(command, "rich_help_panel", None) or "Commands"), []).append((name, summary))
        for title, rows in titles.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class Commands:
    """A group of commands: functions of the session and of what the user gives.

    Parameters
    ----------
    title
        The group's name in the help.
    """

    def __init__(self, title: str) -> None:
        self.title = title
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
            app.command(name, cls=Command, help=inspect.getdoc(body), rich_help_panel=self.title)(_with_session(body))


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
