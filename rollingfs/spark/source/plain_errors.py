"""Errors as Spark shows them: the sentence, without the Python traceback before it.

A worker of Spark sends the text of an exception to the driver: the traceback first, unless a variable hides it.
The worker ends with the exception, so that the variable holds for it only.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("pyspark_rollingfs")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable by which Spark's workers, since 4.0, leave out tracebacks."""
PACKAGE = Path(__file__).parents[2]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let a complete message reach the user without a traceback.

    A bug keeps its traceback.
    """
    try:
        yield
    except Exception as error:
        if _is_worker() and is_sentence(error):
            logger.debug("the traceback of an error that Spark shows without it", exc_info=True)
            os.environ[HIDE_TRACEBACK] = "1"
        raise


plainly = plain_errors()
"""Decorates a function that Spark calls, whose errors are then shown plainly."""


def is_sentence(error: BaseException) -> bool:
    """Return whether the message of an error suffices for a user.

    That is an `OSError`, as all errors of rollingfs and of stores are, and an error of rollingfs about a value or a
    missing package.
    """
    if isinstance(error, OSError):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_ours = bool(frames) and PACKAGE in Path(frames[-1].f_code.co_filename).parents
    return is_ours and isinstance(error, ValueError | NotImplementedError | ImportError)


def _is_worker() -> bool:
    """Return whether this process is a worker that Spark has started, and no program of a user."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(main, "name", "")).startswith("pyspark.")
