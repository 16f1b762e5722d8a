"""What a log costs in a month: requests and storage, from counted requests and list prices; pure.

``python -m benchmarks.cost`` prints the table of `docs/performance.md`, from the stored results of case M1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollingfs.show.readable import GB, S3_EXPRESS, S3_STANDARD, Prices

Medians = Mapping[str, Mapping[str, float]]
"""For each contestant, the median of each figure."""

MILLION = 10**6
DAY_S = 86_400
MONTH_DAYS = 30
MONTH_H = MONTH_DAYS * 24
BROKERS = 3
BROKER_H = 0.0456
"""An hour of kafka.t3.small, the smallest broker of https://aws.amazon.com/msk/pricing/."""
BROKER_GB_MONTH = 0.10
"""Of each broker's storage, of which each of `BROKERS` has a copy of everything."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a log is written: what one append sends, on average."""

    writes: float
    """Requests at the price of writes."""
    reads: float
    sent_bytes: float

    @classmethod
    def counted(cls, requests: Mapping[str, int], sent_bytes: float, count: int) -> Way:
        """What a server has counted over `count` appends, by S3's names of operations; deletes are free."""
        reads = sum(number for name, number in requests.items() if name.startswith(("Get", "Head")))
        free = sum(number for name, number in requests.items() if name.startswith(("Delete", "Abort")))
        return cls((sum(requests.values()) - reads - free) / count, reads / count, sent_bytes / count)


@dataclass(frozen=True, slots=True)
class Load:
    """How much is written, and how long it is kept."""

    rate_per_s: float
    record_bytes: int
    kept_days: int = MONTH_DAYS

    @property
    def appends(self) -> float:
        """In a month."""
        return self.rate_per_s * DAY_S * MONTH_DAYS

    @property
    def kept(self) -> float:
        """Records that are stored, once the log is as old as they are kept."""
        return self.rate_per_s * DAY_S * self.kept_days


def appends_cost(way: Way, appends: float, prices: Prices) -> float:
    """Dollars for the requests of so many appends, and for what they send."""
    of_requests = way.writes * prices.write_1000 / 1000 + way.reads * prices.read_1000 / 1000
    return appends * (of_requests + way.sent_bytes * prices.upload_gb / GB)


def storage_cost(stored_bytes: float, load: Load, prices: Prices) -> float:
    """Dollars a month for the storage of a log with so many bytes for each record, once it is as old as it gets."""
    return load.kept * stored_bytes * prices.storage_gb_month / GB


def brokers_cost(load: Load) -> float:
    """Dollars a month for the smallest cluster of Kafka that keeps the log in three copies."""
    stored_gb = BROKERS * load.kept * load.record_bytes / GB
    return BROKERS * BROKER_H * MONTH_H + stored_gb * BROKER_GB_MONTH


LOADS = tuple(Load(rate, record) for rate in (1, 100) for record in (1024, 4096))
GATHERED = "rollingfs, 100 a second"
ONE_BY_ONE = "rollingfs, one by one"
OBJECTS = "an object for each"
DELTA = "delta-rs, one by one"


def table(medians: Mapping[Prices, Medians]) -> str:
    """What the logs of `LOADS` cost in a month, as a table for `docs/performance.md`: requests + storage.

    Parameters
    ----------
    medians
        For each store, the figures of case M1 at a latency like this store's.
    """
    heads = [f"{load.rate_per_s:g} a second, {load.record_bytes // 1024} KiB" for load in LOADS]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    for name in ("rollingfs", OBJECTS, DELTA):
        for prices, found in medians.items():
            cells = [_cell(name, load, prices, found) for load in LOADS]
            lines.append(f"| {name.partition(',')[0]}, {prices.name} | " + " | ".join(cells) + " |")
    brokers = [f"${brokers_cost(load):,.0f}" for load in LOADS]
    return "\n".join([*lines, f"| {BROKERS} brokers of Kafka | " + " | ".join(brokers) + " |"]) + "\n"


def _cell(name: str, load: Load, prices: Prices, medians: Medians) -> str:
    contestant = name
    if name == "rollingfs":
        contestant = ONE_BY_ONE if load.rate_per_s == 1 else GATHERED
    found = medians[f"{contestant}, {load.record_bytes // 1024} KiB"]
    way = Way(found["paid_writes"], found["paid_reads"], found["sent_unit_bytes"])
    # what delta-rs sends stays: a Parquet file and a line of its log for each record
    stored_bytes = found["sent_unit_bytes"] if name == DELTA else load.record_bytes
    of_requests, of_storage = appends_cost(way, load.appends, prices), storage_cost(stored_bytes, load, prices)
    return f"{_dollars(of_requests)} + {_dollars(of_storage)}"


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:.2f}"


def stored(folder: Path) -> dict[Prices, Medians]:
    """The results of M1 in a folder: S3 Express answers in some 12 ms or less, S3 Standard often needs 60."""
    files = {S3_STANDARD: "latest-60ms.json", S3_EXPRESS: "latest.json"}
    return {
        prices: json.loads((folder / file).read_text(encoding="utf-8"))["works"]["M1"]["medians"]
        for prices, file in files.items()
    }


if __name__ == "__main__":
    print(table(stored(Path(__file__).parent / "results")), end="")
