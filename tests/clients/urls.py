"""Give each client a URL of each form, and write what it did with it: `python -m tests.clients.urls [--page]`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.pages import table_rows, with_block

PAGE = Path(__file__).parents[2] / "docs" / "urls.md"
MARK = "made by python -m tests.clients.urls --page"
FORMS = {"rolling+file://": "rolling+s3://", "rollingfile://": "rollings3://", "rolling::file://": "rolling::s3://"}
"""Forms of URLs that are tried, on a disk, and as the page names them."""
ROWS = "a,b\n1,2\n"
CLIENT_S_MAX = 120
IN_MEMORY = "[Hugging Face datasets](integrations/huggingface.md)"
"""It takes the absolute path of a disk for a relative one, so it is tried in memory."""


def of(module: str) -> Any:
    return import_module(module)


def pyarrow(url: str) -> None:
    assert of("pyarrow.parquet").read_table(f"fsspec+{url}.parquet")["a"].to_pylist() == [1]


def polars(url: str) -> None:
    assert of("polars").read_parquet(f"{url}.parquet")["a"].to_list() == [1]


def zarr(url: str) -> None:
    of("zarr").save(f"{url}.zarr", of("numpy").arange(3))
    assert of("zarr").load(f"{url}.zarr").tolist() == [0, 1, 2]


def upath(url: str) -> None:
    assert of("upath").UPath(f"{url}.csv").read_text() == ROWS


def kedro(url: str) -> None:
    found = of("kedro_datasets.pandas").CSVDataset(filepath=f"{url}.new")
    found.save(of("pandas").DataFrame({"a": [1]}))
    assert found.load()["a"].to_list() == [1]


def tensorboardx(url: str) -> None:
    with of("tensorboardX").SummaryWriter(f"{url}.new") as writer:
        writer.add_scalar("a", 1)


def loguru(url: str) -> None:
    of("loguru").logger.add(f"{url}.new")
    of("loguru").logger.info("text")


def xarray(url: str) -> None:
    of("xarray").Dataset({"a": ("x", [1])}).to_zarr(f"{url}.new")
    assert of("xarray").open_zarr(f"{url}.new")["a"].values.tolist() == [1]


def datasets(url: str) -> None:
    found = of("datasets").load_dataset("csv", data_files=f"{url}.csv", split="train", streaming=True)
    assert [*found] == [{"a": 1, "b": 2}]


def ray(url: str) -> None:
    import ray
    import ray.data

    ray.init(num_cpus=1, logging_level=logging.ERROR, log_to_driver=False)
    assert ray.data.read_csv(f"{url}.csv").take_all() == [{"a": 1, "b": 2}]


CLIENTS: dict[str, tuple[str, Callable[[str], None]]] = {
    "[pandas](integrations/pandas.md)": ("pandas", lambda url: print(of("pandas").read_csv(f"{url}.csv")["a"][0])),
    "[pyarrow](integrations/pyarrow.md), with `fsspec+` before it": ("pyarrow", pyarrow),
    "[polars](integrations/polars.md)": ("polars", polars),
    "[dask](integrations/dask.md)": ("dask", lambda url: print(of("dask.dataframe").read_csv(f"{url}.csv").compute())),
    "[zarr](integrations/zarr.md)": ("zarr", zarr),
    "[UPath](integrations/upath.md)": ("universal_pathlib", upath),
    "[kedro](integrations/kedro.md)": ("kedro", kedro),
    "[Hugging Face datasets](integrations/huggingface.md)": ("datasets", datasets),
    "tensorboardX": ("tensorboardX", tensorboardx),
    "loguru": ("loguru", loguru),
    "xarray, of zarr": ("xarray", xarray),
    "ray": ("ray", ray),
}


def outcome(client: str, form: str) -> str:
    """Return what a client does with a URL of a form, in a process and a working folder of its own."""
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as work:
        url = f"{form}{root}/data"
        if client == IN_MEMORY:
            url = url.replace("file://", "memory://")
        command = [sys.executable, "-m", "tests.clients.urls", client, url]
        place = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
        ended = subprocess.run(
            command, cwd=work, env=place, capture_output=True, text=True, timeout=CLIENT_S_MAX, check=False
        )
        if "ModuleNotFoundError" in ended.stderr and f"'{CLIENTS[client][0]}'" in ended.stderr:
            raise ModuleNotFoundError(ended.stderr.splitlines()[-1], name=CLIENTS[client][0])
        if os.listdir(work):
            return "**no: writes to a local folder**"
        return "yes" if ended.returncode == 0 else "no"


def table() -> str:
    """Return the table of the page."""
    rows = [f"| client | {' | '.join(f'`{name}`' for name in FORMS.values())} |", f"|---{'|---' * len(FORMS)}|"]
    for client, (package, _) in CLIENTS.items():
        found = [outcome(client, form) for form in FORMS]
        rows.append(f"| {client} {version(package)} | {' | '.join(found)} |")
    return "\n".join(rows) + "\n"


def cells() -> dict[tuple[str, str], str]:
    """Return what the page says of each client and form."""
    found = {}
    for client, *answers in table_rows(PAGE.read_text(), MARK):
        found |= {(client.rpartition(" ")[0], form): answer for form, answer in zip(FORMS, answers, strict=True)}
    return found


def run(client: str, url: str) -> None:
    """Write what the client reads, and let the client try."""
    import pandas

    from rollingfs import RollingFileSystem

    fs, path = RollingFileSystem("memory" if client == IN_MEMORY else "file"), url.partition("://")[2]
    fs.pipe_file(f"{path}.csv", ROWS.encode())
    with fs.open(f"{path}.parquet", "wb") as file:
        pandas.DataFrame({"a": [1]}).to_parquet(file)
    CLIENTS[client][1](url)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--page"]:
            PAGE.write_text(with_block(PAGE.read_text(), MARK, table()))
        case [client, url]:
            run(client, url)
        case _:
            print(table())
