"""fsspec's own conformance suite, over memory, the local disk, S3 and Azure."""

import posixpath
import uuid

import pytest
from fsspec.tests import abstract

from rollingfs import RollingFileSystem
from tests.support.clouds import new_container
from tests.support.examples import slowly
from tests.support.servers import new_bucket


@pytest.fixture(scope="module")
def seaweed_bucket(seaweed):
    return new_bucket(seaweed)


@pytest.fixture(scope="module")
def azure_container(azurite):
    return new_container(azurite)


@pytest.fixture(
    params=["memory", *slowly("file", "s3"), pytest.param("az", marks=[pytest.mark.clouds, pytest.mark.slow])]
)
def place(request, tmp_path):
    """A filesystem, an empty folder of it, and whether it has empty folders."""
    name = uuid.uuid4().hex
    if request.param == "memory":
        return RollingFileSystem("memory"), f"/{name}", True
    if request.param == "file":
        return RollingFileSystem("file", sync=False), f"{tmp_path}/{name}", True
    options, root = {"s3": ("seaweed", "seaweed_bucket"), "az": ("azurite", "azure_container")}[request.param]
    fs = RollingFileSystem(request.param, request.getfixturevalue(options))
    return fs, f"{request.getfixturevalue(root)}/{name}", False


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
