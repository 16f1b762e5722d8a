"""Progress of long operations: plain functions, and the callbacks of fsspec (tqdm, rich, dots)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspec.callbacks import Callback

if TYPE_CHECKING:
    from rollingfs.runtime.steps import Progress


def begin(callback: Callback, total: int | None, progress: Progress | None = None) -> Progress:
    """Give a callback the amount of work, if it is known; return a function for each step."""
    if total is not None:
        callback.set_size(total)

    def tell(count: int) -> None:
        callback.relative_update(count)
        if progress is not None:
            progress(count)

    return tell
