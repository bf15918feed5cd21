"""Stacked bars: what took how long, one after the other, in each mode."""

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

_ROW = 40.0
_OPACITIES = (0.18, 0.45, 0.72, 1.0)


@dataclass(frozen=True, slots=True)
class Bar:
    """One mode: `parts` in the order of the chart's names, at most four; a missing one is None, and
    `note` says why."""

    label: str
    colour: str
    parts: Sequence[float | None]
    note: str = ""


def stacked_bars(
    name: str, title: str, description: str, names: Sequence[str], bars: Sequence[Bar], axis: Axis
) -> Chart:
    """Draw the bars below each other, from zero, with the sum behind each."""

    def draw(width: float) -> Sheet:
        legend = [
            Swatch(text, "faint", opacity=opacity)
            for text, opacity in zip(names, _OPACITIES, strict=False)
        ]
        sheet = Sheet(width, legend_height(legend, width) + 14 + len(bars) * _ROW + 46)
        top = sheet.legend(0, 0, legend) + 14
        left = 84.0
        axes = sheet.axes(left, top, width - left - 70, len(bars) * _ROW)
        for place, bar in enumerate(bars):
            sheet.text(left - 10, top + place * _ROW + 24, bar.label, align="right")
        _draw(axes, bars, axis)
        sheet.text(width - 70, top + len(bars) * _ROW + 40, axis.label, "faint", align="right")
        return sheet

    return chart(name, title, description, draw)


def _draw(axes: Axes, bars: Sequence[Bar], axis: Axis) -> None:
    plain(axes, "x")
    longest = max((sum(part or 0.0 for part in bar.parts) for bar in bars), default=0.0) or 1.0
    axes.set_xlim(0, longest * 1.02)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.yaxis.set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: axis.text(at)))
    for place, bar in enumerate(bars):
        begin = 0.0
        for part, opacity in zip(bar.parts, _OPACITIES, strict=False):
            if part:
                colour = LIGHT[bar.colour]
                axes.barh(place, part, 0.56, begin, color=colour, alpha=opacity, linewidth=0)
                begin += part
        axes.annotate(
            bar.note or axis.text(begin),
            (begin, place),
            (6, 0),
            textcoords="offset points",
            fontsize=12,
            color=LIGHT["bad" if bar.note else "ink"],
            va="center_baseline",
            annotation_clip=False,
        )
