"""The figures of a sweep: how the modes depend on one setting, beside what a law predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.compare.charts.axis import Axis, duration, size
from streamcp.compare.charts.colours import MARKERS
from streamcp.compare.charts.points import Points, Prediction, points_over
from streamcp.compare.figures import compare
from streamcp.compare.latency import SHARES
from streamcp.compare.report.figures import Shown
from streamcp.compare.runs import MeasuredRun
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import Mode


def sweep_figures(sweep: Sweep, points: Sequence[Point], modes: Sequence[Mode]) -> list[Shown]:
    """Barrier delay, durable delay and in-flight data over the setting; latency over the load."""
    made = [
        _delay(sweep, points, modes, "barrier-delay", lambda one: one.barrier_delay),
        _delay(sweep, points, modes, "durable-delay", lambda one: one.durable_delay or 0.0),
        _in_flight(sweep, points, modes),
    ]
    if sweep.setting.name == "load":
        latency = _latency(sweep, points, modes)
        return [*([latency] if latency else []), *made]
    return made


def _axis(sweep: Sweep) -> Axis:
    logarithmic = sweep.setting.name != "load"
    label = sweep.setting.label + (" (logarithmic)" if logarithmic else "")
    return Axis(label, sweep.setting.text, log=logarithmic)


Value = Callable[[CheckpointStatistics], float]


def _series(points: Sequence[Point], modes: Sequence[Mode], value: Value) -> list[Points]:
    made = [_points(points, mode, value) for mode in modes]
    return [one for one in made if one.points]


def _points(points: Sequence[Point], mode: Mode, value: Value) -> Points:
    """The checkpoints of a mode; hollow if a source had ended: the queues were draining then."""
    found = [
        (point.value.number, one)
        for point in points
        if point.value is not None
        for run in point.experiment.runs_of(mode)
        for one in completed(run)
    ]
    hollow = frozenset(place for place, (_, one) in enumerate(found) if one.finished)
    measured = [(number, value(one)) for number, one in found]
    return Points(mode, mode, MARKERS[mode], measured, hollow)


def completed(run: MeasuredRun) -> list[CheckpointStatistics]:
    """The checkpoints that a run completed while it worked."""
    return [one for one in run.life.statistics if one.outcome == "completed"]


def _delay(
    sweep: Sweep, points: Sequence[Point], modes: Sequence[Mode], name: str, value: Value
) -> Shown:
    barrier = name == "barrier-delay"
    predictions = _predictions(sweep, points, value, barrier=barrier)
    series = _series(points, modes, value)
    what = "Barrier delay" if barrier else "Checkpoint duration"
    span = "trigger → last subtask has acted" if barrier else "trigger → complete and durable"
    chart = points_over(
        name,
        f"{what} against {sweep.setting.label}",
        _described(series, duration),
        series,
        predictions,
        _axis(sweep),
        Axis(f"{span} (logarithmic)", duration, log=True),
    )
    caption = (
        "One dot per checkpoint, hollow if a source had ended and the queues were draining; lines "
        "join the medians."
    )
    if predictions and not barrier:
        caption += " Dashed as above."
    elif predictions and sweep.setting.name == "timeout":
        caption += (
            " Dashed: the other modes, which have no timeout, and what follows from them: an "
            "adaptive checkpoint takes the shorter of an aligned one, and the timeout and then an "
            "unaligned one. With predict=True it may start unaligned at once, and lie below."
        )
    elif predictions:
        caption += (
            " Dashed: an aligned barrier waits for what is queued before it, so the prediction is "
            "the records in channels (median of the samples of the aligned run) over the records/s "
            "that this run worked off. It uses no delay that was measured, and leaves out what a "
            "barrier waits for besides: the calls that are awaited, and the batch in hand."
        )
    return Shown(chart, caption)


def _described(series: Sequence[Points], text: Callable[[float], str]) -> str:
    parts = []
    for one in series:
        medians = one.medians()
        parts.append(f"{one.name}: {text(medians[0][1])} to {text(medians[-1][1])}")
    return "Medians from the least to the greatest value, " + "; ".join(parts) + "."


def _predictions(
    sweep: Sweep, points: Sequence[Point], value: Value, *, barrier: bool
) -> list[Prediction]:
    if sweep.setting.name == "timeout":
        return _timeout_predictions(points, value)
    law = queue_law(points) if barrier else []
    return (
        [Prediction("predicted for aligned: queued records ÷ records/s", "ink", law)] if law else []
    )


def queue_law(points: Sequence[Point]) -> list[tuple[float, float]]:
    """What an aligned barrier has to wait for, at each value: the queued records over the rate."""
    law = []
    for point in points:
        runs = [run for run in point.experiment.measured if run.mode == "aligned"]
        for run in runs:
            ended, samples = run.life.ended, run.life.samples
            if point.value and ended and samples and run.life.records:
                queued = median_low(one.queued for one in samples)
                if queued:
                    rate = run.life.records / ended.seconds
                    law.append((point.value.number, queued / rate))
    return sorted(law) if len(law) > 1 else []


def _timeout_predictions(points: Sequence[Point], value: Value) -> list[Prediction]:
    others = {
        run.mode: median_low(map(value, completed(run)))
        for point in points
        if point.value is None
        for run in point.experiment.measured
        if completed(run)
    }
    made = [Prediction(mode, mode, [(0.0, level)]) for mode, level in others.items()]
    if {"aligned", "unaligned"} <= others.keys():
        aligned, unaligned = others["aligned"], others["unaligned"]
        numbers = sorted(point.value.number for point in points if point.value is not None)
        law = [(one, min(aligned, one + unaligned)) for one in numbers]
        made.append(Prediction("predicted: min(aligned, timeout + unaligned)", "ink", law))
    return made


def _in_flight(sweep: Sweep, points: Sequence[Point], modes: Sequence[Mode]) -> Shown:
    series = _series(points, modes, lambda one: float(one.in_flight_bytes))
    chart = points_over(
        "in-flight",
        f"In-flight data against {sweep.setting.label}",
        _described(series, size),
        series,
        [],
        _axis(sweep),
        Axis("bytes that the checkpoint holds of it", size),
    )
    caption = (
        "What the short delay costs. An aligned checkpoint holds some too: the records in the "
        "middle of a call, and the rest of what a source has read in one go."
    )
    return Shown(chart, caption)


def _latency(sweep: Sweep, points: Sequence[Point], modes: Sequence[Mode]) -> Shown | None:
    """The highest percentile that every run tells, at each load that was taken."""
    found = {
        (point.value.number, mode.mode): mode.latency
        for point in points
        if point.value is not None
        for mode in compare(point.experiment, point.modes).modes
        if mode.latency is not None and mode.latency.kept_up and mode.latency.due.count
    }
    told = [
        (name, share)
        for name, share in SHARES.items()
        if all(o.due.tells(share) for o in found.values())
    ]
    if not found or not told:
        return None
    name, share = told[-1]
    series = [
        Points(mode, mode, MARKERS[mode], one)
        for mode in modes
        if (
            one := [
                (at, latency.due.percentile(share) or 0.0)
                for (at, of), latency in found.items()
                if of == mode
            ]
        )
    ]
    chart = points_over(
        "latency",
        f"Latency ({name}) against {sweep.setting.label}",
        _described(series, duration),
        series,
        [],
        _axis(sweep),
        Axis("from when a record was due until it was written (logarithmic)", duration, log=True),
    )
    caption = (
        f"{100 * share:g} % of the records were written within that time. One dot per run; "
        "loads that a mode did not take are left out: there the latency grows as long as the run "
        "lasts."
    )
    return Shown(chart, caption)
