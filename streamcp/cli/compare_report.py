"""What `compare` shows at its end: the table, the verdict, and the results as JSON values."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streamcp.checkpoint.statistics import Figure
from streamcp.cli import words
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, ModeFigures, Verdict
from streamcp.compare.runs import as_dict

_NEVER = "never completed"
# Longer lines than this say nothing more to a reader.
_LINE = 160
# What the table needs, where no terminal says how much there is.
_TABLE_WIDTH = 110
RESULTS, PICTURE = "results.json", "compare.png"


Row = tuple[str, Callable[[ModeFigures], str]]


def _p50_max(name: str, text: Callable[[Any], str]) -> Callable[[ModeFigures], str]:
    def cell(mode: ModeFigures) -> str:
        figure: Figure | None = getattr(mode, name)
        if figure is None:
            return _NEVER
        return f"{text(figure.p50)} / {text(figure.maximum)}"

    return cell


def _recovery(name: str, text: Callable[[Any], str]) -> Callable[[ModeFigures], str]:
    def cell(mode: ModeFigures) -> str:
        value = getattr(mode.recovery, name)
        return "" if value is None else text(value)

    return cell


def _failed(mode: ModeFigures) -> str:
    why = ", ".join(
        f"{count} {reason.lower().replace('_', ' ')}" for reason, count in mode.failures.items()
    )
    return f"{mode.failed} ({why})" if why else str(mode.failed)


def _records_per_second(mode: ModeFigures) -> str:
    return "no run ended" if mode.records_per_second is None else f"{mode.records_per_second:,.0f}"


def _restored(mode: ModeFigures) -> str:
    if mode.recovery.error is not None:
        return "failed"
    if mode.recovery.checkpoint is None:
        return "the beginning (no checkpoint)"
    return f"checkpoint {mode.recovery.checkpoint}"


def _verdict(mode: ModeFigures) -> str:
    return {"equal": "equal", "unequal": "UNEQUAL", "unknown": "unknown"}[mode.verdict.answer]


_SIZE = lambda value: words.size(round(value))  # noqa: E731
_NUMBER = words.number

_ROWS: tuple[Row | None, ...] = (
    ("checkpoints completed", lambda mode: str(mode.completed)),
    ("checkpoints failed", _failed),
    ("  unaligned from the start", lambda mode: str(mode.unaligned)),
    ("  escalated on the way", lambda mode: str(mode.escalated)),
    ("barrier delay, p50 / max", _p50_max("barrier_delay", words.duration)),
    ("durable delay, p50 / max", _p50_max("durable_delay", words.duration)),
    ("alignment, p50 / max", _p50_max("alignment", words.duration)),
    ("in-flight records, p50 / max", _p50_max("in_flight_records", _NUMBER)),
    ("in-flight bytes, p50 / max", _p50_max("in_flight_bytes", _SIZE)),
    ("snapshot bytes, p50 / max", _p50_max("snapshot_bytes", _SIZE)),
    ("records in channels, p50 / max", _p50_max("queued", _NUMBER)),
    ("records/s", _records_per_second),
    None,
    ("kill -9 after", _recovery("killed_after", words.duration)),
    ("restored from", _restored),
    ("in-flight records replayed", _recovery("replayed", _NUMBER)),
    ("restore", _recovery("restore", words.duration)),
    ("first output after the restore", _recovery("first_output", words.duration)),
    ("  visible (committed) after", _recovery("first_commit", words.duration)),
    ("new process to first output", _recovery("back", words.duration)),
    ("output as undisturbed", _verdict),
)


def table(comparison: Comparison, title: str) -> Table:
    """The figures side by side."""
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("")
    for mode in comparison.modes:
        made.add_column(mode.mode, justify="right")
    for row in _ROWS:
        if row is None:
            made.add_section()
        else:
            name, cell = row
            made.add_row(name, *(cell(mode) for mode in comparison.modes))
    return made


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
        return [
            f"The output after the kill equals the undisturbed output in every mode, record for "
            f"record ({words.counted(lines, 'line')})."
        ]
    return [*said, f"The files of all runs are kept in {kept}"]


def _unequal(what: str, verdict: Verdict) -> list[str]:
    if verdict.answer == "equal":
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
        "machine": _machine(),
        "right": comparison.is_right,
        "undisturbed": _plain_verdict(comparison.undisturbed),
        "modes": {mode.mode: mode.as_dict() for mode in comparison.modes},
        "runs": [{"mode": run.mode, **as_dict(run.life)} for run in experiment.measured],
        "killed": [
            {
                "mode": run.mode,
                "before": as_dict(run.before),
                "after": as_dict(run.after) if run.after else None,
            }
            for run in experiment.killed
        ],
    }


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    return {"answer": verdict.answer, "lines": verdict.lines, "why": verdict.why}


def _machine() -> dict[str, Any]:
    return {
        "streamcp": version("streamcp"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
    }


def title(settings: Mapping[str, Any]) -> str:
    """What was compared, under which load."""
    return (
        f"{settings['job']}: {settings['records_per_run']:,} records per run, a checkpoint every "
        f"{settings['every']}, {settings['channel_capacity']:,} records per channel"
    )


def print_results(
    comparison: Comparison, settings: Mapping[str, Any], folder: Path, runs: Path
) -> None:
    """Print the table, the verdict and what was written to stdout."""
    out = Console(highlight=False, markup=False)
    if not out.is_terminal:
        out.width = max(out.width, _TABLE_WIDTH)
    out.print(table(comparison, title(settings)))
    out.print(
        f"undisturbed runs in this order: {', '.join(settings['order'])}; the first one was "
        f"limited by {settings['limited_by']}, all others by its records",
        soft_wrap=True,
    )
    style = "bold green" if comparison.is_right else "bold red"
    for line in conclusion(comparison, str(runs)):
        out.print(line, style=style, soft_wrap=True)
    out.print(
        f"{folder / RESULTS} and {folder / PICTURE} are written; all of it took "
        f"{settings['took_seconds']:.0f} s",
        soft_wrap=True,
    )
