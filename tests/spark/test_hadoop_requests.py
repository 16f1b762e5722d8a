"""The requests that jobs send to S3 by the Hadoop-compatible path, counted on the wire, beside those of S3A itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.proxy import Proxy, proxy_to
from tests.support.servers import new_bucket

FILES = 8
LOOKS_MAX = 300
"""Maximum number of HEAD and LIST requests of a job that writes so many small files."""

pytestmark = [pytest.mark.slow, pytest.mark.s3]


@pytest.fixture
def wire(spark: Any, spark_s3: dict[str, Any]) -> Iterator[tuple[Proxy, str]]:
    """A bucket behind a proxy that counts."""
    bucket = new_bucket(spark_s3)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    key = f"fs.s3a.bucket.{bucket}.endpoint"
    with proxy_to(spark_s3["endpoint_url"]) as proxy:
        conf.set(key, proxy.url)
        yield proxy, bucket
        conf.unset(key)


def asked(proxy: Proxy) -> Counter[str]:
    """The requests since the last call, by kind."""
    kinds = Counter("LIST" if seen.method == "GET" and "list-type" in seen.path else seen.method for seen in proxy.seen)
    proxy.seen.clear()
    return kinds


def test_a_job_that_writes_small_files_asks_little_more_than_with_s3a(spark: Any, wire: tuple[Proxy, str]) -> None:
    proxy, bucket = wire
    rows = spark.range(80).repartition(FILES)
    rows.write.json(f"s3a://{bucket}/plain")
    plain = asked(proxy)
    rows.write.json(f"rolling+s3://{bucket}/ours")
    ours = asked(proxy)
    print(plain, ours)
    assert ours["HEAD"] + ours["LIST"] <= LOOKS_MAX, (plain, ours)
