"""What OpenTelemetry exports is what the filesystem has counted; without it nothing of it is imported."""

import sys

import pytest

from rollingfs import RollingFileSystem, observe
from rollingfs.runtime.meters import STEP_BITS, Tally
from rollingfs.show import metrics as shown
from tests.support.cli import python
from tests.support.servers import require_module

require_module("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

Points = dict[tuple[tuple[str, object], ...], float]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader):
    provider = MeterProvider([reader])
    yield provider.get_meter("test")
    provider.shutdown()


def filesystem() -> RollingFileSystem:
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    fs.pipe_file("/telemetry", b"12345")
    return fs


def exported(reader: InMemoryMetricReader) -> dict[str, Points]:
    """The values of all instruments, by name and attributes."""
    [resource] = reader.get_metrics_data().resource_metrics
    return {
        metric.name: {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def at(points: Points, **attributes: object) -> float:
    return points[tuple(sorted(attributes.items()))]


def test_calls_bytes_and_times_are_those_of_the_filesystem(reader, meter):
    fs = filesystem()
    observe(fs, meter)
    metrics, found = fs.metrics(), exported(reader)
    assert at(found["rollingfs.calls"], call="overwrite", outcome="ok", target="memory") == 1
    assert at(found["rollingfs.bytes"], call="overwrite", target="memory") == 5
    for verb, calls in metrics.requests.items():
        outcomes = {
            one: at(found["rollingfs.calls"], call=f"request.{verb}", outcome=one, target="memory")
            for one in ("ok", "refused", "error")
        }
        done = calls.count - calls.refused - calls.errors
        assert outcomes == {"ok": done, "refused": calls.refused, "error": calls.errors}
        total_s = at(found["rollingfs.duration"], call=f"request.{verb}", target="memory")
        assert total_s == pytest.approx(calls.timing.total_s)
        buckets = found["rollingfs.duration.bucket"]
        assert at(buckets, call=f"request.{verb}", le="+Inf", target="memory") == calls.count
    fs.pipe_file("/telemetry", b"123")
    assert at(exported(reader)["rollingfs.bytes"], call="overwrite", target="memory") == 8


def test_filesystems_of_a_meter_differ_by_attributes(reader, meter):
    one, two, three = filesystem(), filesystem(), filesystem()
    for fs, attributes in ((one, None), (two, None), (three, {"job": "x"}), (three, {"job": "again"})):
        observe(fs, meter, attributes)
    found = exported(reader)["rollingfs.bytes"]
    assert at(found, call="overwrite", target="memory") == 10
    assert at(found, call="overwrite", job="x") == 5
    assert not any(("job", "again") in key for key in found)


def test_counts_outlive_their_filesystem(reader, meter):
    observe(filesystem(), meter)
    assert at(exported(reader)["rollingfs.bytes"], call="overwrite", target="memory") == 5


def test_events_are_counted_from_their_first(reader, meter):
    fs = filesystem()
    observe(fs, meter)
    assert "rollingfs.events" not in exported(reader)
    fs._client.meters.note("conflict")
    assert at(exported(reader)["rollingfs.events"], event="conflict", target="memory") == 1


def test_buckets_count_calls_within_their_bound():
    tally = Tally()
    for power in (10, 18, 18, 25, 60):  # times from 2 ** (power - 1) to 2 ** power
        tally.buckets[power << STEP_BITS] += 1
    counts = {attributes["le"]: value for value, attributes in shown._buckets(tally)}
    assert counts["0.000131072"] == 1  # 2 ** 17
    assert counts["0.000262144"] == 3  # 2 ** 18
    assert counts["0.016777216"] == 3  # 2 ** 24
    assert counts["0.033554432"] == 4  # 2 ** 25
    assert counts["137.438953"] == 4
    assert counts["+Inf"] == 5
    bounds = [float(bound) for bound in counts]
    assert bounds == sorted(bounds)


def test_without_a_meter_the_global_one_is_taken(monkeypatch, reader):
    from opentelemetry import metrics

    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    monkeypatch.setattr(shown, "_own", [])
    for _ in range(2):
        observe(filesystem())
    assert at(exported(reader)["rollingfs.bytes"], call="overwrite", target="memory") == 10
    provider.shutdown()


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ImportError, match=r"pip install 'rollingfs\[otel\]'"):
        observe(filesystem())


def test_a_filesystem_that_nobody_observes_imports_nothing_of_it():
    program = (
        "import sys, rollingfs\n"
        "fs = rollingfs.RollingFileSystem('memory')\n"
        "fs.pipe_file('/a/b', b'x')\n"
        "assert fs.metrics().overwrite.count == 1\n"
        "assert rollingfs.observe\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert python(program).stdout == "[]\n"
