"""The verbs of a segment by name, for tests that take several of them."""

from typing import Any

from rollingfs.segment.at import At
from rollingfs.segment.verbs import append as append_module
from rollingfs.segment.verbs.append import stage
from rollingfs.segment.verbs.change import acquire, release, seal
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.truncate import truncate


async def append(at: At, path: str, data: Any, **how: Any) -> int:
    """Append data; return the offset at which it begins."""
    return (await append_module.append(at, path, data, **how)).offset


VERBS = {verb.__name__: verb for verb in (acquire, append, create, delete, overwrite, release, seal, stage, truncate)}
