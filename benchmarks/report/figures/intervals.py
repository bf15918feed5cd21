"""Figures with their intervals below each other, and what was asked of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.rows import Row
from benchmarks.report.figures.figure import Figure, Results
from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import Axes, LogLocator, Sheet, Swatch, plain, text_width
from streamcp.compare.charts.chart import chart
from streamcp.compare.charts.colours import LIGHT

_ROW = 26.0
_COLOURS = {"met": "adaptive", "missed": "bad", "undecided": "unaligned", "": "aligned"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows of a benchmark that are drawn, and what each is called there; None leaves it out."""

    benchmark: str
    label: Callable[[Row], str | None]


def intervals(name: str, title: str, choices: Sequence[Choice], axis: Axis) -> Figure:
    """A figure of ratios: the median as a dot, its interval as a line, the target as a mark."""

    def draw(results: Results) -> str:
        rows = [
            (label, row)
            for choice in choices
            for row in results[choice.benchmark].rows
            for label in [choice.label(row)]
            if label is not None and math.isfinite(row.value)
        ]
        told = "; ".join(f"{label}: {axis.text(row.value)}" for label, row in rows)
        return chart(name, title, told, lambda width: _sheet(rows, axis, width)).standalone()

    return Figure(title, tuple(dict.fromkeys(one.benchmark for one in choices)), draw)


def _sheet(rows: Sequence[tuple[str, Row]], axis: Axis, width: float) -> Sheet:
    legend = [
        *(
            Swatch(verdict or "without a target", colour, "o")
            for verdict, colour in _COLOURS.items()
            if any(row.verdict == verdict for _, row in rows)
        ),
        Swatch("target", "ink", "|"),
    ]
    height = len(rows) * _ROW
    sheet = Sheet(width, height + 90)
    top = sheet.legend(0, 0, legend) + 14
    longest = max((text_width(label) for label, _ in rows), default=0.0)
    left = min(longest + 14, width * 0.5)
    axes = sheet.axes(left, top, width - left - 60, height)
    for place, (label, _) in enumerate(rows):
        sheet.text(left - 10, top + place * _ROW + 17, label, align="right")
    sheet.text(width - 60, top + height + 44, axis.label, "faint", align="right")
    _draw(axes, rows, axis)
    return sheet


def _draw(axes: Axes, rows: Sequence[tuple[str, Row]], axis: Axis) -> None:
    plain(axes, "x")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.yaxis.set_visible(False)
    values = [value for _, row in rows for value in (row.value, *_finite(row))]
    if axis.log:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 1.4, max(values) * 1.4)
        axes.xaxis.set_major_locator(LogLocator(10))
    else:
        axes.set_xlim(min(0.0, *values) * 1.08, max(values) * 1.08)
    axes.xaxis.set_major_formatter(lambda value, _: axis.text(value))
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    for place, (_, row) in enumerate(rows):
        colour = LIGHT[_COLOURS.get(row.verdict, "faint")]
        ends = _finite(row)
        if ends:
            axes.plot(ends, [place, place], color=colour, linewidth=2.4, alpha=0.55)
        axes.plot([row.value], [place], color=colour, marker="o", markersize=7)
        for mark in _targets(row):
            axes.plot([mark], [place], color=LIGHT["ink"], marker="|", markersize=14)
        axes.annotate(
            axis.text(row.value),
            (1, place),
            (8, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center_baseline",
            fontsize=12,
            color=LIGHT["ink"],
            annotation_clip=False,
        )


def _finite(row: Row) -> list[float]:
    ends = row.interval or ()
    return list(ends) if all(map(math.isfinite, ends)) else []


def _targets(row: Row) -> list[float]:
    target = row.target
    ends = (target.low, target.high) if target else ()
    return [end for end in ends if math.isfinite(end)]
