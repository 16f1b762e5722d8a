"""Fixtures that tests of appends share: a segment, and data that is small or uploaded first."""

from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingPolicy
from tests.support.backends import Scripted
from tests.support.places import backend_of
from tests.support.site import LARGE, Site


@pytest.fixture(params=["memory", "local"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    backend, folder = backend_of(request.param, request, tmp_path)
    site = Site(Scripted(backend), folder, RollingPolicy(max_bytes="512KiB"))
    site.create()
    return site


@pytest.fixture(params=[b"small", LARGE], ids=["small", "large"])
def data(request: pytest.FixtureRequest) -> Any:
    return request.param
