"""What the tests of the disk and of S3 share, and the marks of tests that a class inherits from the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local.backend import LocalBackend
from tests.support.driven import Driven
from tests.support.proxy import Proxy, proxy_to


@pytest.fixture
def backend() -> Driven:
    return Driven(LocalBackend())


@pytest.fixture
def header(tmp_path: Path) -> str:
    return f"{tmp_path}/segment$header"


@pytest.fixture
def proxy(seaweed: dict[str, Any]) -> Iterator[Proxy]:
    with proxy_to(seaweed["endpoint_url"]) as proxy:
        yield proxy


@pytest.fixture
def moto_proxy(moto: dict[str, Any]) -> Iterator[Proxy]:
    """Of a store that takes any credentials, and knows the regions of buckets, as SeaweedFS does not."""
    with proxy_to(moto["endpoint_url"]) as proxy:
        yield proxy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark inherited tests as the table `MARKS` of their class says, by name, with or without a parameter."""
    for item in items:
        marks = getattr(getattr(item, "cls", None), "MARKS", {})
        for name in {item.name, item.name.partition("[")[0]} & marks.keys():
            item.add_marker(marks[name])
