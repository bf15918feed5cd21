"""What a sweep shows: a table with a row per value and mode, the verdict, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from streamcp.cli.compare_rows import LATENCY_COLUMNS, LATENCY_NOTE, Cells, distribution
from streamcp.compare.figures import Comparison, ModeFigures, compare
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import MODES

_WIDTH = 150
COLUMNS = (
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


def sweep_rows(sweep: Sweep, points: Sequence[Point]) -> list[Cells]:
    """A row per value and mode, as `COLUMNS`; an empty row between two values."""
    return _rows(sweep, points, _cells)


def latency_rows(sweep: Sweep, points: Sequence[Point]) -> list[Cells]:
    """The same for latencies, as `LATENCY_COLUMNS`; none where the load was not swept."""
    if sweep.setting.name != "load":
        return []
    return _rows(sweep, points, lambda mode: distribution(mode, "due"))


def _rows(
    sweep: Sweep, points: Sequence[Point], cells: Callable[[ModeFigures], Sequence[str]]
) -> list[Cells]:
    rows: list[Cells] = []
    for place, point in enumerate(points):
        rows += [("", ())] if place else []
        value = sweep.setting.text(point.value.number) if point.value else "–"
        modes = sorted(compared(point).modes, key=lambda mode: MODES.index(mode.mode))
        rows += [(f"{value}, {mode.mode}", cells(mode)) for mode in modes]
    return rows


def _cells(mode: ModeFigures) -> list[str]:
    return [
        str(mode.completed),
        str(mode.failed),
        *_both(mode.barrier_delay),
        *_both(mode.durable_delay),
        "" if mode.in_flight_bytes is None else words.size(round(mode.in_flight_bytes.p50)),
        "" if mode.queued is None else words.number(mode.queued.p50),
        "" if mode.records_per_second is None else f"{mode.records_per_second:,.0f}",
    ]


def _both(figure: Figure | None) -> tuple[str, str]:
    if figure is None:
        return "never", ""
    return words.duration(figure.p50), words.duration(figure.maximum)


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
    """Print the tables, the verdict and what was `written` to stdout."""
    out = console(_WIDTH)
    label = sweep.setting.label
    out.print(_table(sweep_title(settings), label, COLUMNS, sweep_rows(sweep, points)))
    latencies = latency_rows(sweep, points)
    if latencies:
        out.print(_table("latency, due → written", label, LATENCY_COLUMNS, latencies))
        out.print(LATENCY_NOTE, soft_wrap=True)
    said, right = sweep_conclusion(points, str(runs))
    for line in said:
        out.print(line, style="bold green" if right else "bold red", soft_wrap=True)
    out.print(f"{written}; the runs took {settings['took_seconds']:.0f} s", soft_wrap=True)


def _table(title: str, label: str, columns: Sequence[str], rows: Sequence[Cells]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column(label)
    for column in columns:
        made.add_column(column, justify="right")
    for name, cells in rows:
        if cells:
            made.add_row(name, *cells)
        else:
            made.add_section()
    return made
