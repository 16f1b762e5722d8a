"""What a filesystem has counted, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollingfs.show.metrics import Calls, Metrics

BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)


def exposition(metrics: Metrics, own: Mapping[str, int]) -> str:
    """All numbers in Prometheus' text format."""
    return "\n".join([*_lines(metrics, own), ""])


def _lines(metrics: Metrics, own: Mapping[str, int]) -> Iterator[str]:
    for name, value in own.items():
        yield from (f"# TYPE rollingfs_server_{name} gauge", f"rollingfs_server_{name} {value}")
    for name in ("conflicts", "carried", "unknown"):
        yield from (f"# TYPE rollingfs_{name}_total counter", f"rollingfs_{name}_total {getattr(metrics, name)}")
    calls = metrics.calls
    for name in ("refused", "errors", "bytes"):
        yield f"# TYPE rollingfs_calls_{name}_total counter"
        for kind, one in calls.items():
            yield f'rollingfs_calls_{name}_total{{call="{kind}"}} {getattr(one, name)}'
    yield "# TYPE rollingfs_call_seconds histogram"
    for kind, one in calls.items():
        yield from _histogram(kind, one)


def _histogram(kind: str, calls: Calls) -> Iterator[str]:
    for bound in BOUNDS_S:
        count = sum(count for upto, count in calls.timing.buckets if upto <= bound)
        yield f'rollingfs_call_seconds_bucket{{call="{kind}",le="{bound}"}} {count}'
    yield f'rollingfs_call_seconds_bucket{{call="{kind}",le="+Inf"}} {calls.timing.count}'
    yield f'rollingfs_call_seconds_sum{{call="{kind}"}} {calls.timing.total_s}'
    yield f'rollingfs_call_seconds_count{{call="{kind}"}} {calls.timing.count}'
