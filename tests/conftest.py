"""Fixtures that all tests share: servers, buckets, settings of hypothesis."""

import contextlib
import functools
import gc
import importlib.metadata
import os
import re
import signal
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings

from rollingfs.backend import patience, verdicts
from tests.support.certificates import make_certificate
from tests.support.clouds import azurite_server, fake_google_server, new_container
from tests.support.environments import built_release
from tests.support.examples import examples
from tests.support.seaweed import seaweed_server
from tests.support.servers import believe, minio_server, moto_server, new_bucket, require_module, shared

# a deadline would be a timing assertion: it fails on a machine that is busy
settings.register_profile(
    "rollingfs", deadline=None, max_examples=examples(), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rollingfs")

# a shell starts background jobs with SIGINT ignored; processes that a test interrupts would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# else each worker, and each of some hundred processes of the tests, would compile all modules
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# imports and the collection of tests leave no garbage; searching for it takes a third of their time
gc.disable()

if sys.platform == "win32":

    class Slashed(type(Path())):  # type: ignore[misc]
        """A path that reads as rollingfs writes it: with slashes."""

        def __str__(self) -> str:
            return str(super().__str__()).replace("\\", "/")

    @pytest.fixture
    def tmp_path(tmp_path: Path) -> Path:
        """Return the folder of a test by a name that stands in paths, URLs and patterns."""
        return Slashed(tmp_path)


PATIENCE_S = 3.0
WORKERS_WAITING = 2
"""So many workers wait for a server at any time."""
SLOW_MODULE = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
VERSIONS_SHOWN = ("fsspec", "s3fs", "botocore", "obstore", "pyarrow", "pandas")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: many tests wait for a server."""
    return WORKERS_WAITING + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that is done takes tests from another one: some modules wait for servers for most of a minute."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare the fast suite modules that are slow as a whole: each worker would import them, and collect their tests."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return SLOW_MODULE.search(collection_path.read_text(encoding="utf-8")) is not None or None


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over all that was imported and collected; see `gc.disable` above."""
    gc.freeze()
    gc.enable()


def pytest_report_header() -> str:
    """Name the versions on which results depend."""
    return "rollingfs with: " + ", ".join(f"{name} {_version(name)}" for name in VERSIONS_SHOWN)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line why tests were skipped."""
    reasons = Counter(map(_reason, terminalreporter.stats.get("skipped", [])))
    if reasons:
        terminalreporter.write_line("skipped: " + "; ".join(f"{reason} ({count})" for reason, count in reasons.items()))


def _reason(report: Any) -> str:
    path, _, reason = report.longrepr
    if Path(path).parent.name == "testing":  # `BackendContract`, whose reasons are many
        return "what a store of the contract has not"
    return str(reason).removeprefix("Skipped: ")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(absent)"


@pytest.fixture(scope="session")
def session_patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session", autouse=True)
def no_outside_credentials(session_patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the clouds' configuration of this machine, and caches in its HOME, out of the tests."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        session_patch.delenv(name)
    session_patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
    session_patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    session_patch.setenv("AWS_CONFIG_FILE", os.devnull)
    session_patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(scope="session", autouse=True)
def little_patience(session_patch: pytest.MonkeyPatch) -> None:
    """Backends that no client calls soon give up on a store that fails, as most of their tests want one to."""
    session_patch.setattr(patience, "PATIENCE_S", PATIENCE_S)


@pytest.fixture(scope="session", autouse=True)
def no_verdicts_of_this_user(session_patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the probe's verdicts out of the user's cache folder, and out of each other's tests and processes.

    What stands where their folder would be is a file. Tools that the tests start go on with the user's caches.
    """
    cache = tmp_path_factory.mktemp("cache")
    (cache / "rollingfs").write_text("no folder\n")
    of_user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for name, folder in (("PIP_CACHE_DIR", "pip"), ("GOCACHE", "go-build"), ("UV_CACHE_DIR", "uv")):
        session_patch.setenv(name, os.environ.get(name, os.path.join(of_user, folder)))
    session_patch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(scope="module", autouse=True)
def nothing_old_to_search() -> None:
    """Exclude all objects made before this module from garbage collection, and empty the store ``memory``.

    Many tests call `gc.collect`. It then visits the objects of one module, not of thousands of tests.
    The files of the modules before go, too: a listing of the store ``memory`` visits all its files.
    """
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    _collect()
    gc.freeze()


def _collect() -> None:
    with warnings.catch_warnings():
        # tests with a loop of their own leave s3fs's connections, which nobody can close once the loop is closed
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(2):  # the end of one client lets go of another
            gc.collect()


@pytest.fixture(scope="session", autouse=True)
def models_read_once(session_patch: pytest.MonkeyPatch) -> None:
    """Cache botocore's descriptions of services: reading them is most of the cost of a new client."""
    if _version("botocore") == "(absent)":
        return
    from botocore.loaders import JSONFileLoader

    load = functools.cache(JSONFileLoader().load_file)
    session_patch.setattr(JSONFileLoader, "load_file", lambda self, path: load(path))


def served(server: Callable[[], contextlib.AbstractContextManager[dict[str, Any]]]) -> Any:
    """A fixture: the options by which clients reach a server that the tests of all workers share."""

    @pytest.fixture(scope="session")
    def options(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
        folder = tmp_path_factory.getbasetemp()
        run = folder.parent if hasattr(request.config, "workerinput") else folder
        with shared(server, run / f"{request.fixturename}.json") as options:
            yield options

    return options


moto, minio, azurite, fake_google = map(served, (moto_server, minio_server, azurite_server, fake_google_server))
minio_of_region = served(functools.partial(minio_server, region="us-east-1"))
"""It takes requests to ``us-east-1`` only."""


seaweed_shared = served(seaweed_server)
release_shared = served(built_release)


@pytest.fixture(scope="session")
def seaweed(seaweed_shared: dict[str, Any]) -> dict[str, Any]:
    """Storage options of s3fs for a SeaweedFS server: the real store of the fast suite."""
    believe(seaweed_shared["endpoint_url"], delete_if=True)  # tests of the probe, the contract and doctor find it out
    return seaweed_shared


@pytest.fixture(scope="session")
def minio_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Path]]:
    """Storage options of s3fs for a MinIO server that speaks https, and the CA that signed its certificate."""
    require_module("cryptography")
    certificate = make_certificate(tmp_path_factory.mktemp("certificate"))
    with minio_server(certificate) as options:
        yield options, certificate


