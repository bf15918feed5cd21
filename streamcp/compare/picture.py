"""The picture of a comparison, as a PNG.

Every checkpoint is a dot, a failed one a cross at the upper edge: nothing is averaged away. Modes
differ by colour (told apart also by the colour-blind), by marker and by place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamcp.checkpoint.statistics import CheckpointStatistics, percentile
from streamcp.compare.charts.axis import duration, size
from streamcp.compare.charts.canvas import (
    Axes,
    Figure,
    FigureCanvasAgg,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    to_rgba,
)
from streamcp.compare.charts.colours import LIGHT, MARKERS
from streamcp.compare.experiment import Experiment
from streamcp.compare.runs import RATE_WINDOW
from streamcp.config import Mode

_TEXT, _FAINT = "#222222", "#777777"
# Dots that fall on each other are spread sideways; always in the same way.
_SPREAD = 0.17


def draw(path: Path, experiment: Experiment, modes: Sequence[Mode], title: str) -> None:
    """Write the picture of `experiment` to `path` (PNG)."""
    figure = Figure(figsize=(12, 8.2), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, color=_TEXT)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.04)
    grid = figure.add_gridspec(2, 3, height_ratios=(1.25, 1))
    barrier = figure.add_subplot(grid[0, 0])
    _draw_barrier_delay(barrier, experiment, modes)
    _draw_duration(figure.add_subplot(grid[0, 1], sharey=barrier), experiment, modes)
    _draw_in_flight(figure.add_subplot(grid[0, 2]), experiment, modes)
    throughput = figure.add_subplot(grid[1, :])
    _draw_throughput(throughput, experiment, modes)
    lines, labels = throughput.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path)


def _draw_barrier_delay(axes: Axes, experiment: Experiment, modes: Sequence[Mode]) -> None:
    _draw_delays(axes, experiment, modes, lambda one: one.barrier_delay)
    axes.set_title("Barrier delay\ntrigger → last subtask has acted", fontsize=10.5, color=_TEXT)
    axes.set_ylabel("logarithmic scale", color=_FAINT)


def _draw_duration(axes: Axes, experiment: Experiment, modes: Sequence[Mode]) -> None:
    _draw_delays(axes, experiment, modes, lambda one: one.durable_delay or 0.0)
    axes.set_title(
        "Checkpoint duration\ntrigger → complete and durable", fontsize=10.5, color=_TEXT
    )


def _draw_delays(
    axes: Axes,
    experiment: Experiment,
    modes: Sequence[Mode],
    value: Callable[[CheckpointStatistics], float],
) -> None:
    axes.set_yscale("log")
    _strip(axes, experiment, modes, value, duration)
    axes.yaxis.set_major_locator(LogLocator(10, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_in_flight(axes: Axes, experiment: Experiment, modes: Sequence[Mode]) -> None:
    _strip(axes, experiment, modes, lambda one: one.in_flight_bytes, size)
    axes.set_title(
        "In-flight data in the checkpoint\nqueued, in a call, or just read",
        fontsize=10.5,
        color=_TEXT,
    )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: size(count)))


def _strip(
    axes: Axes,
    experiment: Experiment,
    modes: Sequence[Mode],
    value: Callable[[CheckpointStatistics], float],
    text: Callable[[float], str],
) -> None:
    """A column of dots per mode, and a line at its median."""
    spread = random.Random(1)
    for place, mode in enumerate(modes):
        statistics = experiment.statistics_of(mode)
        completed = [one for one in statistics if one.outcome == "completed"]
        values = [value(one) for one in completed]
        failed = sum(one.outcome == "failed" for one in statistics)
        _dots(
            axes,
            mode,
            [place + spread.uniform(-_SPREAD, _SPREAD) for _ in values],
            values,
            completed,
        )
        if values:
            _mark_median(axes, place, percentile(values, 0.5), text)
        _mark_failed(axes, place, failed, nothing=not values)
    axes.set_xticks(range(len(modes)), [_label(experiment, mode) for mode in modes])
    axes.set_xlim(-0.6, len(modes) - 0.25)
    axes.margins(y=0.12)  # room for what is said about failed ones
    _plain(axes)


def _dots(
    axes: Axes,
    mode: Mode,
    across: Sequence[float],
    up: Sequence[float],
    completed: Sequence[CheckpointStatistics],
) -> None:
    """Hollow ones are of the end of a run: a source had ended, and the queues were draining."""
    colour, marker = LIGHT[mode], MARKERS[mode]
    faces = [to_rgba(colour, 0.0 if one.finished else 0.75) for one in completed]
    axes.scatter(across, up, s=32, facecolors=faces, edgecolors=colour, marker=marker, lw=1.0)


def _mark_median(axes: Axes, place: int, median: float, text: Callable[[float], str]) -> None:
    axes.hlines(median, place - 0.21, place + 0.21, color=_TEXT, lw=1.6)
    axes.annotate(
        text(median),
        (place + 0.23, median),
        fontsize=9,
        color=_TEXT,
        va="center",
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8},
    )


def _mark_failed(axes: Axes, place: int, failed: int, *, nothing: bool) -> None:
    if failed or nothing:
        said = f"× {failed} failed" if failed else "none completed"
        axes.annotate(
            said,
            (place, 0.985),
            xycoords=("data", "axes fraction"),
            fontsize=9,
            ha="center",
            va="top",
            color="#B00020",
        )


def _label(experiment: Experiment, mode: Mode) -> str:
    completed = sum(one.outcome == "completed" for one in experiment.statistics_of(mode))
    return f"{mode}\nn = {completed}"


def _draw_throughput(axes: Axes, experiment: Experiment, modes: Sequence[Mode]) -> None:
    for mode in modes:
        for number, run in enumerate(experiment.runs_of(mode)):
            rates = run.life.rates()
            axes.plot(
                [at for at, _ in rates],
                [rate for _, rate in rates],
                color=LIGHT[mode],
                ls="-" if number == 0 else "--",
                lw=1.6,
                marker=MARKERS[mode],
                ms=4,
                markevery=4,
                label=f"{mode}, run {number + 1}",
            )
    axes.set_title(
        f"Throughput at the end of the pipeline, over {RATE_WINDOW:g} s each",
        fontsize=10.5,
        color=_TEXT,
    )
    axes.margins(x=0.01, y=0.1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds since the job ran        (hollow dots above: a source had ended)")
    axes.set_ylabel("records/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", which="major", color="#DDDDDD", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_TEXT, labelsize=9.5)
