"""Java takes the mutants of headers and pages that Python takes, and refuses the others; no Spark session is needed."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from rollingfs.errors import CorruptHeaderError
from rollingfs.format.codec import parse_header
from tests.support import spark as world
from tests.support.examples import MANY
from tests.support.mutants import KINDS, mutant

MUTANTS = 100_000
"""As many at a time, which fit in memory."""
RUNS = 100 if MANY else 1
RUN_S_MAX, KIND_S_MAX = 1800, 3 * 3600
PYTHON_ONLY = re.compile(r"line \d+ \('(asks|offload|origin|root|turn)\b|the floor of asks|root or origin")
"""Lines that a reader need not know: Java does not parse them."""

pytestmark = [pytest.mark.slow, pytest.mark.fuzz, pytest.mark.timeout(KIND_S_MAX)]


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    world.require_java()


def refusal(kind: str, data: bytes) -> str | None:
    """Why Python refuses a file; None if it takes the file."""
    try:
        KINDS[kind].parse(data) if kind == "page" else parse_header(data, "x")
    except CorruptHeaderError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["header", "records", "page"])
def test_java_takes_and_refuses_what_python_does(kind: str, tmp_path: Path) -> None:
    chance = random.Random(kind)
    command = [*world.java_command("format.Fuzz", tmp_path), "page" if kind == "page" else "header"]
    for _ in range(RUNS):
        compare(kind, [data for data in (mutant(KINDS[kind], chance) for _ in range(MUTANTS)) if data], command)


def compare(kind: str, files: list[bytes], command: list[str]) -> None:
    said = world.java_takes(files, command, RUN_S_MAX)
    assert {True, False} == set(said)
    for data, is_taken in zip(files, said, strict=True):
        reason = refusal(kind, data)
        if (reason is None) != is_taken:
            assert is_taken, f"Java refuses {data!r}, Python does not"
            assert reason is not None
            assert PYTHON_ONLY.search(reason), f"Java takes {data!r}; Python: {reason}"
