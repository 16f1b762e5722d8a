"""fsspec's own conformance suite, over memory, the local disk, S3 and Azure."""

import posixpath
import uuid

import pytest
from fsspec.tests import abstract

from rollingfs import RollingFileSystem
from tests.support.clouds import new_container
from tests.support.servers import new_bucket


@pytest.fixture(scope="module")
def seaweed_bucket(seaweed):
    return new_bucket(seaweed)


@pytest.fixture(scope="module")
def azure_container(azurite):
    return new_container(azurite)


class _Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs_join(self):
        return posixpath.join


class MemoryFixtures(_Fixtures):
    @pytest.fixture
    def fs(self):
        return RollingFileSystem("memory")

    @pytest.fixture
    def fs_path(self):
        return f"/{uuid.uuid4().hex}"


class LocalFixtures(_Fixtures):
    @pytest.fixture
    def fs(self):
        return RollingFileSystem("file", sync=False)

    @pytest.fixture
    def fs_path(self, tmp_path):
        return f"{tmp_path}/remote"


class S3Fixtures(_Fixtures):
    @pytest.fixture
    def fs(self, seaweed):
        return RollingFileSystem("s3", seaweed)

    @pytest.fixture
    def fs_path(self, seaweed_bucket):
        return f"{seaweed_bucket}/{uuid.uuid4().hex}"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class AzureFixtures(_Fixtures):
    @pytest.fixture
    def fs(self, azurite):
        return RollingFileSystem("az", azurite)

    @pytest.fixture
    def fs_path(self, azure_container):
        return f"{azure_container}/{uuid.uuid4().hex}"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestMemoryCopy(abstract.AbstractCopyTests, MemoryFixtures):
    pass


class TestMemoryGet(abstract.AbstractGetTests, MemoryFixtures):
    pass


class TestMemoryPut(abstract.AbstractPutTests, MemoryFixtures):
    pass


class TestMemoryOpen(abstract.AbstractOpenTests, MemoryFixtures):
    pass


class TestMemoryPipe(abstract.AbstractPipeTests, MemoryFixtures):
    pass


@pytest.mark.slow
class TestLocalCopy(abstract.AbstractCopyTests, LocalFixtures):
    pass


@pytest.mark.slow
class TestLocalGet(abstract.AbstractGetTests, LocalFixtures):
    pass


@pytest.mark.slow
class TestLocalPut(abstract.AbstractPutTests, LocalFixtures):
    pass


class TestLocalOpen(abstract.AbstractOpenTests, LocalFixtures):
    pass


class TestLocalPipe(abstract.AbstractPipeTests, LocalFixtures):
    pass


@pytest.mark.slow
class TestS3Copy(abstract.AbstractCopyTests, S3Fixtures):
    pass


@pytest.mark.slow
class TestS3Get(abstract.AbstractGetTests, S3Fixtures):
    pass


@pytest.mark.slow
class TestS3Put(abstract.AbstractPutTests, S3Fixtures):
    pass


@pytest.mark.slow
class TestS3Open(abstract.AbstractOpenTests, S3Fixtures):
    pass


@pytest.mark.slow
class TestS3Pipe(abstract.AbstractPipeTests, S3Fixtures):
    pass


@pytest.mark.clouds
@pytest.mark.slow
class TestAzureCopy(abstract.AbstractCopyTests, AzureFixtures):
    pass


@pytest.mark.clouds
@pytest.mark.slow
class TestAzureGet(abstract.AbstractGetTests, AzureFixtures):
    pass


@pytest.mark.clouds
@pytest.mark.slow
class TestAzurePut(abstract.AbstractPutTests, AzureFixtures):
    pass


@pytest.mark.clouds
@pytest.mark.slow
class TestAzureOpen(abstract.AbstractOpenTests, AzureFixtures):
    pass


@pytest.mark.clouds
@pytest.mark.slow
class TestAzurePipe(abstract.AbstractPipeTests, AzureFixtures):
    pass
