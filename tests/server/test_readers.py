"""Libraries read segments by ranges from `rollingfs serve`, as docs/integrations/polars.md says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from tests.formats.parts import lines, parquet
from tests.formats.readers import of
from tests.server.conftest import serving
from tests.support.servers import found_by

ROWS = [1, 2, 3]
READERS: dict[str, Callable[[str], object]] = {
    "polars": lambda url: of("polars").scan_parquet(f"{url}.parquet").select("a").collect()["a"].to_list(),
    "polars, lines": lambda url: of("polars").scan_ndjson(f"{url}.json").collect()["a"].to_list(),
    "pandas": lambda url: of("pandas").read_parquet(f"{url}.parquet")["a"].to_list(),
    "daft": lambda url: of("daft").read_parquet(f"{url}.parquet").to_pydict()["a"],
    "chDB": lambda url: [
        *map(int, str(of("chdb").query(f"select a from url('{url}.parquet', Parquet)", "CSV")).split())
    ],
    "smart_open": lambda url: of("smart_open").open(f"{url}.json", "rb").read() == lines(ROWS) and ROWS,
    "HF datasets": lambda url: [
        row["a"] for row in of("datasets").load_dataset("json", data_files=f"{url}.json", split="train", streaming=True)
    ],
}


LIGHT = ("polars", "pandas")


@pytest.mark.slow
@pytest.mark.parametrize(
    "reader", [pytest.param(reader, marks=() if reader in LIGHT else pytest.mark.nightly) for reader in READERS]
)
def test_a_reader_takes_ranges(reader: str, tmp_path: Path) -> None:
    fs = RollingFileSystem("file")
    fs.pipe_file(f"{tmp_path}/rows.parquet", parquet(ROWS))
    fs.pipe_file(f"{tmp_path}/rows.json", lines(ROWS))
    with serving(str(tmp_path)) as server:
        assert found_by(READERS[reader], f"{server.url}/v1/segments/rows") == ROWS