@pytest.fixture(scope="module")
def seaweed_bucket(seaweed: dict[str, Any]) -> str:
    """A bucket on SeaweedFS that the tests of a module share."""
    return new_bucket(seaweed)


@pytest.fixture(scope="module")
def azure_container(azurite: dict[str, Any]) -> str:
    """A container on azurite that the tests of a module share."""
    return new_container(azurite)


@pytest.fixture(scope="module", params=["seaweed", pytest.param("minio", marks=[pytest.mark.s3, pytest.mark.slow])])
def s3_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Storage options of s3fs, once for each store."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(s3_options: dict[str, Any]) -> str:
    """A new bucket on the store of `s3_options`."""
    return new_bucket(s3_options)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets constants of a module, as ``limits(prefetch, READ_BYTES_MIN=100)``, for the time of a test."""

    def set_to(module: object, **constants: object) -> None:
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)

    return set_to


@pytest.fixture
def nothing_known() -> Iterator[None]:
    """Let a test be a process that knows no verdict of a store."""
    with mock.patch.dict(verdicts._of_process, clear=True), mock.patch.dict(verdicts._unsafe, clear=True):
        yield


@pytest.fixture
def root() -> str:
    """A folder of the store ``memory`` that no other test has."""
    return f"/{uuid.uuid4().hex}"


@pytest.fixture
def store() -> Any:
    """A store in memory with a tier, with virtual dates."""
    from tests.support.faults import TieredStore

    return TieredStore()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time for the library, so that no test waits."""
    from tests.support.faults import hurry

    hurry(monkeypatch)
