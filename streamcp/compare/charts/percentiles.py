"""Percentile curves: how many of the values lie above what; the axis stretches towards the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import Sheet, Swatch, plain, scale_x, scale_y
from streamcp.compare.charts.chart import Chart, chart
from streamcp.compare.charts.colours import LIGHT


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` are (share, value): that share (0 to 1) of the values is not above it."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def percentile_curves(
    name: str, title: str, description: str, curves: Sequence[Curve], y: Axis
) -> Chart:
    """Draw the curves over 1/(1 - share) on a logarithmic axis (as HdrHistogram's plots)."""

    def draw(width: float) -> Sheet:
        sheet = Sheet(width, 420 if width < 500 else 380)
        legend = [
            Swatch(one.name, one.colour, dashes="--" if one.dashed else "-") for one in curves
        ]
        top = sheet.legend(0, 0, legend) + 34
        left = 62.0
        axes = sheet.axes(left, top, width - left - 22, sheet.height - top - 50)
        sheet.text(0, top - 14, y.label, "faint")
        label = "share of the records that were at most so late"
        sheet.text(width - 14, sheet.height - 6, label, "faint", align="right")
        plain(axes)
        axes.grid(axis="x", color=LIGHT["rule"], linewidth=1)
        highest = max((share for one in curves for share, _ in one.points), default=0.9)
        nines = (1 - 10.0**-n for n in range(2, 7))
        shares = [0.5, *(one for one in (0.75, 0.9, 0.95, *nines) if one <= highest)]
        scale_x(axes, Axis(label, _share, log=True), [1 / (1 - share) for share in shares])
        axes.set_xlim(1, 1 / (1 - highest) * 1.05)
        scale_y(axes, y, [value for one in curves for _, value in one.points])
        for one in curves:
            axes.plot(
                [1 / (1 - share) for share, _ in one.points],
                [value for _, value in one.points],
                color=LIGHT[one.colour],
                linestyle=(0, (5, 3)) if one.dashed else "-",
                linewidth=1.4 if one.dashed else 2.0,
                drawstyle="steps-pre",
            )
        return sheet

    return chart(name, title, description, draw)


def _share(stretched: float) -> str:
    percent = 100 * (1 - 1 / stretched)
    digits = max(round(math.log10(stretched)) - 2, 0)
    return f"{percent:.{digits}f} %"
