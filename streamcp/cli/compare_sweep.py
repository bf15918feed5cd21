"""What a sweep shows: a table with a row per value and mode, the verdict, and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from streamcp.checkpoint.statistics import Figure
from streamcp.cli import words
from streamcp.cli.compare_report import (
    conclusion,
    console,
    machine,
    plain_verdict,
    runs_as_json,
)
from streamcp.cli.compare_rows import LATENCY_NOTE, percentiles
from streamcp.compare.figures import Comparison, ModeFigures, compare
from streamcp.compare.sweep import Point, Sweep

_WIDTH = 150
_COLUMNS = (
    "done",
    "failed",
    "barrier delay p50",
    "max",
    "durable delay p50",
    "max",
    "in-flight p50",
    "queued p50",
    "records/s",
)


def sweep_title(settings: Mapping[str, Any]) -> str:
    """What was swept, of which job."""
    return (
        f"{settings['job']}: {settings['sweep']}, a checkpoint every {settings['every']}, at most "
        f"{settings['limited_by']} per run"
    )


def compared(point: Point) -> Comparison:
    """The figures at a value."""
    return compare(point.experiment, point.modes)


def sweep_rows(points: Sequence[Point]) -> tuple[list[str], list[tuple[str, Sequence[str]]]]:
    """The columns, and a row per value and mode; an empty row between two values."""
    latency = any(point.experiment.load for point in points)
    rows: list[tuple[str, Sequence[str]]] = []
    for number, point in enumerate(points):
        rows += [("", ())] if number else []
        value = point.value.text if point.value else "–"
        modes = sorted(compared(point).modes, key=lambda mode: _MODES.index(mode.mode))
        rows += [(f"{value}, {mode.mode}", _cells(mode, latency=latency)) for mode in modes]
    return [*_COLUMNS, *(["latency"] if latency else [])], rows


_MODES = ("aligned", "unaligned", "adaptive", "at_least_once")


def _cells(mode: ModeFigures, *, latency: bool) -> list[str]:
    cells = [
        str(mode.completed),
        str(mode.failed),
        *_both(mode.barrier_delay),
        *_both(mode.durable_delay),
        "" if mode.in_flight_bytes is None else words.size(round(mode.in_flight_bytes.p50)),
        "" if mode.queued is None else words.number(mode.queued.p50),
        "" if mode.records_per_second is None else f"{mode.records_per_second:,.0f}",
    ]
    return [*cells, _latency(mode)] if latency else cells


def _both(figure: Figure | None) -> tuple[str, str]:
    if figure is None:
        return "never", ""
    return words.duration(figure.p50), words.duration(figure.maximum)


def _latency(mode: ModeFigures) -> str:
    if mode.latency is None or mode.latency.unstamped:
        return "not measured"
    return percentiles(mode.latency.due) if mode.latency.kept_up else "load not taken"


def sweep_conclusion(points: Sequence[Point], kept: str) -> tuple[list[str], bool]:
    """The verdict on the outputs at all values, and whether all are right."""
    said = []
    for point in points:
        comparison = compared(point)
        if not comparison.is_right:
            value = point.value.text if point.value else "the other modes"
            said += [f"{value}: {line}" for line in conclusion(comparison, kept)]
    if said:
        return said, False
    return ["At each value every mode wrote the same output, record for record."], True


def sweep_json(sweep: Sweep, points: Sequence[Point], settings: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, as plain values."""
    return {
        "settings": settings,
        "machine": machine(),
        "right": all(compared(point).is_right for point in points),
        "sweep": sweep.setting.name,
        "label": sweep.setting.label,
        "points": [_point_json(point) for point in points],
    }


def _point_json(point: Point) -> dict[str, Any]:
    comparison = compared(point)
    return {
        "value": point.value.text if point.value else None,
        "number": point.value.number if point.value else None,
        "undisturbed": plain_verdict(comparison.undisturbed),
        "modes": {mode.mode: mode.as_dict() for mode in comparison.modes},
        **runs_as_json(point.experiment),
    }


def print_sweep(
    sweep: Sweep, points: Sequence[Point], settings: Mapping[str, Any], written: str, runs: Path
) -> None:
    """Print the table, the verdict and what was `written` to stdout."""
    columns, rows = sweep_rows(points)
    made = Table(title=sweep_title(settings), title_justify="left", title_style="bold")
    made.add_column(sweep.setting.label)
    for column in columns:
        made.add_column(column, justify="right")
    for name, cells in rows:
        if cells:
            made.add_row(name, *cells)
        else:
            made.add_section()
    out = console(_WIDTH)
    out.print(made)
    if sweep.setting.name == "load":
        note = f"latency, due → written: p50 / p90 / p99 / p99.9 / max; {LATENCY_NOTE}"
        out.print(note, soft_wrap=True)
    said, right = sweep_conclusion(points, str(runs))
    for line in said:
        out.print(line, style="bold green" if right else "bold red", soft_wrap=True)
    out.print(f"{written}; all of it took {settings['took_seconds']:.0f} s", soft_wrap=True)
