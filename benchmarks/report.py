"""The results as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.case import Goal
from benchmarks.runner import Outcome
from benchmarks.servers import BANDWIDTH_KB_S, LATENCY_MS

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("rollingfs", "fsspec", "s3fs", "obstore", "pyarrow", "deltalake", "pyspark")


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print a table for each case."""
    for outcome in outcomes:
        console.print(_figures_table(outcome))
        if outcome.case.goals:
            console.print(_goals_table(outcome))


def _figures_table(outcome: Outcome) -> Table:
    case = outcome.case
    table = Table(title=f"{case.id}: {case.title}", title_justify="left", box=box.SIMPLE)
    table.add_column("", no_wrap=True)
    names = [*case.contestants]
    medians = outcome.medians()
    if len(case.shown) > len(names):  # many figures of few: one line a figure
        for name in names:
            table.add_column(name, justify="right")
        for figure in case.shown:
            table.add_row(_title(figure), *(_format(figure, medians.get(name, {}).get(figure)) for name in names))
        return table
    for figure in case.shown:
        table.add_column(_title(figure), justify="right")
    for name in names:
        if name in medians:
            table.add_row(name, *(_format(figure, medians[name].get(figure)) for figure in case.shown))
        else:
            why = outcome.skipped.get(name) or outcome.failed.get(name, "").strip().rpartition("\n")[2]
            table.add_row(name, f"[dim]{why}[/dim]")
    return table


