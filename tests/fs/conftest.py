"""Where the tests of handles and open files work."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.site import Site


@pytest.fixture(params=["memory", "local", "async"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A path on each kind of backend, with the policy of the test module."""
    if request.param == "local":
        return Site(Scripted(LocalBackend(sync=False)), str(tmp_path), request.module.POLICY)
    is_async = request.param == "async"
    backend = Counting(private_memory(), suspends=True) if is_async else Scripted(private_memory())
    return Site(backend, "", request.module.POLICY)
