"""The sheet that figures are drawn on. The one file that imports matplotlib (extra `compare`).

Distances are pixels of the SVG, from the upper left corner, so that a figure looks the same
whatever font the page has. All text is horizontal.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from streamcp.compare.charts.axis import Axis
from streamcp.compare.charts.colours import LIGHT
from streamcp.errors import MissingExtra

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )
except ImportError as error:
    raise MissingExtra(
        'the figures of compare need matplotlib; pip install "streamcp[compare]"'
    ) from error

__all__ = [
    "Axes",
    "Dashes",
    "Figure",
    "FigureCanvasAgg",
    "FuncFormatter",
    "LogLocator",
    "MaxNLocator",
    "NullFormatter",
    "Sheet",
    "Swatch",
    "legend_height",
    "plain",
    "scale_x",
    "scale_y",
    "to_rgba",
]

_TEXT = 12.0
# A letter of the usual fonts is so wide, in parts of its height; a little more than less.
_LETTER = 0.56
_LINE = 20.0
_INCH = 72.0


Dashes: TypeAlias = Literal["-", "--", ":", ""]


@dataclass(frozen=True, slots=True)
class Swatch:
    """An entry of a legend: a marker, a line with `dashes`, both, or else a filled square."""

    text: str
    colour: str
    marker: str = ""
    dashes: Dashes = ""
    opacity: float = 1.0


class Sheet:
    """A figure of a width and height that axes, texts and a legend are put on."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / _INCH, height / _INCH), dpi=_INCH)
        self.figure.patch.set_visible(False)
        FigureCanvasSVG(self.figure)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Make axes whose frame begins `left` and `top` from the corner."""
        w, h = self.width, self.height
        made = self.figure.add_axes((left / w, 1 - (top + height) / h, width / w, height / h))
        made.patch.set_visible(False)
        return made

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = "ink",
        *,
        size: float = _TEXT,
        bold: bool = False,
        align: str = "left",
    ) -> None:
        """Write a line whose foot is `y` from the top."""
        self.figure.text(
            x / self.width,
            1 - y / self.height,
            text,
            color=LIGHT[colour],
            fontsize=size,
            fontweight="bold" if bold else "normal",
            ha=align,
            va="baseline",
            parse_math=False,
        )

    def legend(self, left: float, top: float, entries: Sequence[Swatch]) -> float:
        """Put a legend there, in as many lines as it needs; return its height."""
        places = legend_places([entry.text for entry in entries], self.width - left)
        for entry, (x, line) in zip(entries, places, strict=True):
            y = top + line * _LINE
            self._swatch(entry, left + x, y)
            self.text(left + x + 24, y + 13, entry.text, "faint")
        return (places[-1][1] + 1) * _LINE if places else 0.0

    def _swatch(self, entry: Swatch, x: float, y: float) -> None:
        w, h = self.width, self.height
        colour = LIGHT[entry.colour]
        if entry.marker or entry.dashes:
            middle = 1 - (y + 9) / h
            line = Line2D(
                [x / w, (x + 9) / w, (x + 18) / w] if entry.dashes else [(x + 9) / w],
                [middle] * 3 if entry.dashes else [middle],
                color=colour,
                marker=entry.marker or None,
                markevery=[1] if entry.dashes else None,
                markersize=7,
                linestyle=entry.dashes or "none",
                linewidth=1.8,
                alpha=entry.opacity,
            )
            self.figure.add_artist(line)
        else:
            box = Rectangle((x / w + 3 / w, 1 - (y + 15) / h), 12 / w, 12 / h)
            box.set(facecolor=colour, alpha=entry.opacity, edgecolor="none")
            self.figure.add_artist(box)

    def as_svg(self, salt: str) -> str:
        """Write the figure; two with different `salt` have no id in common."""
        written = io.StringIO()
        settings: dict[Any, Any] = {
            "svg.fonttype": "none",
            "svg.hashsalt": salt,
            "path.simplify": False,
        }
        with rc_context(settings):
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            self.figure.savefig(written, format="svg", metadata=nothing)
        return written.getvalue()


def text_width(text: str, size: float = _TEXT) -> float:
    """Estimate how wide a text is, in the font of whatever page."""
    return len(text) * size * _LETTER


def legend_places(texts: Sequence[str], width: float) -> list[tuple[float, int]]:
    """Put entries beside each other, in as many lines as the width asks for: x and line of each."""
    places: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for text in texts:
        needed = 24 + text_width(text)
        if x and x + needed > width:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += needed + 16
    return places


def legend_height(entries: Sequence[Swatch], width: float) -> float:
    """How high a legend will be that begins at the left edge."""
    places = legend_places([entry.text for entry in entries], width)
    return (places[-1][1] + 1) * _LINE if places else 0.0


def plain(axes: Axes, grid: str = "y") -> None:
    """Leave of the axes what tells something: a ground line, faint lines to read values off."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT["faint"])
    axes.grid(visible=False)
    axes.grid(axis=grid, which="major", color=LIGHT["rule"], linewidth=1)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(
        which="both", colors=LIGHT["faint"], labelcolor=LIGHT["ink"], labelsize=_TEXT, length=0
    )
    axes.tick_params(which="major", pad=6)


def scale_y(axes: Axes, axis: Axis, values: Sequence[float], *, ticks: int = 6) -> None:
    """Scale the upward axis for `values`, from zero unless it is logarithmic; label it above."""
    if axis.log:
        low, high = _log_range(values)
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator(_log_ticks(low, high)))
    else:
        axes.set_ylim(0, max([*values, 0]) * 1.08 or 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: axis.text(value)))


def scale_x(axes: Axes, axis: Axis, ticks: Sequence[float]) -> None:
    """Scale the sideward axis so that `ticks`, the only ones, are inside. One whose text would run
    into that of the one before it has none."""
    if axis.log:
        axes.set_xscale("log")
        spread = (max(ticks) / min(ticks)) ** 0.08 if len(ticks) > 1 else 2.0
        axes.set_xlim(min(ticks) / spread, max(ticks) * spread)
    else:
        spread = (max(ticks) - min(ticks)) * 0.08 or 1.0
        axes.set_xlim(min(ticks) - spread, max(ticks) + spread)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    told = _with_room(axes, {tick: axis.text(tick) for tick in sorted(ticks)})
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: told.get(value, "")))


def _with_room(axes: Axes, texts: Mapping[float, str]) -> dict[float, str]:
    told: dict[float, str] = {}
    free = -math.inf
    for tick, text in texts.items():
        middle = axes.get_xaxis_transform().transform((tick, 0.0))[0] * 72 / axes.figure.dpi
        half = text_width(f"{text} ") / 2
        if middle - half >= free:
            told[tick] = text
            free = middle + half
    return told


def _log_range(values: Sequence[float]) -> tuple[float, float]:
    positive = [value for value in values if value > 0] or [1e-3, 1.0]
    return min(positive) / 1.6, max(positive) * 1.6


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with steps between them where there are few."""
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        ticks = [
            step * 10.0**power
            for power in range(-9, 13)
            for step in steps
            if low <= step * 10.0**power <= high
        ]
        if len(ticks) >= 3:
            return ticks
    return ticks
