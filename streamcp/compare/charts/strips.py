"""Columns of dots: every value of every mode, nothing averaged away, and a line at the median."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_low

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import Axes, Sheet, plain, scale_y, to_rgba
from streamcp.compare.charts.chart import Chart, chart
from streamcp.compare.charts.colours import LIGHT

# Dots that fall on each other are spread sideward; always in the same way.
_SPREAD = 0.15


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a mode; those with their place in `hollow` are drawn so. `note` stands above:
    how many failed."""

    name: str
    colour: str
    marker: str
    values: Sequence[float]
    hollow: frozenset[int] = field(default_factory=frozenset)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One axis with its columns; those of several panels are drawn in the same order."""

    title: str
    axis: Axis
    columns: Sequence[Column]


def strips(name: str, title: str, description: str, panels: Sequence[Panel]) -> Chart:
    """Draw panels beside each other; on a narrow page below each other."""

    def draw(width: float) -> Sheet:
        narrow = width < 500
        across = 1 if narrow else len(panels)
        each = (width - 28.0 * (across - 1)) / across
        height = 250.0
        sheet = Sheet(width, (height + 62) * (len(panels) if narrow else 1))
        for number, panel in enumerate(panels):
            left = 0.0 if narrow else number * (each + 28)
            top = (height + 62) * number if narrow else 0.0
            sheet.text(left, top + 14, panel.title, bold=True)
            sheet.text(left, top + 32, panel.axis.label, "faint")
            axes = sheet.axes(left + 54, top + 48, each - 54, height - 34)
            _draw(axes, panel)
        return sheet

    return chart(name, title, description, draw)


def _draw(axes: Axes, panel: Panel) -> None:
    plain(axes)
    scale_y(axes, panel.axis, [value for one in panel.columns for value in one.values])
    spread = random.Random(1)
    for place, column in enumerate(panel.columns):
        colour = LIGHT[column.colour]
        faces = [
            to_rgba(colour, 0.0 if n in column.hollow else 0.7) for n in range(len(column.values))
        ]
        axes.scatter(
            [place - 0.1 + spread.uniform(-_SPREAD, _SPREAD) for _ in column.values],
            column.values,
            s=26,
            marker=column.marker,
            facecolors=faces,
            edgecolors=colour,
            linewidths=1,
            clip_on=False,
            zorder=3,
        )
        if column.values:
            _mark(axes, place, median_low(column.values), panel.axis)
        if column.note:
            axes.annotate(
                column.note,
                (place - 0.1, 1.0),
                xycoords=("data", "axes fraction"),
                fontsize=11,
                ha="center",
                va="bottom",
                color=LIGHT["bad"],
            )
    axes.set_xlim(-0.45, len(panel.columns) - 0.35)
    axes.set_xticks(
        [place - 0.1 for place in range(len(panel.columns))], [one.name for one in panel.columns]
    )


def _mark(axes: Axes, place: int, middle: float, axis: Axis) -> None:
    axes.plot([place - 0.3, place + 0.1], [middle] * 2, color=LIGHT["ink"], linewidth=1.8, zorder=4)
    axes.text(
        place + 0.14,
        middle,
        axis.text(middle),
        fontsize=12,
        color=LIGHT["ink"],
        va="center_baseline",
        zorder=5,
    )
