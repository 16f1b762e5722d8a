"""The command ``policy``, which shows and changes the policies of segments and folders."""

from __future__ import annotations

from functools import partial
from typing import Any

from rollingfs.cli import output
from rollingfs.cli.command import PathOf, Size, Time, parse_duration
from rollingfs.cli.errors import WrongUsage, value_of
from rollingfs.cli.output import picked
from rollingfs.cli.session import Session
from rollingfs.format.policies import PolicyChange
from rollingfs.policy import FOREVER, KEEP, MAX_AGE_S_MAX, OffloadPolicy, RollingPolicy

NEVER = "never"


def policy(
    session: Session,
    path: PathOf,
    tier: str | None = None,
    after_bytes: Size = None,
    after_age: Time = None,
    lag: Time = None,
    block_bytes: Size = None,
    max_delay: Time = None,
    no_offload: bool = False,
    max_bytes: Size = None,
    max_age: str | None = None,
    inline_bytes: Size = None,
    consolidate: bool | None = None,
    inherit: list[str] | None = None,
) -> None:
    """Show the policies of a segment or folder; with options, change them first.

    Of --tier, --after-bytes, --after-age, --lag, --block-bytes and --max-delay, the given options become the offload
    policy of this level, in place of the old. Missing fields come from the folders, the nearest first, then the
    filesystem. A folder's policy of chunks is carried to all segments below it at once.

    With --json: name; rolling, offload and retention in force; the offload of segment, folder and filesystem; and
    sources, the level of each field.

    Parameters
    ----------
    tier : ALIAS
        Move chunks to this tier; '' to move no chunk.
    after_bytes : SIZE
        Move chunks before this number of newest bytes.
    after_age : TIME
        Move chunks that are older.
    lag : TIME
        Time to keep the old files (4h).
    block_bytes : SIZE
        Join chunks that move to files of up to this (64MiB).
    max_delay : TIME
        Longest wait for a full block; then move the tail too.
    no_offload
        Remove the offload policy of this level.
    max_bytes : SIZE
        The largest chunk of the segment.
    max_age : TIME|never
        The oldest inline tail of the segment, or 'never'.
    inline_bytes : SIZE
        The longest inline tail of the segment.
    consolidate
        Whether run joins small chunks of the segment (default: yes).
    inherit : FIELD
        Of max_bytes, max_age, inline_bytes, consolidate: leave it to the next level.
    """
    fields = {
        "tier": tier,
        "after_bytes": after_bytes,
        "after_age": after_age,
        "deletion_lag": lag,
        "block_bytes": block_bytes,
        "max_delay": max_delay,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if given and no_offload:
        raise WrongUsage("--no-offload removes the policy: give no --tier and no other option of such a policy with it")
    seconds = value_of("--max-age", None if max_age == NEVER else max_age, parse_duration)
    for name, value in {"max-bytes": max_bytes, "max-age": seconds, "inline-bytes": inline_bytes}.items():
        value_of(f"--{name}", value, partial(_rolling_with, name.replace("-", "_")))
    try:
        changes: dict[str, Any] = {
            "offload": OffloadPolicy(**given) if given else (None if no_offload else KEEP),
            "max_bytes": max_bytes,
            "max_age": KEEP if max_age is None else (None if max_age == NEVER else max_age),
            "inline_bytes": inline_bytes,
            "consolidate": consolidate,
            "inherit": tuple(inherit) if inherit else None,
        }
        PolicyChange(inherit=changes["inherit"] or ())
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    place = session.place(path)
    session.interrupted = f"{path}: interrupted; show the policy again to see whether it changed"
    if any(value is not None and value is not KEEP for name, value in changes.items() if name != "offload") or (
        changes["offload"] is not KEEP or max_age == NEVER
    ):
        place.fs.set_policy(place.path, **changes | {"inherit": changes["inherit"] or ()})
    found = place.fs.get_policy(place.path)
    if session.json:
        fields = picked(found, "rolling offload segment folder filesystem sources")
        kept = None if found.retention is None else found.retention.as_fields()
        output.write_json({"name": place.name, **fields, "retention": kept})
        return
    if found.rolling is not None:
        output.say(f"rolling: {policy_text(found.rolling)}")
    output.say(f"offload: {_words(found.offload)}")
    if found.retention is not None:
        kept = found.retention.as_fields()
        output.say("retention: " + " ".join(f"{name}={_amount(name, value)}" for name, value in kept.items()))
    for kind, sources in found.sources.items():
        for name, where in sources.items():
            output.say(f"  {kind} {name}: from {where}")


def _rolling_with(name: str, value: Any) -> RollingPolicy:
    return RollingPolicy(**{name: value})


def policy_text(policy: RollingPolicy) -> str:
    """Return a rolling policy in words."""
    age = NEVER if policy.max_age is None else f"{policy.max_age:g}s"
    text = f"max_bytes={policy.max_bytes:,} max_age={age} inline_bytes={policy.inline_bytes:,}"
    return text if policy.consolidate else f"{text} consolidate=no"


def _words(policy: OffloadPolicy | None) -> str:
    if policy is None:
        return "no policy"
    fields = policy.as_fields() | ({} if policy.tier is None else {"tier": policy.tier or "(none: nothing moves)"})
    return " ".join(f"{name}={_amount(name, value)}" for name, value in fields.items())


def _amount(name: str, value: Any) -> str:
    if name in ("tier", "align"):
        return str(value)
    if value == MAX_AGE_S_MAX:
        return FOREVER
    return f"{value:,}" if name.endswith("_bytes") else f"{value:g}s"
