"""Lines over time, one panel per mode below each other, with what happened meanwhile marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import (
    Axes,
    Dashes,
    FuncFormatter,
    MaxNLocator,
    Sheet,
    Swatch,
    legend_height,
    plain,
    scale_y,
)
from streamcp.compare.charts.chart import Chart, chart
from streamcp.compare.charts.colours import LIGHT


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel; what is told apart by `dashes` and `opacity` has a place in the legend by
    its `name`, which is the same in all panels."""

    name: str
    points: Sequence[tuple[float, float]]
    dashes: Dashes = "-"
    opacity: float = 1.0
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Panel:
    """One mode: its lines, and `spans` (begin, end) of its checkpoints, in seconds."""

    title: str
    colour: str
    lines: Sequence[Line]
    spans: Sequence[tuple[float, float]] = ()


def timeline(
    name: str,
    title: str,
    description: str,
    panels: Sequence[Panel],
    y: Axis,
    marked: str = "a checkpoint, from its trigger until it was complete",
) -> Chart:
    """Draw the panels with the same axes."""

    def draw(width: float) -> Sheet:
        each = 118.0 if width < 500 else 108.0
        legend = [
            Swatch(line.name, "ink", dashes=line.dashes, opacity=line.opacity)
            for line in _shown(panels)
        ]
        if any(panel.spans for panel in panels):
            legend.append(Swatch(marked, "ink", opacity=0.16))
        sheet = Sheet(width, legend_height(legend, width) + 36 + len(panels) * (each + 38) + 26)
        top = sheet.legend(0, 0, legend) + 10
        sheet.text(0, top + 14, y.label, "faint")
        top += 26
        left = 62.0
        values = [v for panel in panels for line in panel.lines for _, v in line.points]
        moments = [at for panel in panels for line in panel.lines for at, _ in line.points]
        for number, panel in enumerate(panels):
            sheet.text(left, top + 14, panel.title, bold=True)
            axes = sheet.axes(left, top + 24, width - left - 14, each)
            plain(axes)
            scale_y(axes, y, values, ticks=4)
            _draw(axes, panel, max([*moments, 0.0]) or 1.0, is_last=number == len(panels) - 1)
            top += each + 38
        sheet.text(width - 14, top + 20, "seconds since the job ran", "faint", align="right")
        return sheet

    return chart(name, title, description, draw)


def _shown(panels: Sequence[Panel]) -> list[Line]:
    """The lines that there is something of in any panel: they get a place in the legend."""
    names = {line.name for panel in panels for line in panel.lines if line.points}
    return [line for line in panels[0].lines if line.name in names]


def _draw(axes: Axes, panel: Panel, last: float, *, is_last: bool) -> None:
    colour = LIGHT[panel.colour]
    axes.set_xlim(0, last)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
    axes.tick_params(labelbottom=is_last)
    for begin, end in panel.spans:
        # As wide as can be seen, however short it was.
        shown = max(end, begin + last / 300)
        axes.axvspan(begin, min(shown, last), color=colour, alpha=0.16, linewidth=0)
    for line in panel.lines:
        axes.plot(
            [at for at, _ in line.points],
            [value for _, value in line.points],
            color=colour,
            alpha=line.opacity,
            linestyle=line.dashes,
            linewidth=line.width,
            zorder=3,
        )
