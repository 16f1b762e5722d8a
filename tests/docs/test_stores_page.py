"""`docs/stores.md` calls a store "measured" only where a test measures it here, or says when somebody did by hand."""

import re
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.checkup import NO, YES, examine
from rollingfs.backend.contract import Backend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.runtime.concurrency import AsyncRuntime, SyncRuntime
from rollingfs.testing import run
from tests.support.backends import private_memory
from tests.support.clouds import new_container, new_google_bucket
from tests.support.servers import new_bucket, require_module, shared_backend

require_module("obstore")
require_module("gcsfs")
from gcsfs import GCSFileSystem

from rollingfs.backend.objects.opening import open_azure, open_google

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
COLUMNS = ("conditional create", "conditional replace", "conditional delete")
BY_HAND = re.compile(r"by hand, \d{4}-\d\d-\d\d")


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "measured" in line]
    return {
        cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    }


def says(cell: str) -> str:
    return YES if cell.startswith("measured: yes") else NO


def check(name: str, backend: Backend, folder: str) -> None:
    runtime = AsyncRuntime() if backend.is_async else SyncRuntime()
    found = {one.what: one.answer for one in run(backend, examine(backend, runtime, folder)).findings}
    [cells] = [cells for store, cells in rows().items() if store.startswith(name)]
    assert [says(cell) for cell in cells[:3]] == [found[what] for what in COLUMNS], (name, found)
    on_the_server = [found["copy on the server"], found["join on the server"]]
    assert says(cells[3]) == (YES if on_the_server == [YES, YES] else NO), (name, found)


def test_memory_is_as_the_page_says() -> None:
    check("memory", private_memory(), "")


def test_a_local_disk_is_as_the_page_says(tmp_path: Path) -> None:
    check("a local disk", LocalBackend(), str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "server"), [("SeaweedFS", "seaweed"), ("MinIO", "minio")])
def test_a_server_of_s3_is_as_the_page_says(name: str, server: str, request: pytest.FixtureRequest) -> None:
    options: dict[str, Any] = request.getfixturevalue(server)
    check(name, shared_backend(**options), new_bucket(options))


@pytest.mark.slow
@pytest.mark.clouds
def test_azurite_is_as_the_page_says(azurite: dict[str, Any]) -> None:
    check("azurite", open_azure("az", azurite), new_container(azurite))


@pytest.mark.slow
@pytest.mark.clouds
def test_fake_gcs_server_is_as_the_page_says(fake_google: dict[str, Any]) -> None:
    check("fake-gcs-server", open_google(GCSFileSystem(**fake_google)), new_google_bucket(fake_google))


def test_what_no_test_measures_says_when_it_was_measured_by_hand() -> None:
    tested = ("memory", "a local disk", "SeaweedFS", "MinIO", "azurite", "fake-gcs-server")
    for store in rows():
        assert store.startswith(tested) or BY_HAND.search(store), store
