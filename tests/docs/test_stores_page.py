"""`docs/stores.md` calls a store "measured" only where a test measures it here, or says when somebody did by hand."""

import re
from collections.abc import Callable
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
from tests.support.examples import slowly
from tests.support.servers import new_bucket, require_module, shared_backend

require_module("obstore")
require_module("gcsfs")
from gcsfs import GCSFileSystem

from rollingfs.backend.objects import open_azure, open_google

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
COLUMNS = ("conditional create", "conditional replace", "conditional delete")
BY_HAND = re.compile(r"by hand, \d{4}-\d\d-\d\d")


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "measured" in line]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {name: rest for name, *rest in cells}


def says(cell: str) -> str:
    return YES if cell.startswith("measured: yes") else NO


STORES: dict[str, Callable[[Callable[[str], Any]], tuple[Backend, str]]] = {
    "memory": lambda _: (private_memory(), ""),
    "a local disk": lambda of: (LocalBackend(), str(of("tmp_path"))),
    "SeaweedFS": lambda of: (shared_backend(**of("seaweed")), new_bucket(of("seaweed"))),
    "MinIO": lambda of: (shared_backend(**of("minio")), new_bucket(of("minio"))),
    "azurite": lambda of: (open_azure("az", of("azurite")), new_container(of("azurite"))),
    "fake-gcs-server": lambda of: (
        open_google(GCSFileSystem(**of("fake_google"))),
        new_google_bucket(of("fake_google")),
    ),
}
"""A backend and a folder on it, of the values of fixtures."""
CLOUDS = [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.clouds]) for name in ("azurite", "fake-gcs-server")]


@pytest.mark.parametrize("name", ["memory", "a local disk", *slowly("SeaweedFS", "MinIO"), *CLOUDS])
def test_a_store_is_as_the_page_says(name: str, request: pytest.FixtureRequest) -> None:
    backend, folder = STORES[name](request.getfixturevalue)
    runtime = AsyncRuntime() if backend.is_async else SyncRuntime()
    found = {one.what: one.answer for one in run(backend, examine(backend, runtime, folder)).findings}
    [cells] = [cells for store, cells in rows().items() if store.startswith(name)]
    assert [says(cell) for cell in cells[:3]] == [found[what] for what in COLUMNS], (name, found)
    on_the_server = [found["copy on the server"], found["join on the server"]]
    assert says(cells[3]) == (YES if on_the_server == [YES, YES] else NO), (name, found)


def test_stores_measured_by_hand_have_a_date() -> None:
    for store in rows():
        assert store.startswith(tuple(STORES)) or BY_HAND.search(store), store
