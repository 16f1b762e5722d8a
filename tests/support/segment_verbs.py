"""The verbs of a segment by name, for tests that take several of them."""

from rollingfs.segment.verbs.append import append, extend
from rollingfs.segment.verbs.change import acquire, release, seal
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.stage import stage
from rollingfs.segment.verbs.truncate import truncate

VERBS = {
    verb.__name__: verb for verb in (acquire, append, create, delete, extend, overwrite, release, seal, stage, truncate)
}
