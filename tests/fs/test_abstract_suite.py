"""fsspec's own conformance suite, over memory, which has folders, and S3, which has none."""

import posixpath
import uuid

import pytest
from fsspec.tests import abstract

from rollingfs import RollingFileSystem
from tests.support.examples import slowly
from tests.support.servers import new_bucket


@pytest.fixture(scope="module")
def seaweed_bucket(seaweed):
    return new_bucket(seaweed)


@pytest.fixture(params=["memory", *slowly("s3")])
def place(request):
    """A filesystem, an empty folder of it, and whether it has empty folders."""
    name = uuid.uuid4().hex
    if request.param == "memory":
        return RollingFileSystem("memory"), f"/{name}", True
    fs = RollingFileSystem("s3", request.getfixturevalue("seaweed"))
    return fs, f"{request.getfixturevalue('seaweed_bucket')}/{name}", False


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, place):
        return place[0]

    @pytest.fixture
    def fs_path(self, place):
        return place[1]

    @pytest.fixture
    def supports_empty_directories(self, place):
        return place[2]

    @pytest.fixture
    def fs_join(self):
        return posixpath.join


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
