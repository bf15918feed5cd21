"""The figures per mode, and whether the output after the kill is right. Plain computing.

Distributions are over the completed checkpoints of the undisturbed runs, without the one that ends
a job. Durations are seconds.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from streamcp.checkpoint.statistics import CheckpointStatistics, Figure, percentile
from streamcp.compare.experiment import Experiment
from streamcp.compare.latency import Latency, latency_of
from streamcp.compare.messages import Sample
from streamcp.compare.outputs import Difference, Output, difference
from streamcp.compare.runs import KilledRun, Life, MeasuredRun
from streamcp.config import Mode

Answer: TypeAlias = Literal["equal", "unequal", "unknown", "not asked"]

# A backlog that grows by a larger part of the load is one that would grow without bound.
_GROWTH = 0.02
# More than that at the end was not worked off in time, whenever it had piled up.
_LEFT = 0.05
# Per quarter of the run.
_FEWEST_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Is the output the same, record for record? `lines` is how many were expected. Nothing is
    asked of a killed run where none was to be killed."""

    answer: Answer
    lines: int = 0
    difference: Difference = field(default_factory=Difference)
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A kill and what followed.

    - `killed_after`: seconds that the job had run; `checkpoint`: the one restored from, if any.
    - `replayed`: in-flight records of that checkpoint.
    - `restore`: from the start of the job in the new process until every task ran.
    - `first_output`: from then until the first record was written to a sink; `first_commit`: until
      the first record of the new process was visible.
    - `back`: from the start of the new process until the first record was written.
    - `started`: from the start of the new process until every task ran.
    - `caught_up`: from then until the sources had given out again what they had before the kill, to
      the nearest sample or between two.
    """

    killed_after: float | None = None
    checkpoint: int | None = None
    replayed: int | None = None
    restore: float | None = None
    first_output: float | None = None
    first_commit: float | None = None
    back: float | None = None
    started: float | None = None
    caught_up: float | None = None
    error: str | None = None

    @property
    def steps(self) -> tuple[float | None, ...]:
        """What the new process did one after the other, in seconds: start, restore, write its
        first output, and catch up. What is missing did not happen."""
        begun = None if self.started is None else self.started - (self.restore or 0.0)
        behind = None
        if self.caught_up is not None and self.first_output is not None:
            behind = max(self.caught_up - self.first_output, 0.0)
        return begun, self.restore, self.first_output, behind


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFigures:
    """What one mode did; a distribution is None if no checkpoint completed.

    `unaligned` counts the completed checkpoints that were so from the trigger on, `escalated` those
    that became it; `failures` the reasons of failed ones. `errors` are of runs that did not end."""

    mode: Mode
    completed: int
    failed: int
    failures: Mapping[str, int]
    unaligned: int
    escalated: int
    barrier_delay: Figure | None
    durable_delay: Figure | None
    alignment: Figure | None
    in_flight_records: Figure | None
    in_flight_bytes: Figure | None
    snapshot_bytes: Figure | None
    queued: Figure | None
    records_per_second: float | None
    recovery: Recovery
    verdict: Verdict
    errors: tuple[str, ...]
    latency: Latency | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give the figures as plain JSON values."""
        latency = self.latency.as_dict() if self.latency else None
        return asdict(dataclasses.replace(self, latency=None)) | {"latency": latency}


@dataclass(frozen=True, slots=True)
class Comparison:
    """All modes; `undisturbed` tells whether the runs without a kill agree with each other."""

    modes: tuple[ModeFigures, ...]
    undisturbed: Verdict

    @property
    def is_right(self) -> bool:
        """Every run ended, and every output is the same."""
        verdicts = [self.undisturbed, *(mode.verdict for mode in self.modes)]
        ended = not any(mode.errors or mode.recovery.error for mode in self.modes)
        return ended and all(verdict.answer in ("equal", "not asked") for verdict in verdicts)


def compare(experiment: Experiment, modes: Sequence[Mode]) -> Comparison:
    """Compute the figures of everything that was run."""
    expected = next(run.output for run in experiment.measured if run.output is not None)
    return Comparison(
        tuple(_figures(mode, experiment, expected) for mode in modes),
        _undisturbed(experiment.measured, expected),
    )


