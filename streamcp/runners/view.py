"""An immutable picture of a running job, for everything that shows it. Plain values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamcp.channel.channel import UNLIMITED
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.graph.logical import Node
from streamcp.graph.physical import PhysicalPlan
from streamcp.runtime.subtask import Subtask

JobState = Literal["starting", "running", "restarting", "ended"]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step: records of all its subtasks since the attempt began.

    `cache_hits` and `cache_misses` are of a lookup: records that were answered without a call of
    their own, and with one.

    `watermark`: how far event time has come in all its subtasks that go on, in milliseconds since
    the epoch; None without event time, before the first watermark, and behind the last."""

    name: str
    verb: str
    records_in: int
    records_out: int
    dropped: int
    retries: int
    cache_hits: int = 0
    cache_misses: int = 0
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task: seconds since the attempt began, the mean of its subtasks; records of all of them.
    `aligning` are those in which a source waited for the others of its `align=` group.

    `queued` of `capacity` records lie in its input channels; a back edge has no capacity, and
    counts for neither."""

    name: str
    parallelism: int
    busy: float
    idle: float
    backpressured: float
    aligning: float
    records_in: int
    queued: int
    capacity: int
    finished: bool
    steps: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment. `at` is monotonic seconds; rates are differences of two views. `time` is
    the clock of the machine, in milliseconds since the epoch.

    `last_checkpoint` is the newest complete one that a later run can continue from."""

    job: str
    state: JobState
    attempt: int
    at: float
    time: int
    mode: str
    restored_from: int | None
    last_checkpoint: int | None
    tasks: tuple[TaskView, ...]
    checkpoints: tuple[CheckpointStatistics, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give the picture as plain JSON values."""
        return asdict(self)


def task_views(plan: PhysicalPlan, subtasks: Sequence[Subtask], now: float) -> tuple[TaskView, ...]:
    """Look at every task, at `now` (monotonic)."""
    views = []
    for task in plan.tasks:
        own = [subtask for subtask in subtasks if subtask.id.task == task.name]
        count = max(1, len(own))
        times = [subtask.meter.upto(now) for subtask in own]
        channels = [c for one in own for c in one.gate.channels if c.capacity != UNLIMITED]
        views.append(
            TaskView(
                name=task.name,
                parallelism=task.parallelism,
                busy=sum(time["busy"] for time in times) / count,
                idle=sum(time["idle"] for time in times) / count,
                backpressured=sum(time["backpressured"] for time in times) / count,
                aligning=sum(time["aligning"] for time in times) / count,
                records_in=sum(subtask.meter.records_in for subtask in own),
                queued=sum(channel.occupied for channel in channels),
                capacity=sum(channel.capacity for channel in channels),
                finished=bool(own) and all(subtask.finished for subtask in own),
                steps=tuple(_step_view(node, own) for node in task.members),
            )
        )
    return tuple(views)


def _step_view(node: Node, subtasks: Sequence[Subtask]) -> StepView:
    meters = [subtask.chain.meters[node] for subtask in subtasks]
    return StepView(
        name=node.label,
        verb=node.verb,
        records_in=sum(meter.records_in for meter in meters),
        records_out=sum(meter.records_out for meter in meters),
        dropped=sum(meter.dropped for meter in meters),
        retries=sum(meter.retries for meter in meters),
        cache_hits=sum(meter.cache_hits for meter in meters),
        cache_misses=sum(meter.cache_misses for meter in meters),
        watermark=_watermark(subtasks),
    )


def _watermark(subtasks: Sequence[Subtask]) -> int | None:
    """The same for all steps of a task: they work records off together."""
    reached = [one.time.watermark for one in subtasks if one.time is not None and not one.finished]
    least = min(reached, default=MAX_TIMESTAMP)
    return None if least in (MIN_TIMESTAMP, MAX_TIMESTAMP) else least
