"""Points over a logarithmic axis, each as it was measured; their medians joined, and predictions.

The key figure of a sweep: what was set goes sideward, what it led to goes upward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.canvas import Axes, Sheet, Swatch, plain, scale_x, scale_y, to_rgba
from streamcp.compare.charts.chart import Chart, chart
from streamcp.compare.charts.colours import LIGHT


@dataclass(frozen=True, slots=True)
class Points:
    """What one mode did: `points` are (set, measured), as many per setting as there were; those
    with their place in `hollow` are drawn so."""

    name: str
    colour: str
    marker: str
    points: Sequence[tuple[float, float]]
    hollow: frozenset[int] = frozenset()

    def medians(self) -> list[tuple[float, float]]:
        """The median at each setting, in order."""
        settings = sorted({x for x, _ in self.points})
        return [(one, median_low(y for x, y in self.points if x == one)) for one in settings]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a law says: a dashed line through `points`; one point is a level."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


def points_over(
    name: str,
    title: str,
    description: str,
    series: Sequence[Points],
    predictions: Sequence[Prediction],
    x: Axis,
    y: Axis,
) -> Chart:
    """Draw every point, a line through the medians of each series, and the predictions."""

    def draw(width: float) -> Sheet:
        legend = [
            *(Swatch(one.name, one.colour, one.marker, "-") for one in series),
            *(Swatch(one.name, one.colour, dashes="--") for one in predictions),
        ]
        narrow = width < 500
        sheet = Sheet(width, 430 if narrow else 400)
        top = sheet.legend(0, 0, legend) + 34
        left = 62.0
        axes = sheet.axes(left, top, width - left - 14, sheet.height - top - 50)
        sheet.text(0, top - 14, y.label, "faint")
        sheet.text(width - 14, sheet.height - 6, x.label, "faint", align="right")
        plain(axes)
        settings = sorted({at for one in series for at, _ in one.points})
        values = [value for one in series for _, value in one.points]
        values += [value for one in predictions for _, value in one.points]
        scale_x(axes, x, settings or [1.0])
        scale_y(axes, y, values)
        for place, one in enumerate(series):
            _draw(axes, one, place - (len(series) - 1) / 2, log=x.log)
        for law in predictions:
            _draw_law(axes, law)
        return sheet

    return chart(name, title, description, draw)


def _draw(axes: Axes, one: Points, place: float, *, log: bool) -> None:
    """Modes stand a little beside each other, so that none hides another."""
    settings = [at for at, _ in one.points]
    step = 0.012 * (max(settings) - min(settings))

    def shift(at: float) -> float:
        return at * 1.045**place if log else at + step * place

    colour = LIGHT[one.colour]
    places = range(len(one.points))
    axes.scatter(
        [shift(at) for at, _ in one.points],
        [value for _, value in one.points],
        s=30,
        marker=one.marker,
        facecolors=[to_rgba(colour, 0.0 if n in one.hollow else 0.6) for n in places],
        edgecolors=colour,
        linewidths=1,
        clip_on=False,
        zorder=3,
    )
    middle = one.medians()
    axes.plot(
        [shift(at) for at, _ in middle],
        [value for _, value in middle],
        color=colour,
        linewidth=1.8,
        zorder=2,
        clip_on=False,
    )


def _draw_law(axes: Axes, law: Prediction) -> None:
    style = {"color": LIGHT[law.colour], "linewidth": 1.4, "linestyle": (0, (5, 3)), "zorder": 4}
    if len(law.points) == 1:
        axes.axhline(law.points[0][1], **style)  # type: ignore[arg-type]
    else:
        axes.plot(*zip(*law.points, strict=True), **style, clip_on=False)  # type: ignore[arg-type]
