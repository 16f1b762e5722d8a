"""Loggers of trainings: TensorBoard's writer, PyTorch's, tensorboardX, Lightning's `CSVLogger`.

PyTorch is too heavy for every machine that tests rollingfs, so its absence is no failure, not even where everything is
required.
"""

import time
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.servers import require_module

for module in ("tensorboard", "tensorboardX"):
    require_module(module)

from tensorboard.backend.event_processing import io_wrapper
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # they warn of what they use themselves


def losses(url: str) -> list[float]:
    events = EventAccumulator(url)
    events.Reload()
    return [event.value for event in events.Scalars("loss")]


def test_tensorboard_appends_and_reads_events_under_an_open_writer(tmp_path: Path) -> None:
    url = f"rolling+file://{tmp_path}/run"
    fs, path = fsspec.core.url_to_fs(url)
    writer = EventFileWriter(url)
    sizes = []
    for step in range(3):
        loss = Summary(value=[Summary.Value(tag="loss", simple_value=step)])
        writer.add_event(Event(step=step, wall_time=time.time(), summary=loss))
        writer.flush()
        [file] = fs.find(path, detail=True).values()
        sizes.append(file["size"])
        assert losses(url) == list(range(step + 1))
    writer.close()
    assert sizes == sorted(set(sizes))
    assert fs.info(file["name"])["version"] >= 3  # appended, not written again


@pytest.mark.parametrize("scheme", ["rolling+file://", "rolling::file://"])
def test_tensorboard_finds_runs_by_alias_and_by_chained_url(scheme: str, tmp_path: Path) -> None:
    EventFileWriter(f"{scheme}{tmp_path}/logs/run").close()
    [found] = io_wrapper.GetLogdirSubdirectories(f"{scheme}{tmp_path}/logs")
    assert found.endswith("/logs/run")
    assert list(io_wrapper.ListDirectoryAbsolute(found))


def test_the_summary_writer_of_pytorch_writes_by_url(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(f"rolling+file://{tmp_path}/run")
    writer.add_scalar("loss", 0.5, 1)
    writer.flush()
    assert losses(f"rolling+file://{tmp_path}/run") == [0.5]
    writer.close()


def test_the_csv_logger_of_lightning_appends_by_url(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from lightning.fabric.loggers import CSVLogger

    logger: Any = CSVLogger(f"rolling+file://{tmp_path}/runs", name="a", flush_logs_every_n_steps=10)
    for step in range(30):
        logger.log_metrics({"loss": 1.0}, step)
    logger.finalize("success")
    fs, path = fsspec.core.url_to_fs(f"rolling+file://{tmp_path}/runs/a/version_0/metrics.csv")
    assert fs.cat_file(path).count(b"\n") == 31
    assert fs.info(path)["version"] >= 3  # appended, not written again
