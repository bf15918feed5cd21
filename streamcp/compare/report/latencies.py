"""The figures of an open loop: how late records were, over all, over time, and what waited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streamcp.compare.charts.axis import Axis, duration, number
from streamcp.compare.charts.percentiles import Curve, percentile_curves
from streamcp.compare.charts.timeline import Line, Panel, timeline
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, ModeFigures
from streamcp.compare.histogram import Histogram
from streamcp.compare.report.figures import Shown, spans
from streamcp.config import Mode


def latency_figures(experiment: Experiment, comparison: Comparison) -> Iterator[Shown]:
    """What there is to show of latency: nothing unless there was an open loop."""
    measured = [mode for mode in comparison.modes if mode.latency is not None]
    if not measured:
        return
    taken = all(mode.latency and mode.latency.kept_up for mode in measured)
    if taken and any(mode.latency and mode.latency.due.count for mode in measured):
        yield latency_curves(measured, experiment.load or 0.0)
        yield latency_over_time(experiment, measured)
    yield backlog(experiment, measured)


def latency_curves(modes: Sequence[ModeFigures], load: float) -> Shown:
    """Percentile curves, since a record was due and since it was given out."""
    curves = []
    for mode in modes:
        assert mode.latency is not None
        curves.append(Curve(mode.mode, mode.mode, mode.latency.due.curve()))
        naive = f"{mode.mode}, clock started late"
        curves.append(Curve(naive, mode.mode, mode.latency.given.curve(), dashed=True))
    told = "; ".join(
        f"{mode.mode}: half of the records within {duration(mode.latency.due.value_at(0.5) or 0)}"
        for mode in modes
        if mode.latency
    )
    chart = percentile_curves(
        "latency",
        f"Latency at {load:g} of what the job sustains",
        f"Percentile curves. {told}.",
        curves,
        Axis("from when a record was due until it was written to a sink", duration, log=True),
    )
    caption = (
        "Solid: the clock starts when a record is due, whether or not the job takes it then. "
        "Dashed: the same runs with the clock started when the source gave the record out, which "
        "leaves out the waiting before the job. A curve ends where fewer than 100 records lie "
        "beyond."
    )
    return Shown(chart, caption)


def latency_over_time(experiment: Experiment, modes: Sequence[ModeFigures]) -> Shown:
    """Latency second by second in the first run of each mode, with its checkpoints."""
    panels = _panels(experiment, modes, _latency_lines)
    chart = timeline(
        "latency-over-time",
        "Latency over time",
        "Median, 90th percentile and highest latency of each second, a panel per mode, with "
        "checkpoints marked.",
        panels,
        Axis("from due to written, of the records of each second", duration, log=True),
    )
    caption = (
        "The first run of each mode, by the second in which a record was written. The highest of a "
        "second is one record."
    )
    return Shown(chart, caption)


def _panels(
    experiment: Experiment,
    modes: Sequence[ModeFigures],
    lines: Callable[[Experiment, Mode], list[Line]],
) -> list[Panel]:
    """A panel per mode, with the checkpoints of its first run."""
    names = [mode.mode for mode in modes]
    return [Panel(name, name, lines(experiment, name), spans(experiment, name)) for name in names]


def _latency_lines(experiment: Experiment, mode: Mode) -> list[Line]:
    runs = [run for run in experiment.runs_of(mode) if run.life.latencies]
    told = runs[0].life.latencies if runs else None
    seconds = told.seconds if told else {}
    counts = {int(one) + 0.5: Histogram.from_plain(plain) for one, plain in seconds.items()}

    def points(value: Callable[[Histogram], float | None]) -> list[tuple[float, float]]:
        return [(at, v) for at, one in counts.items() if (v := value(one)) is not None]

    return [
        Line("median", points(lambda one: one.percentile(0.5))),
        Line("90 %", points(lambda one: one.percentile(0.9)), "--"),
        Line("highest", points(lambda one: one.maximum), ":"),
    ]


def backlog(experiment: Experiment, modes: Sequence[ModeFigures]) -> Shown:
    """Records in channels, and those that wait outside, over time."""
    panels = _panels(experiment, modes, _backlog_lines)
    chart = timeline(
        "backlog",
        "What waits",
        "Records in channels and records that wait before the sources over time, a panel per mode.",
        panels,
        Axis("records", number),
    )
    return Shown(
        chart, "The first run of each mode. If both lines stay low, the job takes the load."
    )


def _backlog_lines(experiment: Experiment, mode: Mode) -> list[Line]:
    runs = experiment.runs_of(mode)
    samples = runs[0].life.samples if runs else []
    return [
        Line("in channels", [(one.at, one.queued) for one in samples]),
        Line("due, and not yet taken by the job", [(one.at, one.waiting) for one in samples], "--"),
    ]
