"""All that is found of a server: the facts by a raw client, and the doctor's verdict."""

import tempfile
from typing import Any

from tests.ground.facts import FACTS, ROUNDS, Ground
from tests.ground.life import lived
from tests.ground.servers import Server
from tests.soak.__main__ import soak
from tests.soak.check import Told, broken
from tests.soak.plan import Place
from tests.support.cli import Run

SOAK_S = 30.0
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


def soaked(place: Place, seconds: float) -> str:
    """Kill processes at random for so long; the number of acknowledged appends, or a broken promise."""
    soak(place, seconds, seed=1)
    acked = len(Told(place).acked)
    found = [*broken(place)] if acked else ["no append was acknowledged"]
    return f"**{found[0]}**" if found else f"kept ({acked})"


def survived(server: Server, seconds: float) -> dict[str, str]:
    """Start a server, live a life on it, and kill processes there."""
    with server.start() as options, tempfile.TemporaryDirectory() as notes:
        bucket = server.new_bucket(options)
        life, data = (Place(server.protocol, f"{bucket}/{name}", options, notes) for name in ("life", "data"))
        return {"life": lived(life), "kill -9": soaked(data, seconds)}
