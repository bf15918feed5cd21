"""What parent and child tell each other: one order down, then messages up, each a line of JSON.

Plain values only. Durations are seconds. Knows neither jobs nor processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import orjson

from streamcp.config import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What a child is to do; a killed one gets the same order again.

    - `folder`: of this run: checkpoints, output and log.
    - `every`: the checkpoint interval; None for the job's own, or a second if it has none.
    - `seconds`: the sources are told to end after so long.
    - `records`: each source ends after so many.
    - `limits`: each reader of a source ends after so many; they are named as in `Ended.read`.
    - `channel_capacity`: records per channel; None for the job's own.
    - `sink_delay`: each record takes the sink's place-holder so long.
    - `alignment_timeout`: of the adaptive mode; None for the job's own.
    - `periodic`: take checkpoints at the interval, not only the last one.
    - `rates`: each reader gives out so many records per second, taken or not (open loop); empty
      for as many as the job takes (closed loop).
    """

    folder: str
    mode: Mode
    every: str | None = None
    seconds: float | None = None
    records: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    channel_capacity: int | None = None
    sink_delay: float = 0.0
    alignment_timeout: str | None = None
    periodic: bool = True
    rates: Mapping[str, float] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Write the order as one line."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_line(cls, line: bytes) -> RunOrder:
        """Read what `to_line` wrote."""
        return cls(**orjson.loads(line))


@dataclass(frozen=True, slots=True)
class Running:
    """Every task runs. `seconds` were spent since the job was started: on reading the checkpoint
    `restored_from`, if there was one, on opening services, and on refilling channels."""

    restored_from: int | None
    seconds: float
    in_flight_records: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The job at a moment, `at` seconds after it ran: records that its sources have given out from
    the very beginning, that its last steps have taken since it ran, and that lie in channels; and
    records that were due and wait outside."""

    at: float
    read: int
    written: int
    queued: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint ended, complete or not; `statistics` as CheckpointStatistics writes them."""

    at: float
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FirstOutput:
    """The first record was written to a sink, `at` seconds after the job ran."""

    at: float


@dataclass(frozen=True, slots=True)
class FirstCommit:
    """What this process had written became visible for the first time, `at` seconds after the job
    ran."""

    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The job worked off all its input. `read` counts the records by reader of a source, from the
    very beginning; `seconds` since it ran."""

    seconds: float
    read: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Latencies:
    """How late records were under an open loop: histograms as `Histogram.as_plain` writes them,
    named as in `latency.LatencyMeter` and `pacing.Pace`; `seconds` has one per second. `unstamped`
    says why records had no stamps, so that only `waited` and `late` were measured."""

    due: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    visible: Mapping[str, int] = field(default_factory=dict)
    waited: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unstamped: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed."""

    error: str


Message: TypeAlias = (
    Running | Sample | Checkpoint | FirstOutput | FirstCommit | Latencies | Ended | Failed
)

_KINDS: Mapping[str, type[Message]] = {
    kind.__name__: kind
    for kind in (Running, Sample, Checkpoint, FirstOutput, FirstCommit, Latencies, Ended, Failed)
}


def to_line(message: Message) -> bytes:
    """Write a message as one line."""
    return orjson.dumps([type(message).__name__, asdict(message)], option=orjson.OPT_APPEND_NEWLINE)


def from_line(line: bytes) -> Message:
    """Read what `to_line` wrote."""
    name, values = orjson.loads(line)
    return _KINDS[name](**values)
