"""What `compare` shows at its end: the table, the verdict, and the results as JSON values."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streamcp.cli import words
from streamcp.cli.compare_rows import (
    LATENCY_COLUMNS,
    LATENCY_NOTE,
    Cells,
    groups_of,
    latency_groups,
)
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, Verdict
from streamcp.compare.runs import as_dict

# Longer lines than this say nothing more to a reader.
_LINE = 160
# What the table needs, where no terminal says how much there is.
_TABLE_WIDTH = 110
RESULTS, PICTURE, REPORT = "results.json", "compare.png", "report.html"


def table(comparison: Comparison, title: str) -> Table:
    """The figures side by side."""
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("")
    for mode in comparison.modes:
        made.add_column(mode.mode, justify="right")
    _add_groups(made, groups_of(comparison))
    return made


def latency_table(comparison: Comparison) -> Table | None:
    """The latencies; None if there was no open loop."""
    groups = latency_groups(comparison)
    if not groups:
        return None
    made = Table(title="latency", title_justify="left", title_style="bold")
    made.add_column("")
    for column in LATENCY_COLUMNS:
        made.add_column(column, justify="right")
    _add_groups(made, groups)
    return made


def _add_groups(table: Table, groups: Sequence[Sequence[Cells]]) -> None:
    for number, group in enumerate(groups):
        if number:
            table.add_section()
        for name, cells in group:
            table.add_row(name, *cells)


def conclusion(comparison: Comparison, kept: str) -> list[str]:
    """What is to be said about the outputs, the worst loudly; `kept` says where the files are."""
    said = []
    for mode in comparison.modes:
        said += [f"{mode.mode}: A RUN DID NOT END: {error}" for error in mode.errors]
        if mode.recovery.error is not None:
            said.append(f"{mode.mode}: THE KILLED RUN DID NOT END: {mode.recovery.error}")
        said += _unequal(f"{mode.mode}: the output after the kill", mode.verdict)
    undisturbed = _unequal(
        "the undisturbed runs differ from each other: the output", comparison.undisturbed
    )
    if comparison.undisturbed.answer == "unequal":
        undisturbed.append(
            "So what this job writes depends on time or on chance, or something is lost without "
            "any kill; the comparison after the kill cannot tell."
        )
    said += undisturbed
    if comparison.is_right:
        lines = comparison.undisturbed.lines
        if all(mode.verdict.answer == "not asked" for mode in comparison.modes):
            return [f"Every run wrote the same output ({words.counted(lines, 'line')})."]
        return [
            f"The output after the kill equals the undisturbed output in every mode, record for "
            f"record ({words.counted(lines, 'line')})."
        ]
    return [*said, f"The files of all runs are kept in {kept}"]


def _unequal(what: str, verdict: Verdict) -> list[str]:
    if verdict.answer in ("equal", "not asked"):
        return []
    if verdict.answer == "unknown":
        return [f"{what} was not compared: {verdict.why}"]
    differs = verdict.difference
    said = [
        f"{what} IS NOT EQUAL: {words.counted(differs.missing, 'line')} missing, "
        f"{differs.extra:,} too many, of {verdict.lines:,}"
    ]
    said += [f"  missing: {line[:_LINE]}" for line in differs.examples_missing]
    said += [f"  too many: {line[:_LINE]}" for line in differs.examples_extra]
    return said


def as_json(
    experiment: Experiment, comparison: Comparison, settings: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was measured, as plain values; every run with all it told."""
    return {
        "settings": settings,
        "machine": machine(),
        "right": comparison.is_right,
        "undisturbed": plain_verdict(comparison.undisturbed),
        "modes": {mode.mode: mode.as_dict() for mode in comparison.modes},
        **runs_as_json(experiment),
    }


def runs_as_json(experiment: Experiment) -> dict[str, Any]:
    """Every run with all it told."""
    reference = experiment.reference
    return {
        "reference": as_dict(reference) if reference else None,
        "rates": dict(experiment.rates),
        "runs": [
            {
                "mode": run.mode,
                **as_dict(run.life),
                "breakdowns": [one.as_dict() for one in run.breakdowns],
            }
            for run in experiment.measured
        ],
        "killed": [
            {
                "mode": run.mode,
                "before": as_dict(run.before),
                "after": as_dict(run.after) if run.after else None,
            }
            for run in experiment.killed
        ],
    }


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """The answer without the lines that differ."""
    return {"answer": verdict.answer, "lines": verdict.lines, "why": verdict.why}


def machine() -> dict[str, Any]:
    """Where and when it was measured, and with what."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "streamcp": version("streamcp"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processor": _processor(),
    }


def _processor() -> str:
    """Its name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def title(settings: Mapping[str, Any]) -> str:
    """What was compared, under which load."""
    return (
        f"{settings['job']}: {settings['records_per_run']:,} records per run, a checkpoint every "
        f"{settings['every']}, {settings['channel_capacity']:,} records per channel"
    ) + (f", {settings['load']:g} of the load it sustains" if settings["load"] else "")


def print_results(
    comparison: Comparison, settings: Mapping[str, Any], written: str, runs: Path
) -> None:
    """Print the table, the verdict and what was `written` to stdout."""
    out = console(_TABLE_WIDTH)
    out.print(table(comparison, title(settings)))
    latency = latency_table(comparison)
    if latency is not None:
        out.print(latency)
        out.print(LATENCY_NOTE, soft_wrap=True)
    out.print(order_of(settings), soft_wrap=True)
    style = "bold green" if comparison.is_right else "bold red"
    for line in conclusion(comparison, str(runs)):
        out.print(line, style=style, soft_wrap=True)
    out.print(
        f"{written}; the runs took {settings['took_seconds']:.0f} s",
        soft_wrap=True,
    )


def order_of(settings: Mapping[str, Any]) -> str:
    """In which order the runs were, and what limited them."""
    first = "the first one"
    if settings["load"]:
        first = "a run without checkpoints before them"
    return (
        f"undisturbed runs in this order: {', '.join(settings['order'])}; {first} was limited by "
        f"{settings['limited_by']}, all others by its records"
    )


def console(width: int) -> Console:
    """Stdout; as wide as is needed where no terminal says how wide it is."""
    out = Console(highlight=False, markup=False)
    if not out.is_terminal:
        out.width = max(out.width, width)
    return out
