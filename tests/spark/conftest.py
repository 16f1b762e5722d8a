"""Fixtures of the tests with Spark: one session for all, and places on disk and on MinIO."""

from collections.abc import Iterator
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.segment.at import At
from tests.support import spark as world
from tests.support.servers import new_bucket, require_module, shared_backend


def pytest_pycollect_makemodule() -> None:
    """A module of this folder needs both packages; without them it is skipped, and names the reason."""
    for name in ("pyarrow", "pyspark"):
        require_module(name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session, made once: its JVM takes seconds to start."""
    world.require_java()
    with world.spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def spark_s3(spark: Any, minio: dict[str, Any]) -> dict[str, Any]:
    """The session knows the MinIO server; its storage options."""
    world.require_s3a()
    from rollingfs.spark.configure import s3a_options

    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in s3a_options(minio).items():
        conf.set(key.removeprefix("spark.hadoop."), value)
    return minio


@pytest.fixture(scope="session")
def source(spark: Any) -> Any:
    """The session, knowing the Python data source."""
    from pyspark.errors import AnalysisException

    from rollingfs.spark.source import RollingDataSource

    try:
        spark.dataSource.register(RollingDataSource)
    except AnalysisException as error:  # PySpark 4.0 does not replace what it has found by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    return spark


@pytest.fixture
def fs() -> RollingFileSystem:
    """The filesystem over the local disk, as another program uses it."""
    return RollingFileSystem("file", sync=False, header_cache_s=0)


@pytest.fixture
def disk(spark: Any, tmp_path: Any) -> world.Place:
    """A folder of the local disk."""
    return world.Place(spark, At.of(LocalBackend(sync=False)), str(tmp_path), f"rolling+file://{tmp_path}")


@pytest.fixture
def s3(spark: Any, spark_s3: dict[str, Any]) -> world.Place:
    """A bucket on MinIO."""
    bucket = new_bucket(spark_s3)
    return world.Place(spark, At.of(shared_backend(**spark_s3)), bucket, f"rolling+s3://{bucket}")


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest) -> world.Place:
    """Each of them."""
    found: world.Place = request.getfixturevalue(request.param)
    return found
