"""Make functions into commands, and add the options that all commands have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, ParameterInfo

from rollingfs.cli.output import value_of
from rollingfs.cli.session import Session
from rollingfs.fs.write_buffer import CommitOn, parse_commit_on
from rollingfs.policy import MAX_AGE_S_MAX, parse_bytes, parse_seconds


def parse_duration(text: str) -> float:
    """Return seconds, from a text like ``"30min"``; 0 needs no unit.

    Raises
    ------
    ValueError
        It is not a duration, has no unit, or is longer than a hundred years.
    """
    seconds = parse_seconds(text)
    if seconds and text.strip()[-1].isdigit():
        number = text.strip()
        raise ValueError(f"{text!r} has no unit: write {number}s, {number}min, {number}h or {number}d")
    if seconds > MAX_AGE_S_MAX:
        raise ValueError(f"{text!r} is too long: at most {MAX_AGE_S_MAX / 86400:.0f}d, a hundred years")
    return seconds


def parse_when(text: str) -> CommitOn:
    """Return what makes commits of lines due, from a text like ``"5s,64KiB"``.

    Raises
    ------
    ValueError
        It is no such text.
    """
    when = parse_commit_on([int(one) if one.isdigit() else one for one in text.split(",")])
    if when.flush:
        raise ValueError("'flush' is for an open file: give a time, bytes or lines")
    return when


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
Time = Any
"""Seconds, which users give as text with a unit."""
Size = Any
"""Bytes, which users may give as text with a unit."""
PARSERS: dict[str | None, Callable[[str], float]] = {"TIME": parse_duration, "SIZE": parse_bytes}
"""By the kind of value that a docstring names: what makes a value of the text that users give."""
OffsetOf = Annotated[int | None, typer.Option(min=0)]
_COUNT = re.compile(r"-[0-9]+")
_PARAMETERS = "\n\nParameters\n----------\n"
_PARAMETER = re.compile(r"^(\w+)(?: : (.+))?\n((?: {4}.+\n?)+)", re.MULTILINE)

Body = Callable[..., None]


class Command(TyperCommand):
    """A command. With ``-n``, it also takes ``-5`` for ``-n 5``, as `head` and `tail` always did."""

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


def add_commands(app: typer.Typer, title: str, *bodies: Body) -> None:
    """Add functions of the session and of what the user gives as the commands of a group.

    A function's docstring is the help. A parameter without a default is an argument, others are options. After a
    parameter's name, the docstring may name flags and the kind of value: ``lines : -n COUNT``. TIME and SIZE are parsed
    before the command begins.
    """
    for body in bodies:
        about, _, listed = (inspect.getdoc(body) or "").partition(_PARAMETERS)
        name = body.__name__.rstrip("_").replace("_", "-")
        app.command(name, cls=Command, help=about, rich_help_panel=title)(_with_session(body, listed))


def _with_session(body: Body, listed: str) -> Callable[..., None]:
    """Return the function that typer calls: it takes the common options too, and raises the exit code."""
    _, *given = inspect.signature(body, eval_str=True).parameters.values()
    said = {name: (words.split(), " ".join(text.split())) for name, words, text in _PARAMETER.findall(listed)}
    own = {one.name: _described(one, *said.get(one.name, ((), ""))) for one in given}

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        session = Session(common["option"] or (), common["json"], common["debug"], "recursive" in own)
        code = session.run(lambda: body(session, **{name: _parsed(own[name], value) for name, value in given.items()}))
        if code:
            raise typer.Exit(code)

    kind = inspect.Parameter.KEYWORD_ONLY
    common = [inspect.Parameter(name, kind, default=found, annotation=hint) for name, (hint, found) in COMMON.items()]
    run.__signature__ = inspect.Signature([*own.values(), *common])  # type: ignore[attr-defined]  # `inspect` reads it first
    run.__annotations__ = {}
    return run


def _described(parameter: inspect.Parameter, words: Sequence[str], text: str) -> inspect.Parameter:
    """Return a parameter for typer, with its text in the command's docstring."""
    hint, info = parameter.annotation, None
    if hasattr(hint, "__metadata__"):
        hint, info = get_args(hint)
    flags = [word for word in words if word.startswith("-")]
    is_argument = parameter.default is parameter.empty and not flags
    made: ParameterInfo = (
        copy(info) if info is not None else (typer.Argument(show_default=False) if is_argument else typer.Option())
    )
    is_pair = hint in (bool, bool | None) and parameter.default is not False
    if isinstance(made, OptionInfo) and not made.param_decls and not is_pair:
        has_long = any(flag.startswith("--") for flag in flags)
        made.param_decls = [*flags, *([] if has_long else [f"--{parameter.name.rstrip('_').replace('_', '-')}"])]
    made.help = text or made.help
    made.metavar = next((word for word in words if word not in flags), made.metavar)
    if made.metavar in PARSERS:
        hint = str if parameter.default else str | None
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=Annotated[hint, made])


def _parsed(parameter: inspect.Parameter, value: Any) -> Any:
    """Return the value that a command gets for what the user gives."""
    _, info = get_args(parameter.annotation)
    parse = PARSERS.get(info.metavar)
    return value if parse is None else value_of(info.param_decls[-1], value, parse)