def _goals_table(outcome: Outcome) -> Table:
    table = Table(box=box.SIMPLE)
    for title, justify in (("goal", "left"), ("bound", "right"), ("found", "right"), ("", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for judged in judge(outcome):
        verdict = {True: "[green]met[/green]", False: "[red]missed[/red]", None: "[dim]not judged[/dim]"}[judged["met"]]
        found = "-" if judged["found"] is None else f"{judged['found']:.2f}"
        table.add_row(judged["goal"], judged["bound"], found, verdict)
    return table


def judge(outcome: Outcome) -> list[dict[str, Any]]:
    """Each goal with the number that was measured; None where a contestant is missing."""
    medians = outcome.medians()
    return [_judged(goal, medians) for goal in outcome.case.goals]


def _judged(goal: Goal, medians: dict[str, dict[str, float]]) -> dict[str, Any]:
    try:
        found = goal.value(medians)
    except (KeyError, ValueError):
        return {"goal": goal.text, "bound": goal.bound, "found": None, "met": None, "margin": None}
    margin = _margin(goal, found)
    return {"goal": goal.text, "bound": goal.bound, "found": found, "met": goal.is_met(found), "margin": margin}


IN_KIB = frozenset({"header_bytes", "sent_unit_bytes"})
_UNITS = {"_bytes": (2**20, "MiB"), "_per_s": (1, "/s"), "_s": (1e-3, "ms")}


def _title(figure: str) -> str:
    if figure == "bytes_per_s":
        return "MB/s"
    if figure in IN_KIB:
        return f"{figure.partition('_')[0]} KiB"
    for ending, (_, unit) in _UNITS.items():
        if figure.endswith(ending):
            return f"{figure.removesuffix(ending).replace('_', ' ')} {unit}"
    return figure.replace("_", " ")


def _format(figure: str, value: float | None) -> str:
    if value is None:
        return "-"
    if figure == "bytes_per_s":
        return f"{value / 1e6:,.0f}" if value else "-"
    if figure in IN_KIB:
        return f"{value / 1024:.1f}"
    scale = next((scale for ending, (scale, _) in _UNITS.items() if figure.endswith(ending)), 1)
    return f"{value / scale:,.0f}" if value / scale >= 100 else f"{value / scale:.2f}"


# -- files ---------------------------------------------------------------------------------------------------


def as_fields(outcomes: Sequence[Outcome], rounds: int, quick: bool, latency_ms: int) -> dict[str, Any]:
    """Everything, for JSON, with the time and the commit of each case.

    The cases have the key "works", as in the results that are stored already.
    """
    at, commit = datetime.now(UTC).isoformat(timespec="seconds"), _commit()
    return {
        "quick": quick,
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "packages": {name: _version(name) for name in PACKAGES},
        "latency_ms": latency_ms,
        "bandwidth_kb_s": BANDWIDTH_KB_S,
        "works": {
            outcome.case.id: {
                "title": outcome.case.title,
                "at": at,
                "commit": commit,
                "rounds_run": max([rounds, *map(len, outcome.samples.values())]),
                "shown": list(outcome.case.shown),
                "medians": outcome.medians(),
                "goals": judge(outcome),
                "rounds": {name: [one.as_fields() for one in rounds] for name, rounds in outcome.samples.items()},
                "skipped": outcome.skipped,
                "failed": outcome.failed,
            }
            for outcome in outcomes
        },
    }


def _commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def save(
    outcomes: Sequence[Outcome], rounds: int, quick: bool, folder: Path, latency_ms: int = LATENCY_MS
) -> list[Path]:
    """Write JSON, its tables as Markdown and, with matplotlib, the picture; returns the files.

    Results at another latency than the usual one have files of their own, and no picture. Cases that were not run keep
    the results of an earlier run in the same folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = "quick" if quick else "latest"
    is_usual = latency_ms == LATENCY_MS
    stem = stem if is_usual else f"{stem}-{latency_ms}ms"
    data = folder / f"{stem}.json"
    fields = as_fields(outcomes, rounds, quick, latency_ms)
    if data.exists():
        before = json.loads(data.read_text(encoding="utf-8"))["works"]
        fields["works"] = {name: fields["works"].get(name, case) for name, case in before.items()} | fields["works"]
    data.write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    table = folder / f"{stem}.md"
    table.write_text(markdown(fields), encoding="utf-8")
    picture = draw(fields, folder / f"{stem}.svg") if is_usual else None
    return [data, table, picture] if picture else [data, table]


def markdown(fields: dict[str, Any]) -> str:
    """All tables and goals of the results, as Markdown."""
    machine, packages = fields["machine"], fields["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    lines = [f"Medians; {machine['cpus']} cores, Python {machine['python']}, {versions}.", ""]
    for name, case in fields["works"].items():
        left_out = {**case["skipped"], **dict.fromkeys(case["failed"], "failed")}
        lines += [f"**{name}: {case['title']}** ({_origin(case)})", ""]
        lines += [*_figure_rows(case), ""] if case["medians"] else []
        lines += [f"Left out: {contestant} ({why}).\n" for contestant, why in left_out.items()]
    goals = [(name, goal) for name, case in fields["works"].items() for goal in case["goals"]]
    lines += ["| | ratio or bound | goal | measured | |", "|---|---|---|---:|---|"]
    for name, goal in goals:
        verdict = {True: "met", False: "**missed**", None: "not judged"}[goal["met"]]
        found = "-" if goal["found"] is None else f"{goal['found']:.2f}"
        lines.append(f"| {name} | {goal['goal']} | {goal['bound']} | {found} | {verdict} |")
    return "\n".join(lines) + "\n"


def _origin(case: dict[str, Any]) -> str:
    rounds = f"{case['rounds_run']} round" + "s" * (case["rounds_run"] > 1)
    return f"{rounds}, {case['at'][:10]}, commit {case['commit']}"


def _figure_rows(case: dict[str, Any]) -> list[str]:
    """One line a contestant, or, of many figures, one line a figure."""
    shown, medians = case["shown"], case["medians"]
    heads, rows = [_title(figure) for figure in shown], list(medians)
    cells = [[_format(figure, medians[name].get(figure)) for figure in shown] for name in rows]
    if len(shown) > len(rows):
        heads, rows, cells = rows, heads, [list(column) for column in zip(*cells, strict=True)]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    return lines + [f"| {row} | " + " | ".join(of_row) + " |" for row, of_row in zip(rows, cells, strict=True)]


def draw(fields: dict[str, Any], path: Path) -> Path | None:
    """Draw how far each goal is met, on a logarithmic scale: 1 is the goal, more is better."""
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return None
    judged = [(name, goal) for name, case in fields["works"].items() for goal in case["goals"]]
    rows = [
        (f"{name}  {goal['goal']} {goal['bound']}", goal["margin"]) for name, goal in judged if goal["met"] is not None
    ]
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.26 * len(rows)), layout="constrained")
    margins = [margin for _, margin in rows]
    colours = ["#3b7d4f" if margin >= 1 else "#b5483a" for margin in margins]
    axes.barh(range(len(rows)), [margin - 1 for margin in margins], left=1, color=colours, height=0.7)
    axes.set_yticks(range(len(rows)), [text for text, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("goal = 1, better is to the right (logarithmic)")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


MARGIN_MAX = 10.0


def _margin(goal: Goal, found: float) -> float:
    """The factor by which a goal is met; bounded, so that one bar does not hide the others."""
    if goal.at_least is not None:
        margin = found / goal.at_least
    elif goal.at_most:
        margin = goal.at_most / found if found > 0 else MARGIN_MAX
    else:
        margin = 1.0 if found <= 0 else 0.5
    return min(max(margin, 1 / MARGIN_MAX), MARGIN_MAX)
