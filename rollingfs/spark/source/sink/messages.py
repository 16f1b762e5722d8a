"""What a task tells the driver: the bytes that it wrote, while they are few, or receipts of what it staged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from rollingfs.commit.chunk_files import Staged
from rollingfs.runtime.values import value_class

FIRST_SHARE = 3 / 4
"""The share of a batch's bytes that the first tasks get, each as much as a task may send."""
NEXT_SHARE = 1 / 4
"""The share of that which the tasks behind them get, and so on."""
NEXT_BYTES = 1 / 8
"""What one of these tasks may send, of what one before them may. So twice as many get it.

With the defaults, 200 tasks may send 8 KiB each: the Parquet file of one text of 1 KiB has more than 4 KiB, because
its statistics repeat the text.
"""


def task_bytes_max(partition: int, task_bytes: int, batch_bytes: int) -> int:
    """Maximum bytes that the message of a task may carry.

    A task does not know how many there are, but its number says how many there are at least. So the first tasks may
    send most, and the sum over any number of tasks stays within `batch_bytes`.

    Parameters
    ----------
    partition
        The number of the task, from 0 on.
    task_bytes
        The most that a task may send.
    batch_bytes
        The most that all tasks may send.
    """
    share, each = batch_bytes * FIRST_SHARE, float(task_bytes)
    while each >= 1:
        count = int(share / each)
        if partition < count:
            return int(each)
        partition -= count
        share, each = share * NEXT_SHARE, each * NEXT_BYTES
    return 0


@value_class
class Piece:
    """What a task wrote for one segment."""

    name: str | None
    """The segment, by its name in the target's folder; None for the target itself."""
    data: bytes | Staged
    footer: bytes | None = None
    """The footer of a Parquet file."""

    @property
    def size(self) -> int:
        """Bytes written."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.size


class Receipt(WriterCommitMessage):
    """The message of one task."""

    def __init__(self, partition: int, pieces: Sequence[Piece], query: str | None) -> None:
        self.partition = partition
        self.pieces = tuple(pieces)
        self.query = query


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """The receipts of the tasks that succeeded, in the order of the partitions; a failed task sends None."""
    found = [message for message in messages if isinstance(message, Receipt)]
    return sorted(found, key=lambda receipt: receipt.partition)


def by_segment(receipts: Sequence[Receipt]) -> Mapping[str | None, list[Piece]]:
    """The pieces of each segment, in their order; the segments in the order of their names."""
    found: dict[str | None, list[Piece]] = {}
    for receipt in receipts:
        for piece in receipt.pieces:
            found.setdefault(piece.name, []).append(piece)
    return dict(sorted(found.items(), key=lambda item: item[0] or ""))
