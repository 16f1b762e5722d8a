"""The release, and fresh environments of Python in which it is installed."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import require_module

ROOT = Path(__file__).parents[2]
RUN_S_MAX = 600
# In the checkout, Python would import that one. Tests of a command skip what a newcomer has not installed, in CI, too.
NOT_PASSED_ON = {"PYTHONPATH", "VIRTUAL_ENV", "ROLLINGFS_REQUIRE"}


def run(*words: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command as a newcomer would, and return its output; fail where it does not succeed."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}"
    return done.stdout


def uv(*words: str | Path) -> str:
    return run(sys.executable, "-m", "uv", *words)


def environment(folder: Path, python: str = sys.executable) -> Path:
    """The Python of a fresh environment."""
    uv("venv", "--quiet", "--python", python, folder)
    return folder / "bin" / "python"


def install(python: Path, *words: str | Path) -> None:
    uv("pip", "install", "--quiet", "--python", python, *words)


@contextlib.contextmanager
def built_release() -> Iterator[dict[str, str]]:
    """The source distribution, and the wheel that is built from it."""
    for module in ("build", "uv"):
        require_module(module)
    with tempfile.TemporaryDirectory(prefix="rollingfs-dist-") as folder:
        run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, ROOT, cwd=Path(folder))
        [wheel], [sdist] = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        yield {"wheel": str(wheel), "sdist": str(sdist)}
