"""The page of the architecture names modules that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
NAMED = re.compile(r"`((?:rollingfs/|tests/|docs/|benchmarks/)?[a-z_0-9]+(?:/[a-z_0-9]+)+(?:\.[a-z_]+)?)/?`")


def exists(name: str) -> bool:
    """Whether a name is a file or folder of the project or of `rollingfs/`, with or without its suffix."""
    stem = name.rsplit(".", 1)[0]
    places = [base / each for base in (ROOT, ROOT / "rollingfs") for each in (name, f"{name}.py", f"{stem}.py")]
    return any(place.exists() for place in places)


def test_every_module_that_the_pages_name_is_there() -> None:
    named = {(page, name) for page in PAGES for name in NAMED.findall((ROOT / page).read_text())}
    assert len(named) > 50
    assert {(page, name) for page, name in named if not exists(name)} == set()
