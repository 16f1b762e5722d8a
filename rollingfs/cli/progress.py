"""A progress bar on standard error."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from rollingfs.cli.output import Screen

BAR_COLUMNS = 24


def progress_bar(*, of_bytes: bool, counted: bool) -> Progress:
    """Return a bar that goes away when its work is done."""
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if counted:
        columns.append(BarColumn(BAR_COLUMNS))
        columns += [DownloadColumn(binary_units=True), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns.append(TimeElapsedColumn())
    # nothing is redirected: standard output may be a file
    return Progress(*columns, console=Screen(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