def _figures(mode: Mode, experiment: Experiment, expected: Output) -> ModeFigures:
    runs = experiment.runs_of(mode)
    killed = next((run for run in experiment.killed if run.mode == mode), None)
    statistics = experiment.statistics_of(mode)
    completed = [one for one in statistics if one.outcome == "completed"]
    failed = [one for one in statistics if one.outcome == "failed"]
    return ModeFigures(
        mode=mode,
        completed=len(completed),
        failed=len(failed),
        failures=dict(Counter(one.failure or "unknown" for one in failed)),
        unaligned=sum(one.mode == "unaligned" for one in completed),
        escalated=sum(one.escalated_after is not None for one in completed),
        barrier_delay=_figure([one.barrier_delay for one in completed]),
        durable_delay=_figure([one.durable_delay or 0.0 for one in completed]),
        alignment=_figure([one.alignment for one in completed]),
        in_flight_records=_figure([one.in_flight_records for one in completed]),
        in_flight_bytes=_figure([one.in_flight_bytes for one in completed]),
        snapshot_bytes=_figure([snapshot_bytes(one) for one in completed]),
        queued=_figure([sample.queued for run in runs for sample in run.life.samples]),
        records_per_second=_rate(runs),
        recovery=_recovery(killed),
        verdict=_verdict(killed, expected) if experiment.killed else Verdict("not asked"),
        latency=_latency(runs, experiment),
        errors=tuple(run.life.error for run in runs if run.life.error is not None),
    )


def snapshot_bytes(one: CheckpointStatistics) -> int:
    """Everything that a checkpoint holds: state and in-flight data."""
    return one.state_bytes + one.in_flight_bytes


def _figure(values: Sequence[float]) -> Figure | None:
    return Figure(percentile(values, 0.5), max(values)) if values else None


def _rate(runs: Sequence[MeasuredRun]) -> float | None:
    """Records from the sources, over the time until all of them were worked off and committed."""
    ended = [(run.life.records, run.life.ended.seconds) for run in runs if run.life.ended]
    seconds = sum(of for _, of in ended)
    return sum(records for records, _ in ended) / seconds if seconds else None


def _latency(runs: Sequence[MeasuredRun], experiment: Experiment) -> Latency | None:
    ended = [run.life for run in runs if run.life.ended is not None]
    told = [life.latencies for life in ended if life.latencies is not None]
    rate = sum(experiment.rates.values())
    kept_up = all(keeps_up(life.samples, rate) for life in ended)
    return latency_of(told, kept_up=kept_up)


def keeps_up(samples: Sequence[Sample], rate: float) -> bool:
    """Say whether a job takes the load: the least that waits before and in it, in the last quarter
    of the time in which its sources gave out records, is hardly more than that in the second one,
    and a small part of all that was due.

    The least, since a checkpoint or another program makes records wait for a moment: a job that
    takes the load works that off. A job with too few samples to tell has kept up: it was over
    before anything could grow."""
    reading = [one for one in samples if one.read < samples[-1].read or one is samples[0]]
    quarter = len(reading) // 4
    if quarter < _FEWEST_SAMPLES:
        return True
    backlog = [one.waiting + one.queued for one in reading]
    grown = min(backlog[-quarter:]) - min(backlog[quarter : 2 * quarter])
    elapsed = reading[-1].at - reading[quarter].at
    few = min(backlog[-quarter:]) <= _LEFT * samples[-1].read
    return few and grown <= _GROWTH * rate * elapsed


def _recovery(run: KilledRun | None) -> Recovery:
    if run is None:
        return Recovery()
    if run.after is None:
        why = run.before.error or "the job ended before it could be killed; give it more to do"
        return Recovery(error=why)
    after, running = run.after, run.after.running
    return Recovery(
        killed_after=run.before.killed,
        checkpoint=running.restored_from if running else None,
        replayed=running.in_flight_records if running else None,
        restore=running.seconds if running else None,
        first_output=after.first_output,
        first_commit=after.first_commit,
        back=after.first_output_age,
        started=after.started,
        caught_up=caught_up(run.before, after),
        error=after.error,
    )


def caught_up(before: Life, after: Life) -> float | None:
    """When the new process had given out as many records as the killed one, in seconds since it
    ran; interpolated between two samples. None if it never had."""
    goal = before.records
    last = None
    for one in after.samples:
        if one.read >= goal:
            if last is None or one.read == last.read:
                return one.at
            part = (goal - last.read) / (one.read - last.read)
            return last.at + part * (one.at - last.at)
        last = one
    return after.ended.seconds if after.ended and after.records >= goal else None


def _verdict(run: KilledRun | None, expected: Output) -> Verdict:
    if run is None or run.after is None or run.output is None:
        return Verdict("unknown", expected.total(), why="the killed run has no whole output")
    return _verdict_of(expected, run.output)


def _verdict_of(expected: Output, found: Output) -> Verdict:
    if not expected and not found:
        return Verdict("unknown", why="the job has no sink, or wrote nothing to it")
    unequal = difference(expected, found)
    return Verdict("unequal" if unequal else "equal", expected.total(), unequal)


def _undisturbed(runs: Sequence[MeasuredRun], expected: Output) -> Verdict:
    outputs = [run.output for run in runs if run.output is not None]
    verdicts = [_verdict_of(expected, output) for output in outputs]
    if len(outputs) < len(runs):
        return Verdict("unknown", expected.total(), why="not every undisturbed run has ended")
    return next((one for one in verdicts if one.answer != "equal"), verdicts[0])
