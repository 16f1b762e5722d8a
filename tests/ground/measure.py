"""All that is found of a server: the facts by a raw client, and the doctor's verdict."""

from typing import Any

from tests.ground.facts import FACTS, ROUNDS, Ground
from tests.ground.servers import Server
from tests.support.cli import Run

VERDICTS = {0: "safe", 3: "refused"}


def measured(server: Server, rounds: int = ROUNDS) -> dict[str, str]:
    """Start a server, and look for each fact."""
    with server.start() as options:
        ground = Ground(server.protocol, options, server.new_bucket(options), rounds)
        doctor = verdict(server, options, ground.bucket)
        return {name: find(ground) for name, find in FACTS.items()} | {"doctor": doctor}


def verdict(server: Server, options: dict[str, Any], bucket: str) -> str:
    """What `rollingfs doctor` says of a bucket."""
    words = [word for name, value in options.items() for word in ("--option", f"{server.protocol}.{name}={value}")]
    found = Run("doctor", *words, f"{server.protocol}://{bucket}")
    return VERDICTS.get(found.code) or found.err.strip()[-200:]
