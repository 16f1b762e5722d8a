"""Growing Parquet files, beside the segments of the model: no acknowledged row is lost or doubled."""

import contextlib
import random
from collections import Counter, defaultdict

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError
from tests.simulation.history import Violation
from tests.simulation.witness import TABLES

PATHS = tuple(f"{TABLES}{name}" for name in "ab")
POLICY = RollingPolicy(max_bytes=1_000_000, inline_bytes=1000)
"""So that a file is few chunks, whatever the world's policy says."""
ROWS_EACH_MAX = 3
REWRITE_SHARE = 0.2


class Tables:
    """What writers were told of their rows."""

    def __init__(self) -> None:
        self.written: defaultdict[str, set[int]] = defaultdict(set)
        self.unknown: defaultdict[str, set[int]] = defaultdict(set)

    def draw(self, chance: random.Random, number: int) -> tuple[str, list[int] | None]:
        """A file, and the rows that an append adds; None for a rewrite."""
        rows = [number * (ROWS_EACH_MAX + 1) + nth for nth in range(chance.randint(1, ROWS_EACH_MAX))]
        return chance.choice(PATHS), None if chance.random() < REWRITE_SHARE else rows

    def append(self, fs: RollingFileSystem, path: str, rows: list[int]) -> None:
        """Append rows, as a blocking program does."""
        from rollingfs import parquet

        self.unknown[path].update(rows)
        with contextlib.suppress(FileExistsError):
            fs.create(path, POLICY)
        try:
            parquet.append(fs, path, {"row": rows})
        except (RollingError, FileNotFoundError, ValueError) as error:
            if not isinstance(error, AppendOutcomeUnknown):
                self.unknown[path].difference_update(rows)
                raise CommitTimeoutError(f"{error}; nothing was written") from error
            raise
        self.unknown[path].difference_update(rows)
        self.written[path].update(rows)

    def rewrite(self, fs: RollingFileSystem, path: str) -> None:
        """Write a file anew, which changes no row."""
        from rollingfs import parquet

        try:
            parquet.rewrite(fs, path)
        except (RollingError, ValueError) as error:  # others append, or nothing is in it yet
            raise CommitTimeoutError(str(error)) from error

    def check(self, fs: RollingFileSystem) -> None:
        """Compare all rows with what writers were told."""
        import pyarrow.parquet as pq

        for path in PATHS:
            rows: Counter[int] = Counter()
            if fs.exists(path) and fs.size(path):
                with fs.open(path) as file:
                    rows = Counter(pq.read_table(file)["row"].to_pylist())
            lost, doubled = self.written[path] - rows.keys(), [row for row, count in rows.items() if count > 1]
            foreign = rows.keys() - self.written[path] - self.unknown[path]
            if lost or doubled or foreign:
                raise Violation(f"{path}: rows lost {lost}, doubled {doubled}, refused and there {foreign}")
