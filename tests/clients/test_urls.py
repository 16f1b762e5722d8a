"""The page on URLs says what clients do with each form."""

import importlib

import pytest

from tests.clients.urls import CLIENTS, FORMS, cells, outcome
from tests.support.servers import found_by

HEAVY = {"loguru", "xarray, of zarr", "ray"}
"""Clients of the extra `formats`, which `.ci/nightly` has. The extras `test` and `integrations` have the others."""
LETTERS = "rollingfile://"
"""The form that `.ci/run` tries."""
CASES = [
    pytest.param(
        client,
        form,
        marks=[pytest.mark.slow, *([] if client not in HEAVY and form == LETTERS else [pytest.mark.nightly])],
    )
    for client in CLIENTS
    for form in FORMS
]


@pytest.mark.parametrize(("client", "form"), CASES)
def test_a_client_does_what_the_page_says(client: str, form: str) -> None:
    found = found_by(outcome, client, form)
    assert found == cells()[client, form]


def test_the_page_has_a_row_for_each_client() -> None:
    assert {client for client, _ in cells()} == set(CLIENTS)


@pytest.mark.parametrize("scheme", ["rolling+memory://", "rolling::memory://"])
def test_bare_urls_reach_neither_duckdb_nor_arrow(scheme: str) -> None:
    duckdb, pyarrow = found_by(importlib.import_module, "duckdb"), found_by(importlib.import_module, "pyarrow")
    with pytest.raises(duckdb.IOException, match=r"No files found"):
        duckdb.sql(f"select * from '{scheme.replace('+', '::')}/x.csv'")
    with pytest.raises(pyarrow.ArrowInvalid, match="Unrecognized filesystem type in URI"):
        importlib.import_module("pyarrow.parquet").read_table(f"{scheme}/x.parquet")
