"""The documentation site is built with no warning, and its reference has the public API."""

import subprocess
import sys
from pathlib import Path

import pytest

import rollingfs
from rollingfs.fs.opening import OPTIONS
from tests.support.servers import require_module

require_module("mkdocs")

ROOT = Path(__file__).parents[2]
VERBS = ("append", "cat_ranges", "collect", "concat", "create", "export", "open", "seal", "truncate")


WRONG = ("str(object=", "bool(x) -&gt;", "int([x])", "method()", "&lt;member", "<code>(<")
"""What the reference shows if griffe takes a docstring from a type, a default from a callback, names for a tuple."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def pages_of_the_reference(site: Path) -> str:
    """The text of all pages of the reference."""
    return "".join(page.read_text() for page in sorted((site / "reference").rglob("index.html")))


@pytest.mark.slow
@pytest.mark.nightly
def test_the_site_has_every_public_name_and_no_warning(site: Path) -> None:
    reference = pages_of_the_reference(site)
    for verb in VERBS:
        assert f'id="rollingfs.RollingFileSystem.{verb}"' in reference
    for name in rollingfs.__all__:
        assert f'id="rollingfs.{name}"' in reference or f'id="rollingfs.errors.{name}"' in reference, name
    assert 'id="rollingfs.backend.contract.Backend"' in (site / "reference" / "backend" / "index.html").read_text()
    for beside in ("changelog", "contributing", "security"):
        assert (site / beside / "index.html").exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_the_reference_shows_nothing_that_was_misread(site: Path) -> None:
    reference = pages_of_the_reference(site)
    assert [text for text in WRONG if text in reference] == []
    opening = reference.partition('id="rollingfs.RollingFileSystem.open"')[2].partition('id="rollingfs.')[0]
    for option in OPTIONS - {"autocommit", "block_size", "cache_options", "cache_type"}:
        assert f"<code>{option}</code>" in opening, f"open(…, {option}=…) is not described"
