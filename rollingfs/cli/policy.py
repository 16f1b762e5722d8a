"""The command ``policy``, which shows and changes the policies of segments and folders."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from rollingfs.cli import output
from rollingfs.cli.command import Commands, PathOf
from rollingfs.cli.durations import parse_duration
from rollingfs.cli.errors import WrongUsage, value_of
from rollingfs.cli.session import Session
from rollingfs.policy import KEEP, OffloadPolicy, RollingPolicy

commands = Commands("Upkeep")

NEVER = "never"


@commands("policy")
def policy(
    session: Session,
    path: PathOf,
    tier: Annotated[
        str | None, typer.Option(metavar="ALIAS", help="Move chunks to this tier; '' to move nothing.")
    ] = None,
    after_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Move chunks before this number of newest bytes.")
    ] = None,
    after_age: Annotated[str | None, typer.Option(metavar="TIME", help="Move chunks that are older.")] = None,
    lag: Annotated[str | None, typer.Option(metavar="TIME", help="Keep the old files so long (4h).")] = None,
    no_offload: Annotated[bool, typer.Option("--no-offload", help="Remove the offload policy of this level.")] = False,
    max_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help="The largest chunk of the segment.")] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="TIME", help="The oldest inline tail of the segment, or 'never'.")
    ] = None,
    inline_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The longest inline tail of the segment.")
    ] = None,
    consolidate: Annotated[
        bool | None,
        typer.Option("--consolidate/--no-consolidate", help="Whether run joins small chunks of the segment (it does)."),
    ] = None,
) -> None:
    """Show the policies of a segment or folder; with options, change them first.

    Of --tier, --after-bytes, --after-age and --lag, those that are given become the offload policy of this level, in
    place of what it had. What it leaves open, the folder and then the filesystem say.

    With --json: name, rolling, and offload, which counts, as segment, folder and filesystem have it.
    """
    fields = {"tier": tier, "after_bytes": after_bytes, "after_age": after_age, "deletion_lag": lag}
    given = {name: value for name, value in fields.items() if value is not None}
    if given and no_offload:
        raise WrongUsage("--no-offload removes the policy: give no --tier, --after-bytes, --after-age or --lag with it")
    for option, text in (("--after-age", after_age), ("--lag", lag), ("--max-age", max_age)):
        value_of(option, None if text == NEVER else text, parse_duration)
    value_of("--max-bytes", max_bytes, partial(_rolling_with, "max_bytes"))
    value_of("--max-age", None if max_age == NEVER else max_age, partial(_rolling_with, "max_age"))
    value_of("--inline-bytes", inline_bytes, partial(_rolling_with, "inline_bytes"))
    try:
        changes: dict[str, Any] = {
            "offload": OffloadPolicy(**given) if given else (None if no_offload else KEEP),
            "max_bytes": max_bytes,
            "max_age": KEEP if max_age is None else (None if max_age == NEVER else max_age),
            "inline_bytes": inline_bytes,
            "consolidate": consolidate,
        }
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    place = session.place(path)
    session.interrupted = f"{path}: interrupted; show the policy again to see whether it changed"
    if any(value is not None and value is not KEEP for name, value in changes.items() if name != "offload") or (
        changes["offload"] is not KEEP or max_age == NEVER
    ):
        place.fs.set_policy(place.path, **changes)
    found = place.fs.get_policy(place.path)
    levels = {"segment": found.segment, "folder": found.folder, "filesystem": found.filesystem}
    lines = [f"rolling: {policy_text(found.rolling)}"] if found.rolling is not None else []
    lines.append(f"offload: {_words(found.offload)}")
    lines += [f"  {name}: {_words(level)}" for name, level in levels.items() if level is not None]
    if session.json:
        output.write_json({"name": place.name, "rolling": found.rolling, "offload": found.offload, **levels})
        return
    for line in lines:
        output.say(line)


def _rolling_with(name: str, value: Any) -> RollingPolicy:
    return RollingPolicy(**{name: value})


def policy_text(policy: RollingPolicy) -> str:
    """A rolling policy in words."""
    age = NEVER if policy.max_age is None else f"{policy.max_age:g}s"
    text = f"max_bytes={policy.max_bytes:,} max_age={age} inline_bytes={policy.inline_bytes:,}"
    return text if policy.consolidate else f"{text} consolidate=no"


def _words(policy: OffloadPolicy | None) -> str:
    if policy is None:
        return "no policy"
    texts = {"tier": policy.tier or "(none: nothing moves)"} if policy.tier is not None else {}
    if policy.after_bytes is not None:
        texts["after_bytes"] = f"{policy.after_bytes:,}"
    if policy.after_age is not None:
        texts["after_age"] = f"{policy.after_age:g}s"
    if policy.deletion_lag is not None:
        texts["deletion_lag"] = f"{policy.deletion_lag:g}s"
    return " ".join(f"{name}={text}" for name, text in texts.items())
