"""`docs/performance.md` and `docs/on_s3.md` name the defaults and prices of the code, and rules a store accepts."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

from tests.support.servers import botocore_client, new_bucket, require_module

require_module("s3fs")
require_module("rich")

from rollingfs import RollingFileSystem
from rollingfs.backend.objects.bucket import READS_MAX
from rollingfs.backend.objects.s3 import backend as s3_backend
from rollingfs.backend.patience import PAUSE_S_MAX, TOLD_AFTER_S
from rollingfs.fs.core import MEMORY_BYTES_DEFAULT
from rollingfs.policy import INLINE_BYTES_DEFAULT, MAX_BYTES_DEFAULT
from rollingfs.segment.at import COMMIT_TIMEOUT_S, HEADER_CACHE_S
from rollingfs.show.readable import PRICES_AT, S3_EXPRESS, S3_STANDARD

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
ON_S3 = (ROOT / "docs" / "on_s3.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"


def test_each_tuned_option_has_its_default() -> None:
    section = TEXT.partition("## What to tune")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE))
    assert set(rows) <= set(inspect.signature(RollingFileSystem.__init__).parameters)
    assert rows["max_concurrency"] == f"{s3_backend.REQUESTS_MAX} on S3"
    assert rows["max_memory"] == f"{MEMORY_BYTES_DEFAULT // 2**20} MiB"
    assert rows["max_bytes"] == f"{MAX_BYTES_DEFAULT // 2**20} MiB"
    assert rows["inline_bytes"] == f"{INLINE_BYTES_DEFAULT // 2**10} KiB"
    assert rows["header_cache_s"] == f"{HEADER_CACHE_S:g} s"
    assert rows["commit_timeout_s"] == f"{COMMIT_TIMEOUT_S:g} s"
    assert f"an option of s3fs: {s3_backend.CONNECTIONS_MAX}, unless" in TEXT
    assert f"are tried for `commit_timeout_s` ({COMMIT_TIMEOUT_S:g} s)" in ON_S3
    assert f"pauses of up to {PAUSE_S_MAX:g} s; after {TOLD_AFTER_S:g} s of failures" in ON_S3
    assert f"ends after {READS_MAX} read timeouts" in ON_S3


def test_the_lifecycle_is_accepted_and_touches_no_current_object(seaweed: dict[str, Any]) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", ON_S3, re.DOTALL | re.MULTILINE)
    [lifecycle] = [block for block in map(json.loads, blocks) if "Rules" in block]
    client = botocore_client("s3", seaweed)
    bucket = new_bucket(seaweed)
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=lifecycle)
    rules = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    client.close()
    by_id = {rule["ID"]: rule for rule in rules}
    assert by_id["forget-old-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    assert by_id["abort-unfinished-uploads"]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] >= 1
    for rule in rules:
        assert not {"Transitions", "NoncurrentVersionTransitions"} & rule.keys()
        assert set(rule.get("Expiration", {})) <= {"ExpiredObjectDeleteMarker"}


def test_the_price_of_a_log_is_from_stored_requests() -> None:
    from benchmarks.cost import stored, table

    found = re.search(r"<!-- money -->\n(.*?)<!-- end of money -->", TEXT, re.DOTALL)
    assert found[1] == table(stored(RESULTS.parent))


def test_the_prices_named_are_those_that_were_reckoned_with() -> None:
    from benchmarks import cost

    section = TEXT.partition("## What a log costs in a month")[2].partition("\n## ")[0]
    for prices in (S3_STANDARD, S3_EXPRESS):
        named = [prices.storage_gb_month, prices.write_1000, prices.read_1000, prices.upload_gb or prices.write_1000]
        assert all(f"${price:g}" in section or f"${price:.5f}" in section for price in named), prices.name
    assert f"${cost.BROKER_H:g}" in section
    assert f"${cost.BROKER_GB_MONTH:.2f}" in section
    assert PRICES_AT in section
