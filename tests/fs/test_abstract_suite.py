"""fsspec's own conformance suite, over memory, the local disk, S3 and Azure."""

import posixpath

import pytest
from fsspec.tests import abstract

from tests.support.examples import slowly
from tests.support.places import new_folder


class TestConformance(
    abstract.AbstractFixtures,
    abstract.AbstractCopyTests,
    abstract.AbstractGetTests,
    abstract.AbstractPutTests,
    abstract.AbstractOpenTests,
    abstract.AbstractPipeTests,
):
    @pytest.fixture(
        params=[
            "memory",
            *slowly("file", "s3"),
            pytest.param("az", marks=[pytest.mark.clouds, pytest.mark.slow, pytest.mark.nightly]),
        ]
    )
    def folder(self, request):
        return new_folder(request.param, request)

    # `tests/fs/test_patterns.py` has ours
    test_copy_glob_edge_cases = pytest.mark.slow(abstract.AbstractCopyTests.test_copy_glob_edge_cases)
    test_get_glob_edge_cases = pytest.mark.slow(abstract.AbstractGetTests.test_get_glob_edge_cases)
    test_put_glob_edge_cases = pytest.mark.slow(abstract.AbstractPutTests.test_put_glob_edge_cases)

    @pytest.fixture
    def fs(self, folder):
        return folder.open()

    @pytest.fixture
    def fs_path(self, folder):
        return folder.path

    @pytest.fixture
    def supports_empty_directories(self, folder):
        return folder.protocol in ("memory", "file")

    @pytest.fixture
    def fs_join(self):
        return posixpath.join
