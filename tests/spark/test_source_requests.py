"""What streaming queries in a session ask an S3 server, counted on the wire."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from rollingfs import RollingFileSystem
from tests.spark.test_source_sink_session import run
from tests.support.proxy import Seen, proxy_to
from tests.support.servers import new_bucket

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(600)]

TASKS = 200
BESIDES_MAX = 3
"""Requests of a small batch besides those of the header."""
SEED = 20261122


@pytest.mark.parametrize("format_", ["text", "parquet"])
def test_a_batch_of_200_small_tasks_asks_a_store_three_things_besides_the_header(source, minio, tmp_path, format_):
    bucket = new_bucket(minio)
    fs = RollingFileSystem("s3", minio, header_cache_s=0)
    chooser = random.Random(SEED)
    words = [[chooser.randbytes(16).hex() for _ in range(31)] for _ in range(TASKS)]
    lines = [f"{' '.join(line)}\n" for line in words]
    fs.create(f"{bucket}/in")
    with proxy_to(minio["endpoint_url"]) as proxy:
        storage = json.dumps({**minio, "endpoint_url": proxy.url})
        counts = []
        for _ in range(3):
            fs.append(f"{bucket}/in", "".join(lines).encode())
            rows = source.readStream.format("rolling").option("storage_options", json.dumps(minio))
            rows = rows.load(f"s3://{bucket}/in").repartition(TASKS)
            if format_ == "parquet":  # its footer repeats a long text, and soon does not come with one read
                rows = rows.selectExpr("explode(split(value, ' ')) value")
            proxy.seen.clear()
            target = f"s3://{bucket}/out"
            run(rows, tmp_path / "checkpoint", target, storage_options=storage, format=format_)
            counts.append(Counter(kind(seen) for seen in proxy.seen))
    found = source.read.format("rolling").options(storage_options=json.dumps(minio), format=format_)
    written = [row.value for row in found.schema("value string").load(target).collect()]
    assert sorted(word for row in written for word in row.split()) == sorted(
        word for line in words * 3 for word in line
    )
    print(format_, counts)
    for count in counts[1:]:  # the first makes the segment, and probes the store
        assert count["besides"] <= BESIDES_MAX, counts
        assert count["probe"] == 0, counts


def kind(seen: Seen) -> str:
    """What a request is about."""
    if "/probe-" in seen.path or "probe-" in seen.path:
        return "probe"
    return "header" if "%24header" in seen.path or "$header" in seen.path else "besides"
