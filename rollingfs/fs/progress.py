"""Progress of long operations: plain functions, and the callbacks of fsspec (tqdm, rich, dots)."""

from __future__ import annotations

from fsspec.callbacks import Callback

from rollingfs.maintenance.steps import Progress


def begin(callback: Callback, total: int, progress: Progress | None = None) -> Progress:
    """Tell a callback how much there is to do; returns what takes the steps, for the callback and for `progress`."""
    callback.set_size(total)

    def tell(count: int) -> None:
        callback.relative_update(count)
        if progress is not None:
            progress(count)

    return tell
