"""The command: ``python -m benchmarks [--quick] [--only P1,P2] [--rounds 3] [--latency-ms 60] [--store s3://bucket/x]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.servers import LATENCY_MS


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure rollingfs beside its rivals, on MinIO behind a latency and 85 MB/s a connection.",
        epilog=(
            "S1 to S6 run in a session of Spark, on the local disk, beside plain files: 384 MiB and at least 5 rounds "
            "(--quick: 4 MiB, one round). They need pyspark and a JDK, and are skipped, with the reason, without."
        ),
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, one round; does not judge times")
    parser.add_argument("--only", help="cases by id, comma-separated: P1,P2")
    parser.add_argument("--rounds", type=int, help="how often each contestant runs (default 3; quick: 1)")
    parser.add_argument(
        "--latency-ms",
        type=int,
        default=LATENCY_MS,
        help=f"of each request (default {LATENCY_MS}; 60 is nearer to S3 Standard; has results of its own)",
    )
    parser.add_argument(
        "--store",
        metavar="s3://BUCKET/PREFIX",
        help="measure on this store, as the environment describes it, not on MinIO; prints only, counts no requests",
    )
    parser.add_argument("--results", type=Path, help="where JSON and picture go (default benchmarks/results)")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    if options.store is not None and not options.store.startswith("s3://"):
        parser.error(f"--store {options.store}: give s3://BUCKET/PREFIX")
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the cases; returns 1 if a contestant failed. A goal that is missed is printed, and is no failure."""
    options = parse(arguments)
    try:
        import rich  # noqa: F401
    except ImportError:
        print("the benchmarks need: pip install 'rollingfs[bench]'", file=sys.stderr)
        return 2
    from rich.console import Console

    from benchmarks import report
    from benchmarks.cases import ALL
    from benchmarks.runner import run

    wanted = set(options.only.split(",")) if options.only else {case.id for case in ALL}
    unknown = wanted - {case.id for case in ALL}
    if unknown:
        print(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(case.id for case in ALL)}")
        return 2
    console = Console(highlight=False)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    cases = [case for case in ALL if case.id in wanted]
    outcomes = run(cases, options.rounds, options.quick, say, options.latency_ms, options.store)
    report.show(outcomes, console)
    if not options.no_save and options.store is None:
        folder = options.results or report.RESULTS
        for path in report.save(outcomes, options.rounds, options.quick, folder, options.latency_ms):
            console.print(f"written: {path}")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
