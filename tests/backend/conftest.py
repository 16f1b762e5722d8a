"""What the tests of the disk and of S3 share, and the marks of tests that a class inherits from the contract."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local.backend import LocalBackend
from tests.support.driven import Driven
from tests.support.places import new_fs
from tests.support.proxy import Proxy, proxy_to

BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@pytest.fixture
def no_outside_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the proxies and certificates of this machine out of a test."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name in BUNDLES]:
        monkeypatch.delenv(name)


@pytest.fixture
def backend() -> Driven:
    return Driven(LocalBackend())


@pytest.fixture
def header(tmp_path: Path) -> str:
    return f"{tmp_path}/segment$header"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The segment of `header`, which is there."""
    path = f"{tmp_path}/segment"
    new_fs().create(path)
    return path


def proxied(server: str) -> Any:
    """A fixture: a proxy to a server."""

    @pytest.fixture
    def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
        with proxy_to(request.getfixturevalue(server)["endpoint_url"]) as proxy:
            yield proxy

    return proxy


proxy, moto_proxy = map(proxied, ("seaweed", "moto"))
"""Moto takes any credentials, and knows the regions of buckets, as SeaweedFS does not."""


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """What was said of s3fs."""
    caplog.set_level(logging.INFO, "rollingfs")
    return lambda: [record.getMessage() for record in caplog.records if "through s3fs" in record.getMessage()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark inherited tests as the table `MARKS` of their class says, by name, with or without a parameter."""
    for item in items:
        marks = getattr(getattr(item, "cls", None), "MARKS", {})
        for name in {item.name, item.name.partition("[")[0]} & marks.keys():
            item.add_marker(marks[name])
