"""Many writers in virtual time, as a table: ``python -m benchmarks.simulated [--writers 1,8] [--latency-ms 12]``.

The real client, on a store whose latencies come from a table, without any limit of CPU. `tests/support/simulation.py`
has the store and the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from tests.support.simulation import Latencies, Load, simulate

WRITERS = (1, 2, 8, 16, 32, 60, 100)
LATENCIES_MS = (12, 60)
PAUSES_S = (0.0, 0.3, 1.0)
DURATION_S = 60.0
HEAD = "| ms away | writers | pauses s | rate /s | median ms | p99 ms | least share | largest share | requests |"


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def row(load: Load) -> str:
    found = simulate(load)
    cells = [
        f"{load.latencies.way_ms:g}",
        f"{load.writers}",
        f"{load.pause_s:g}",
        f"{found.rate_per_s:.1f}",
        f"{found.median_ms:.0f}",
        f"{found.p99_ms:,.0f}",
        f"{found.least_share:.2f}",
        f"{max(found.counts) / statistics.fmean(found.counts):.2f}",
        f"{found.requests:.2f}" + (f" ({len(found.errors)} errors)" if found.errors else ""),
    ]
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated", description=__doc__)
    parser.add_argument("--writers", type=numbers, default=WRITERS)
    parser.add_argument("--latency-ms", type=numbers, default=LATENCIES_MS)
    parser.add_argument("--pause-s", type=numbers, default=PAUSES_S)
    parser.add_argument("--duration-s", type=float, default=DURATION_S)
    options = parser.parse_args(arguments)
    print(HEAD)
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for way_ms in options.latency_ms:
        for pause_s in options.pause_s:
            for writers in options.writers:
                latencies, duration_s = Latencies(way_ms), options.duration_s
                load = Load(int(writers), pause_s, duration_s=duration_s, latencies=latencies)
                print(row(load), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
