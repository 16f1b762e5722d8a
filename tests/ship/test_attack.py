"""Two shippers of a log that logrotate rotates each second, while they are killed and stopped: `tests.ship.attack`."""

from pathlib import Path

import pytest

from tests.ship.attack import MODES, Attack, place_of

SHORT = {("disk", "delaycompress"), ("seaweed", "copytruncate"), ("minio", "create")}
SHORT_S, LONG_S = 8, 86
"""At night seven modes make ten minutes on each store."""
CASES = [
    pytest.param(kind, mode, seconds, marks=[*([pytest.mark.s3] if kind == "minio" else []), *marks])
    for kind in ("disk", "seaweed", "minio")
    for mode in MODES
    for seconds, marks in ((LONG_S, [pytest.mark.nightly]), *([(SHORT_S, [])] if (kind, mode) in SHORT else []))
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "mode", "seconds"), CASES)
def test_each_line_is_there_once_and_in_order(
    kind: str, mode: str, seconds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with place_of(kind, tmp_path, {} if kind == "disk" else request.getfixturevalue(kind)) as place:
        attack = Attack(place, mode, tmp_path, seed=seconds)
        attack.run(seconds)
        assert not attack.wrong(), attack.acts
