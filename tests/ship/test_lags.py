"""Lags of logs, as OpenTelemetry exports them."""

import json
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.ship import Shipper, observe
from tests.support.backends import Scripted, private_memory
from tests.support.cli import Run, done
from tests.support.servers import require_module

require_module("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


def test_lags_are_exported_while_the_store_is_slow(tmp_path: Path) -> None:
    log, bad, reader, found = tmp_path / "app.log", tmp_path / "bad.log", InMemoryMetricReader(), []
    log.write_bytes(b"one\n")
    bad.mkdir()
    store = Scripted(private_memory())
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    shipper = Shipper(fs, [str(log), str(bad)], "/logs", say=lambda line: None)
    provider = MeterProvider([reader])
    observe(shipper, provider.get_meter("test"))

    def look() -> None:
        [resource] = reader.get_metrics_data().resource_metrics
        [scope] = resource.scope_metrics
        found.append(
            {
                (one.name.removeprefix("rollingfs.ship."), point.attributes["file"]): point.value
                for one in scope.metrics
                for point in one.data.data_points
            }
        )
        assert {point.attributes["segment"] for one in scope.metrics for point in one.data.data_points} == {
            "/logs/app.log",
            "/logs/bad.log",
        }

    store.plan(("create", "replace"), "app.log$header", before=look)  # another thread, while the store lets it wait
    shipper.step()
    shipper.step()
    look()
    provider.shutdown()
    waits, done = found
    assert waits["lag", str(log)] == 4
    assert 0 < waits["lag.time", str(log)] < 60
    assert done["lag", str(log)] == done["lag.time", str(log)] == 0
    assert (done["failing", str(log)], done["failing", str(bad)]) == (0, 1)


def test_top_shows_the_lag_of_logs_of_another_process(tmp_path: Path) -> None:
    log, bad = tmp_path / "app.log", tmp_path / "bad.log"
    log.write_bytes(b"one\n")
    bad.mkdir()
    done("ship", "--once", log, f"{tmp_path}/to/")
    with log.open("ab") as file:
        file.write(b"two\nthree")
    words = "top", f"{tmp_path}/to", "--ship", f"{tmp_path}/*.log"
    [segment, *logs] = json.loads(Run(*words, "--json").out)
    assert (segment["path"], segment["size"]) == (f"{tmp_path}/to/app.log", 4)
    assert [(one["file"], one["lag_bytes"]) for one in logs] == [(str(log), 9), (str(bad), 0)]
    assert 0 < logs[0]["lag_s"] < 3600
    assert "not a regular file" in logs[1]["error"]
    assert f"{log}  9 B" in done(*words).text
    assert RollingFileSystem("file").cat_file(f"{tmp_path}/to/app.log") == b"one\n"


@pytest.mark.parametrize("option", ["--into", "--seal-on-rotate"])
def test_top_finds_the_segment_of_another_shipper(option: str, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"one\n")
    into = option == "--into"
    done("ship", "--once", option, log, f"{tmp_path}/to/{'all' if into else ''}")
    with log.open("ab") as file:
        file.write(b"two\n")
    words = "top", f"{tmp_path}/to", "--ship", log, *(("--ship-into", "all") if into else ())
    *_, lag = json.loads(Run(*words, "--json").out)
    assert lag["segment"] == f"{tmp_path}/to/{'all' if into else 'app.log/00000001'}"
    assert lag["lag_bytes"] == 4
