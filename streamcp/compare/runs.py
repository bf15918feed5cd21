"""What became of runs: what each child told, and when it is killed. Plain values, no processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.compare.breakdown import Breakdown
from streamcp.compare.messages import (
    Checkpoint,
    Ended,
    Failed,
    FirstCommit,
    FirstOutput,
    Latencies,
    Message,
    Running,
    Sample,
)
from streamcp.compare.outputs import Output
from streamcp.config import Mode

# How the checkpoints end a job: the queues are empty then.
_LAST_KINDS = frozenset({"stop", "final"})
# Seconds over which a rate is taken: less would show single batches.
RATE_WINDOW = 1.0


@dataclass(slots=True)
class Life:
    """What one child told from its start until it ended, failed or was killed.

    `started` is how long the process took from its start until the job ran, `first_output_age`
    until the first output. `killed` is when it was killed, `error` says why the job did not end if
    it failed or was cut off."""

    running: Running | None = None
    started: float | None = None
    samples: list[Sample] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    first_output: float | None = None
    first_output_age: float | None = None
    first_commit: float | None = None
    latencies: Latencies | None = None
    ended: Ended | None = None
    killed: float | None = None
    error: str | None = None

    def add(self, age: float, message: Message) -> None:
        """Take in a message that arrived when the process was `age` seconds old."""
        match message:
            case Running():
                self.running, self.started = message, age
            case Sample():
                self.samples.append(message)
            case Checkpoint():
                self.checkpoints.append(message)
            case FirstOutput(at):
                self.first_output, self.first_output_age = at, age
            case FirstCommit(at):
                self.first_commit = at
            case Latencies():
                self.latencies = message
            case Ended():
                self.ended = message
            case Failed(error):
                self.error = error

    @property
    def statistics(self) -> list[CheckpointStatistics]:
        """The checkpoints that were taken while the job worked: not the one that ends it."""
        everyone = [CheckpointStatistics.from_dict(one.statistics) for one in self.checkpoints]
        return [one for one in everyone if one.kind not in _LAST_KINDS]

    @property
    def completed(self) -> int:
        """How many checkpoints have completed."""
        return sum(one.statistics.get("outcome") == "completed" for one in self.checkpoints)

    def rates(self) -> list[tuple[float, float]]:
        """When, and how many records per second were written in the window before: per sample."""
        rates = []
        samples = self.samples
        first = 0
        for one in samples:
            while one.at - samples[first].at > RATE_WINDOW * 1.2:
                first += 1
            span = one.at - samples[first].at
            if span >= RATE_WINDOW * 0.8:
                rates.append((one.at, (one.written - samples[first].written) / span))
        return rates

    @property
    def records(self) -> int:
        """How many records the sources gave out, from the very beginning."""
        if self.ended is not None:
            return sum(self.ended.read.values())
        return max((sample.read for sample in self.samples), default=0)


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run without disturbance; `output` is None if it did not end. `breakdowns` are of those of
    its checkpoints that it has kept."""

    mode: Mode
    life: Life
    output: Output | None
    breakdowns: Sequence[Breakdown] = ()


@dataclass(frozen=True, slots=True)
class KilledRun:
    """A run that was killed and started again; `after` is None if it ended (or failed) before it
    could be killed, `output` is None if it did not end."""

    mode: Mode
    before: Life
    after: Life | None
    output: Output | None


@dataclass(frozen=True, slots=True)
class KillPlan:
    """Kill between `earliest` and `latest` (seconds after the job ran): as soon as a checkpoint has
    completed, since a job that is killed before just begins anew; and `later` seconds after that
    was seen."""

    earliest: float
    latest: float
    later: float

    def is_due(self, life: Life) -> bool:
        """Decide by what the child has told so far."""
        now = life.samples[-1].at if life.samples else 0.0
        return now >= self.latest or (now >= self.earliest and life.completed > 0)


def measured_order(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """Each mode twice, there and back (A B C C B A): what drifts while the runs go on, such as a
    machine that gets warm, weighs on all modes alike."""
    return (*modes, *reversed(modes))


def as_dict(life: Life) -> dict[str, Any]:
    """Give everything that a child told as plain JSON values."""
    running, ended = life.running, life.ended
    return {
        "started_after": life.started,
        "restored_from": running and running.restored_from,
        "restore_seconds": running and running.seconds,
        "restored_in_flight_records": running and running.in_flight_records,
        "first_output_after": life.first_output,
        "first_commit_after": life.first_commit,
        "seconds": ended and ended.seconds,
        "read": dict(ended.read) if ended else None,
        "killed_after": life.killed,
        "error": life.error,
        "checkpoints": [{"at": one.at, **one.statistics} for one in life.checkpoints],
        "samples": [asdict(one) for one in life.samples],
        "latencies": asdict(life.latencies) if life.latencies else None,
    }
