"""What the processes of a soak are told, and the notes that they write."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fsspec

LOGS = 3
MAX_BYTES, INLINE_BYTES = 64 * 1024, 4 * 1024
COMMIT_TIMEOUT_S = 60
SOCKETS_AT_REST_MAX = 12


@dataclass(frozen=True)
class Place:
    """Where a soak works, and what it opens its filesystems with."""

    protocol: str
    root: str
    options: dict[str, Any]
    """Of the target filesystem."""
    notes: str
    """A local folder; a file `stop` in it ends all processes."""

    def dump(self) -> str:
        return json.dumps(asdict(self))

    def open(self, **options: Any) -> Any:
        """A filesystem of its own, with two tiers beside it."""
        return fsspec.filesystem(
            "rolling",
            target_protocol=self.protocol,
            target_options=self.options,
            skip_instance_cache=True,
            max_bytes=MAX_BYTES,
            inline_bytes=INLINE_BYTES,
            commit_timeout_s=COMMIT_TIMEOUT_S,
            tiers={name: {"root": f"{self.root}-{name}", "protocol": self.protocol} for name in ("cold", "warm")},
            **options,
        )

    @property
    def folder(self) -> str:
        """Where the logs are: a stream, with policies for upkeep."""
        return f"{self.root}/logs"

    @property
    def logs(self) -> list[str]:
        """Segments that all append to, and truncate."""
        return [f"{self.folder}/log-{index}" for index in range(LOGS)]

    @property
    def merged(self) -> str:
        """The segment that all concat their parts to."""
        return f"{self.root}/merged"

    @property
    def stop(self) -> Path:
        return Path(self.notes, "stop")


def write_note(place: Place, name: str, **note: Any) -> None:
    """Add to the notes of a process, by one write: after `kill -9` they say which call was under way."""
    with Path(place.notes, f"{name}.notes").open("ab", buffering=0) as file:
        file.write(json.dumps(note).encode() + b"\n")


def read_notes(place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """All notes, each with the name of its process."""
    for path in sorted(Path(place.notes).glob("*.notes")):
        for line in path.read_text().splitlines():
            yield path.stem, json.loads(line)
