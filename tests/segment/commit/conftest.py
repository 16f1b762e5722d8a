"""What the tests of commits share."""

import pytest

from tests.support.backends import Scripted, private_memory
from tests.support.site import Site


@pytest.fixture
def site() -> Site:
    """A segment on a store that follows plans."""
    site = Site(Scripted(private_memory()), "")
    site.create()
    return site
