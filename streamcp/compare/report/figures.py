"""The figures of one comparison: what was measured, put into charts. Computes nothing new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median_low

from streamcp.checkpoint.snapshot import SubtaskStatistics
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.compare.breakdown import Breakdown, typical
from streamcp.compare.charts.axis import Axis, duration, number, size
from streamcp.compare.charts.bars import Bar, stacked_bars
from streamcp.compare.charts.chart import Chart
from streamcp.compare.charts.colours import MARKERS
from streamcp.compare.charts.gantt import Group, Row, gantt
from streamcp.compare.charts.strips import Column, strips
from streamcp.compare.charts.strips import Panel as Strip
from streamcp.compare.charts.timeline import Line, Panel, timeline
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, ModeFigures
from streamcp.compare.runs import RATE_WINDOW, MeasuredRun
from streamcp.config import Mode

# Of a job with many subtasks the slowest ones say where the time went.
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class Shown:
    """A chart and what is to be known when reading it; `chart.title` is its heading."""

    chart: Chart
    caption: str


def delays(experiment: Experiment, comparison: Comparison) -> Shown:
    """Every checkpoint as a dot: its barrier delay, its durable delay, its in-flight data."""
    modes = [mode.mode for mode in comparison.modes]

    def panel(title: str, axis: Axis, value: Callable[[CheckpointStatistics], float]) -> Strip:
        return Strip(title, axis, [_column(experiment, mode, value) for mode in modes])

    panels = [
        panel(
            "Barrier delay",
            Axis("trigger → last subtask has acted", duration, log=True),
            lambda one: one.barrier_delay,
        ),
        panel(
            "Durable delay",
            Axis("trigger → complete and durable", duration, log=True),
            lambda one: one.durable_delay or 0.0,
        ),
        panel(
            "In-flight data",
            Axis("bytes that the checkpoint holds of it", size),
            lambda one: one.in_flight_bytes,
        ),
    ]
    described = "; ".join(
        f"{mode.mode}: barrier delay {duration(mode.barrier_delay.p50)}"
        if mode.barrier_delay
        else f"{mode.mode}: no checkpoint completed"
        for mode in comparison.modes
    )
    chart = strips(
        "delays",
        "Every checkpoint",
        f"Columns of dots per mode. Medians, {described}.",
        panels,
    )
    caption = (
        "One dot per completed checkpoint of the undisturbed runs; the line is the median. Delays "
        "are on logarithmic axes. A hollow dot is of the end of a run: a source had ended, and the "
        "queues were draining."
    )
    return Shown(chart, caption)


def _column(
    experiment: Experiment, mode: Mode, value: Callable[[CheckpointStatistics], float]
) -> Column:
    statistics = experiment.statistics_of(mode)
    completed = [one for one in statistics if one.outcome == "completed"]
    failed = sum(one.outcome == "failed" for one in statistics)
    note = f"{failed} failed" if failed else "" if completed else "none completed"
    hollow = frozenset(place for place, one in enumerate(completed) if one.finished)
    return Column(mode, mode, MARKERS[mode], [value(one) for one in completed], hollow, note)


# ---- one checkpoint


def one_checkpoint(experiment: Experiment, comparison: Comparison) -> Shown | None:
    """The checkpoint nearest to the median of each mode, subtask by subtask."""
    groups = [group for mode in comparison.modes for group in _group(experiment, mode)]
    if not groups:
        return None
    described = "; ".join(
        f"{group.title}: complete after {duration(group.complete)}" for group in groups
    )
    axis = Axis("after the trigger", duration)
    chart = gantt("one-checkpoint", "One checkpoint, subtask by subtask", described, groups, axis)
    hidden = any(len(_chosen(one)[1]) < len(one.subtasks) for one in _typical_of(experiment))
    caption = (
        "Of each mode the checkpoint whose barrier delay is nearest to the median. A subtask waits "
        "for its first barrier, then for those of its other inputs (aligned: those that have come "
        "are blocked meanwhile), stands still while its snapshot is taken by reference, and goes "
        "on; freezing and writing go on beside it. The subtasks of a process write one file, so "
        "they are acknowledged together. All rows have the same axis."
        + (f" Of more than {_MOST_ROWS} subtasks the slowest are shown." if hidden else "")
    )
    return Shown(chart, caption)


def _typical_of(experiment: Experiment) -> Iterator[Breakdown]:
    for mode in {run.mode for run in experiment.measured}:
        found = _typical(experiment, mode)
        if found is not None:
            yield found[0]


def _typical(experiment: Experiment, mode: Mode) -> tuple[Breakdown, MeasuredRun] | None:
    """A checkpoint with the run that it is of: numbers are not unique among runs."""
    middle = [
        one.barrier_delay for one in experiment.statistics_of(mode) if one.outcome == "completed"
    ]
    runs = experiment.runs_of(mode)
    if not middle:
        return None
    found = [
        (one, run) for run in runs for one in [typical(run.breakdowns, median_low(middle))] if one
    ]
    return min(
        found, key=lambda pair: abs(pair[0].barrier_delay - median_low(middle)), default=None
    )


def _group(experiment: Experiment, mode: ModeFigures) -> Iterator[Group]:
    found = _typical(experiment, mode.mode)
    if found is None:
        return
    breakdown, run = found
    told = next(one for one in run.life.statistics if one.checkpoint_id == breakdown.checkpoint_id)
    title = f"{mode.mode}: checkpoint {breakdown.checkpoint_id}"
    if told.escalated_after is not None:
        title += f", unaligned after {duration(told.escalated_after)}"
    elif mode.mode == "adaptive":
        title += f", {told.mode} from its trigger on"
    rows = [_row(name, one) for name, one in _chosen(breakdown)[1]]
    yield Group(title, mode.mode, rows, told.durable_delay or told.end_to_end)


def _chosen(breakdown: Breakdown) -> tuple[int, list[tuple[str, SubtaskStatistics]]]:
    everyone = list(breakdown.subtasks.items())
    slowest = sorted(everyone, key=lambda pair: pair[1].end_to_end)[-_MOST_ROWS:]
    return len(everyone), [pair for pair in everyone if pair in slowest]


def _row(name: str, one: SubtaskStatistics) -> Row:
    return Row.of_phases(
        name,
        start_delay=one.start_delay,
        alignment=one.alignment,
        sync=one.sync,
        barrier_delay=one.barrier_delay,
        end_to_end=one.end_to_end,
    )


# ---- over time


def over_time(experiment: Experiment, comparison: Comparison) -> Shown:
    """What the sinks took per second, and when there were checkpoints."""
    panels = [
        Panel(
            mode.mode,
            mode.mode,
            [
                Line(f"run {number + 1}", run.life.rates(), "-" if number == 0 else "--")
                for number, run in enumerate(experiment.runs_of(mode.mode))
            ],
            spans(experiment, mode.mode),
        )
        for mode in comparison.modes
    ]
    axis = Axis("records/s", number)
    chart = timeline(
        "throughput",
        "Throughput while checkpoints are taken",
        "Records per second at the end of the pipeline over time, a panel per mode; how many in "
        "all stands in the table.",
        panels,
        axis,
        "a checkpoint of the first run, from trigger to complete",
    )
    return Shown(
        chart, f"Records that the last steps took, over {RATE_WINDOW:g} s before each sample."
    )


def spans(experiment: Experiment, mode: Mode) -> list[tuple[float, float]]:
    """When the checkpoints of the first run of a mode were on their way."""
    runs = experiment.runs_of(mode)
    if not runs:
        return []
    told = [
        (one.at, CheckpointStatistics.from_dict(one.statistics)) for one in runs[0].life.checkpoints
    ]
    ended = [(at, one) for at, one in told if one.durable_delay is not None]
    return [(at - (one.durable_delay or 0.0), at) for at, one in ended if one.kind == "periodic"]


# ---- recovery


def recovery(comparison: Comparison) -> Shown | None:
    """What a killed job did until it was where it had been."""
    if all(mode.verdict.answer == "not asked" for mode in comparison.modes):
        return None
    bars = [
        Bar(mode.mode, mode.mode, mode.recovery.steps, "" if not mode.recovery.error else "failed")
        for mode in comparison.modes
    ]
    told = "; ".join(
        f"{bar.label}: {duration(sum(part or 0.0 for part in bar.parts))}" for bar in bars
    )
    chart = stacked_bars(
        "recovery",
        "Recovery after kill -9",
        f"Stacked bars. From the start of the new process until it had caught up, {told}.",
        ("start of the process", "restore", "to the first output", "caught up"),
        bars,
        Axis("after the start of the new process", duration),
    )
    caption = (
        "Start: Python, the job's modules and services. Restore: until every task ran. First "
        "output: until a record was written to a sink. Caught up: until the sources had given out "
        "again what they had before the kill; how much that is depends on how long before the kill "
        "the last checkpoint was taken, which is chance in one kill per mode."
    )
    return Shown(chart, caption)
