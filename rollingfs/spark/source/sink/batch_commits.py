"""The commits of one write: to a segment, or to each of several; of a batch that may be repeated, each once.

1. The driver looks at all segments. A segment with the marker of the batch, or of a later batch, has the rows already.
2. It refuses the batch if a commit to another of them would fail. Then no byte is written.
3. A single header replacement for each segment commits its rows and the marker, on condition that the attribute of the
   marker has not changed.

So a batch that a restarted driver repeats, or a slow twin of the driver, is committed once to each segment. A driver
that dies between two segments leaves the rest to the next run of the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rollingfs.errors import AppendOutcomeUnknown, AttributeMismatchError, RollingError, SegmentSealedError
from rollingfs.format.transitions import check_attrs
from rollingfs.runtime.values import value_class
from rollingfs.spark.source import segments
from rollingfs.spark.source.formats import PARQUET
from rollingfs.spark.source.loops import ATTRIBUTE_PREFIX
from rollingfs.spark.source.sink.segment_commit import SegmentCommit, Version

logger = logging.getLogger("pyspark_rollingfs")

TRIES_MAX = 16
COMMITS_MAX = 16
"""Maximum segments that a write checks, or commits to, at once."""
SHOWN_MAX = 8
"""Maximum number of queries, or of segments, that a message names."""


class PartlyCommittedError(RollingError, OSError):
    """A write is committed to some of its segments and not to others; the message names them."""


@value_class
class Marker:
    """The attribute by which a segment knows which batches it has."""

    key: str
    number: int

    @classmethod
    def of(cls, app: str, number: int) -> Marker:
        """Return the marker of a batch of a query, or of an application that counts its writes."""
        return cls(f"{ATTRIBUTE_PREFIX}{app}", number)

    def is_in(self, attrs: Mapping[str, str]) -> bool:
        """Return whether these are the attributes of a segment that has the batch."""
        last = attrs.get(self.key)
        return last is not None and int(last) >= self.number

    def check(self, attrs: Mapping[str, str], is_sealed: bool, path: str) -> None:
        """Refuse a segment that lacks the batch and cannot take it.

        Raises
        ------
        SegmentSealedError
            It is sealed.
        ValueError
            It has no room for the attribute; the message has the details.
        """
        if self.is_in(attrs):
            return
        if is_sealed:
            what = f"it takes no more batches, and lacks batch {self.number}; nothing was written"
            raise SegmentSealedError(f"{path} is sealed; {what}")
        try:
            check_attrs({**attrs, self.key: str(self.number)})
        except ValueError as error:
            known = [f"{name} (batch {value})" for name, value in attrs.items() if name.startswith(ATTRIBUTE_PREFIX)]
            shown = shortened(known) or "none"
            raise ValueError(
                f"{path} has no room for attribute {self.key}, by which the sink knows its batches; nothing was "
                "written. Remove the attributes of queries whose checkpoints will never be used again, by "
                f'fs.append(path, b"", attrs={{"{ATTRIBUTE_PREFIX}…": None}}). It has, oldest query first: {shown}'
            ) from error


def commit(parts: Sequence[SegmentCommit], marker: Marker | None, *, checks_all: bool) -> None:
    """Commit each part, but not to a segment that has the marker.

    Parameters
    ----------
    checks_all
        Before the first commit, refuse the write if a commit to any of the segments would fail.

    Raises
    ------
    PartlyCommittedError
        Only some of several segments have the data.
    OSError
        No segment has it, or the outcome is unknown.
    """
    if marker is not None or checks_all:
        look_at(parts)
        parts = [part for part in parts if marker is None or not marker.is_in(part.attrs)]
        _at_once(lambda part: _check(part, marker, checks_all=checks_all), parts)
    if len(parts) == 1:
        _commit(parts[0], marker)
    elif parts:
        _commit_each(parts, marker)


def _at_once(call: Callable[[SegmentCommit], None], parts: Sequence[SegmentCommit]) -> None:
    """Call for each part, several at a time; raise the first error."""
    with ThreadPoolExecutor(COMMITS_MAX, "rollingfs-spark") as pool:
        list(pool.map(call, parts))


def look_at(parts: Sequence[SegmentCommit]) -> None:
    """Look at the segments as they are now; the requests go out together."""
    looks = segments.look(parts[0].fs, [part.path for part in parts]) if parts else []
    for part, look in zip(parts, looks, strict=True):
        if isinstance(look, OSError):
            raise look
        part.seen = look


def _check(part: SegmentCommit, marker: Marker | None, *, checks_all: bool) -> None:
    if checks_all:
        part.check()
        if part.options.format == PARQUET:
            part.grown(part.seen)
    if marker is not None:
        marker.check(part.attrs, False, part.path)


def _commit_each(parts: Sequence[SegmentCommit], marker: Marker | None) -> None:
    """Commit to several segments at once; an error stops no other segment."""
    errors: dict[str, Exception] = {}

    def one(part: SegmentCommit) -> None:
        try:
            _commit(part, marker)
        except Exception as error:  # noqa: BLE001 - raised below
            errors[part.path] = error

    _at_once(one, parts)
    if not errors:
        return
    first = next(iter(errors.values()))
    if not (done := [part.path for part in parts if part.path not in errors]):
        raise first
    failed = [f"{path} ({error})" for path, error in errors.items()]
    todo = "do not repeat the whole job" if marker is None else "the next run of the batch commits it to the others"
    raise PartlyCommittedError(
        f"the write is committed to {len(done)} of {len(parts)} segments ({shortened(done)}), and not, or perhaps not, "
        f"to {shortened(failed)}; {todo}"
    ) from first


def _commit(part: SegmentCommit, marker: Marker | None) -> None:
    """Commit a part, unless its segment has the marker; it was seen a moment ago."""
    if marker is None:
        part.commit()
        return
    for _ in range(TRIES_MAX):
        if marker.is_in(part.attrs):
            logger.info("%s: batch %d is committed already (%s)", part.path, marker.number, marker.key)
            return
        try:
            part.commit({marker.key: str(marker.number)}, {marker.key: part.attrs.get(marker.key)})
            return
        except (AttributeMismatchError, AppendOutcomeUnknown) as error:
            failure = error  # another driver was faster, or the commit took place: look again
        try:
            part.view()
        except OSError as error:
            raise failure from error  # the first error is the cause
        marker.check(part.attrs, False, part.path)
    raise failure


def shortened(shown: Sequence[str]) -> str:
    """Return a list for a message."""
    more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
    return ", ".join(shown[:SHOWN_MAX]) + more


# -- afterwards --------------------------------------------------------------------------------------------------


def log_outcomes(parts: Sequence[SegmentCommit], marker: Marker | None, planned: Version | None) -> None:
    """Log which parts of a failed job were committed by now, in a line for each outcome.

    Parameters
    ----------
    planned
        The target as it was when the job was planned, if that is known.
    """
    look_at(parts)
    found: dict[bool | None, list[SegmentCommit]] = {}
    for part in parts:
        found.setdefault(_is_committed(part, marker, planned), []).append(part)
    for outcome, of_outcome in found.items():
        paths = shortened([part.path for part in of_outcome])
        if outcome:
            logger.warning("%s: the job reports a failure, but its data IS committed; do not repeat the job", paths)
        elif outcome is None:
            logger.warning(
                "%s: the job failed; its data was perhaps committed, for the segment was changed since the job began: "
                "look for its rows before you repeat the job",
                paths,
            )
        else:
            logger.warning("%s: the job failed, and nothing was committed", paths)


def _is_committed(part: SegmentCommit, marker: Marker | None, planned: Version | None) -> bool | None:
    """Return whether a part was committed; None if it is unknown."""
    now = part.version
    if marker is not None and marker.is_in(part.attrs):
        return True
    if planned is not None and planned[1] != now[1]:
        return None  # of the segment that the job was planned for nothing is known any more
    if marker is not None or now[1] is None:
        return False
    return False if planned == now else None
