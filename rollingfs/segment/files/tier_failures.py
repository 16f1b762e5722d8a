"""What an offload says when the store of a tier fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rollingfs.errors import NoBucketError, RollingError, TierFailedError


@contextlib.contextmanager
def failing(path: str, tier: str, source: str = "") -> Iterator[None]:
    """Say of an error of a store which segment and which tier it is about, and what became of the bytes.

    Raises
    ------
    TierFailedError
        A store did not do what it was asked to. Errors that say it themselves, and missing files, pass.
    """
    try:
        yield
    except NoBucketError as error:
        raise _failed(path, tier, source, error) from error
    except (RollingError, FileNotFoundError):
        raise
    except OSError as error:
        raise _failed(path, tier, source, error) from error


def _failed(path: str, tier: str, source: str, error: OSError) -> TierFailedError:
    what = f"{source} could not be moved" if source else "nothing could be moved"
    return TierFailedError(
        f"{path}: the tier {tier!r} failed, so {what}; what was not moved stays where it was, nothing is lost: repeat "
        f"the call when the store answers. It said: {error}"
    )
