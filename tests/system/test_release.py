"""The release is built, checked as a package index checks it, and works where it is installed in fresh environments."""

import os
import re
import shutil
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.support.environments import ROOT, environment, install, run, uv
from tests.support.examples import nightly
from tests.support.servers import require, require_module

for module in ("build", "check_wheel_contents", "twine", "uv"):
    require_module(module)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("s3", "cli")
PROGRAM = """
import importlib.util, sys, fsspec
from rollingfs import RollingFileSystem

for protocol, folder in (("memory", "/x"), ("file", sys.argv[1])):
    fs = RollingFileSystem(protocol)
    fs.create(f"{folder}/a")
    fs.append(f"{folder}/a", b"0123456789" * 100_000)
    fs.seal(f"{folder}/a")
    fs.create(f"{folder}/b")
    fs.concat(f"{folder}/b", [f"{folder}/a"])
    fs.truncate(f"{folder}/b", 5)
    assert fs.cat_file(f"{folder}/b") == (b"0123456789" * 100_000)[5:]
    with fsspec.open(f"rolling::{protocol}://{folder}/b", "ab") as file:
        file.write(b"!")
    with fsspec.open(f"rolling+{protocol}://{folder}/b") as file:
        assert file.read()[-2:] == b"9!"
RollingFileSystem("s3", {"anon": True})
assert importlib.util.find_spec("pyspark_rollingfs") is not None
"""


@dataclass(frozen=True)
class Release:
    wheel: Path
    sdist: Path

    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            return message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def release(release_shared: dict[str, str]) -> Release:
    return Release(Path(release_shared["wheel"]), Path(release_shared["sdist"]))


def interpreter(version: str) -> str | None:
    """A Python of this version on this machine: on the PATH, or made by pyenv."""
    try:
        return uv("python", "find", "--no-python-downloads", "--system", version).strip()
    except AssertionError:
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        return next(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), None)


def works(python: Path, folder: Path) -> None:
    """The program runs, with no warning, and so does the installed command."""
    folder.mkdir()
    run(python, "-W", "error", "-c", PROGRAM, folder, cwd=folder)
    assert run(python.with_name("rollingfs"), "--version").startswith("rollingfs ")
    assert re.search(
        r"open, version \d+, start 5, length 1,000,001", run(python.with_name("rollingfs"), "map", folder / "b")
    )


# -- the files -----------------------------------------------------------------------------------------------------


def test_wheel_and_sdist_pass_checks_of_package_index(release: Release) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", release.wheel, release.sdist)
    run(sys.executable, "-m", "check_wheel_contents", "--config", ROOT / "pyproject.toml", release.wheel)


def test_index_readme_has_only_valid_links_and_pictures(release: Release) -> None:
    readme = release.metadata().get_payload()
    assert "RollingFileSystem" in readme
    assert [link for link in re.findall(r"\]\(([^)]*)\)", readme) if not link.startswith("https://")] == []
    assert "Tutorial (`docs/tutorial.md`)" in readme
    assert "map.svg" not in readme


def test_the_metadata_promise_what_is_tested(release: Release) -> None:
    metadata = release.metadata()
    classifiers = metadata.get_all("Classifier") or []
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert not any("OS Independent" in one or "Windows" in one or "MacOS" in one for one in classifiers)
    named = {one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.\d+$", one)}
    assert named <= set(PYTHONS)
    assert metadata.get_all("Project-URL") is None  # there is no public repository that one could name


def test_sdist_has_tests_and_pages_that_readme_names(release: Release) -> None:
    with tarfile.open(release.sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    links = re.findall(r"\]\((?!https://)([^)]*)\)", (ROOT / "README.md").read_text())
    assert len(links) > 8
    assert set(links) <= held
    assert {"tests/system/test_release.py", "pyproject.toml", "LICENSE"} <= held


# -- installed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", [PYTHONS[0], *nightly(PYTHONS[1]), *PYTHONS[2:]])
def test_the_installed_wheel_works(release: Release, tmp_path: Path, python: str) -> None:
    found = interpreter(python)
    if found is None:
        pytest.skip(f"there is no Python {python} on this machine")  # not by `require`: it may not be to be had
    fresh = environment(tmp_path / "venv", found)
    install(fresh, f"rollingfs[{','.join(EXTRAS)}] @ {release.wheel.as_uri()}")
    works(fresh, tmp_path / "data")


def test_the_installed_sdist_works(release: Release, tmp_path: Path) -> None:
    fresh = environment(tmp_path / "venv")
    install(fresh, f"rollingfs[{','.join(EXTRAS)}] @ {release.sdist.as_uri()}")
    works(fresh, tmp_path / "data")


@pytest.mark.nightly
def test_it_works_with_the_oldest_dependencies_that_it_names(release: Release, tmp_path: Path) -> None:
    fresh = environment(tmp_path / "venv", "3.11")
    extras = [word for extra in (*EXTRAS, "demo") for word in ("--extra", extra)]
    # what is direct must be named: the dependencies of a wheel would not be
    oldest = ("--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml", *extras)
    install(fresh, *oldest)
    install(fresh, "--no-deps", release.wheel)
    installed = uv("pip", "list", "--python", fresh)
    assert re.search(r"^pandas +2\.2\.", installed, re.MULTILINE)
    assert re.search(r"^typer +0\.19\.", installed, re.MULTILINE)
    works(fresh, tmp_path / "data")
    said = run(fresh, "-m", "rollingfs.demo", "--long", "--rows", "1200", "--folder", tmp_path / "demo", cwd=tmp_path)
    assert "10 of 10 check sums agree" in said


def test_wheel_built_without_jdk_says_so_twice(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        require("this is no checkout of git")
    tree = tmp_path / "tree"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    fresh = environment(tmp_path / "venv")
    path = str(fresh.parent)  # no javac is there
    build = (sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, tree)
    assert "built without its jar for Spark" in run(*build, PATH=path)
    [wheel] = tmp_path.glob("*.whl")
    install(fresh, f"rollingfs[{','.join(EXTRAS)}] @ {wheel.as_uri()}")
    works(fresh, tmp_path / "data")
    asks = "from rollingfs.spark.jar import own_jar\ntry: own_jar()\nexcept FileNotFoundError as error: print(error)"
    said = run(fresh, "-c", asks, cwd=tmp_path, PATH=path)
    assert "rollingfs is installed without its jar for Spark" in said
    assert "install a JDK 17" in said
