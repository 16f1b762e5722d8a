"""The documentation site is built with no warning, and its reference has the public API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rollingfs
from tests.support.servers import require_module

require_module("mkdocs")

ROOT = Path(__file__).parents[2]
VERBS = ("append", "cat_ranges", "collect", "concat", "create", "export", "open", "seal", "truncate")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_names_every_public_name_and_verb(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert built.returncode == 0, built.stderr
    reference = (tmp_path / "reference" / "index.html").read_text()
    for verb in VERBS:
        assert f'id="rollingfs.RollingFileSystem.{verb}"' in reference
    for name in rollingfs.__all__:
        assert f'id="rollingfs.{name}"' in reference or f'id="rollingfs.errors.{name}"' in reference, name
