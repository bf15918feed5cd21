"""One checkpoint as it went through the subtasks: who waited, stood still and wrote, and when.

A row is a subtask, a group of rows one checkpoint; all groups have the same axis of time, so that
what is long looks long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import (
    Axes,
    FuncFormatter,
    MaxNLocator,
    Sheet,
    Swatch,
    legend_height,
    plain,
)
from streamcp.compare.charts.chart import Chart, chart
from streamcp.compare.charts.colours import LIGHT

_ROW, _HEAD, _GAP = 20.0, 26.0, 14.0
# How strong the colour of the group is, phase by phase; "ink" for what must be seen though short.
PHASES = (
    ("start delay: the barrier is on its way", 0.16),
    ("alignment: from the first barrier to the last", 1.0),
    ("sync: the subtask stands still", -1.0),
    ("async: freezing and writing, until acknowledged", 0.45),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A subtask: `ends` are those of its phases in their order, seconds after the trigger."""

    label: str
    ends: tuple[float, float, float, float]

    @classmethod
    def of_phases(
        cls,
        label: str,
        *,
        start_delay: float,
        alignment: float,
        sync: float,
        barrier_delay: float,
        end_to_end: float,
    ) -> Row:
        """Make the row of a subtask from its statistics, in seconds."""
        aligned = start_delay + alignment
        acted = max(barrier_delay, aligned + sync)
        return cls(label, (start_delay, aligned, acted, max(end_to_end, acted)))


@dataclass(frozen=True, slots=True)
class Group:
    """One checkpoint; `complete` is when it was durable as a whole."""

    title: str
    colour: str
    rows: Sequence[Row]
    complete: float


def gantt(name: str, title: str, description: str, groups: Sequence[Group], axis: Axis) -> Chart:
    """Draw the groups below each other."""

    def draw(width: float) -> Sheet:
        narrow = width < 500
        rows = sum(len(group.rows) for group in groups)
        legend = [
            Swatch(text, "ink" if opacity < 0 else "faint", opacity=abs(opacity))
            for text, opacity in PHASES
        ]
        legend.append(Swatch("complete: durable as a whole", "ink", marker="|"))
        height = legend_height(legend, width) + 14 + rows * _ROW + len(groups) * (_HEAD + _GAP)
        sheet = Sheet(width, height + 28)
        top = sheet.legend(0, 0, legend) + 14
        left = 116.0 if narrow else 170.0
        last = max(max(group.complete, *(row.ends[3] for row in group.rows)) for group in groups)
        for number, group in enumerate(groups):
            sheet.text(0, top + 15, group.title, bold=True)
            top += _HEAD
            axes = sheet.axes(left, top, width - left - 58, len(group.rows) * _ROW)
            _draw(axes, group, axis, last, is_last=number == len(groups) - 1)
            for place, row in enumerate(group.rows):
                label = _fitted(row.label, 17 if narrow else 25)
                sheet.text(left - 8, top + place * _ROW + 14, label, align="right")
            top += len(group.rows) * _ROW + _GAP
        sheet.text(width - 58, top + 22, axis.label, "faint", align="right")
        return sheet

    return chart(name, title, description, draw)


def _fitted(label: str, letters: int) -> str:
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _draw(axes: Axes, group: Group, axis: Axis, last: float, *, is_last: bool) -> None:
    plain(axes, "x")
    axes.set_xlim(0, last)
    axes.set_ylim(len(group.rows) - 0.5, -0.5)
    axes.yaxis.set_visible(False)
    axes.spines["bottom"].set_visible(is_last)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: axis.text(at)))
    axes.tick_params(labelbottom=is_last)
    colour, ink = LIGHT[group.colour], LIGHT["ink"]
    for place, row in enumerate(group.rows):
        begin = 0.0
        for end, (_, opacity) in zip(row.ends, PHASES, strict=True):
            # What stands still is short: a hair's breadth shows at least that it was there.
            length = max(end - begin, 0.0 if opacity >= 0 else last / 400)
            fill = ink if opacity < 0 else colour
            axes.barh(place, length, 0.62, begin, color=fill, alpha=abs(opacity), linewidth=0)
            begin = max(end, begin)
    axes.plot([group.complete] * 2, [-0.5, len(group.rows) - 0.5], color=ink, linewidth=1.2)
    axes.annotate(
        axis.text(group.complete),
        (group.complete, 0),
        (5, 0),
        textcoords="offset points",
        fontsize=12,
        color=ink,
        va="center_baseline",
        annotation_clip=False,
    )
