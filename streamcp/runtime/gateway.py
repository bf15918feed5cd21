"""How tasks and coordinator speak to each other, and what all tasks of a process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.snapshot import Acknowledgement, Section, SectionHandle
from streamcp.clock import Clock
from streamcp.config import CircuitBreaker, Rate
from streamcp.identifiers import SubtaskId
from streamcp.observability.events import Event
from streamcp.operators.steps import Opener
from streamcp.runtime.blocking import BlockingNotices
from streamcp.runtime.call_ids import StepCallIds
from streamcp.runtime.drift import DriftGroup
from streamcp.runtime.journal import Journal
from streamcp.runtime.lookups import Answers
from streamcp.runtime.strictness import Lenient
from streamcp.runtime.throttle import StepLimits
from streamcp.runtime.waking import Turns
from streamcp.serialization.serializer import Serializer


class CoordinatorGateway(Protocol):
    """What tasks tell upward. Calls only queue: they are acted on after the barrier has passed."""

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Storage has a subtask's snapshot."""
        ...

    def decline(
        self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason, detail: str
    ) -> None:
        """A subtask's snapshot cannot be taken or written."""
        ...

    def subtask_ended(self, subtask: SubtaskId) -> None:
        """A subtask has finished, or a sink has nothing left to do but to commit."""
        ...

    def committed(self, subtask: SubtaskId) -> None:
        """A sink has committed all that was to be committed."""
        ...

    def request_checkpoint(self) -> None:
        """A staged sink is full: it can go on only after a checkpoint."""
        ...

    def look(self, now: float) -> None:
        """The time that was asked for has come: do what is due."""
        ...


class DataWriter(Protocol):
    """The part of checkpoint storage that tasks use."""

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """Write and fsync the sections of one checkpoint; it blocks and is called in a thread."""
        ...

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        """Take small sections, to be written when the checkpoint is completed; None if they are
        not small. Never waits."""
        ...


@dataclass(slots=True)
class TaskContext:
    """What all tasks of one process and attempt share.

    `look_at` is the monotonic time at which the coordinator wants to be called: tasks compare it
    at the end of each slice, so that a trigger waits for one slice and not for a turn of the
    event loop. `keep_records`: in-flight records must survive (checkpoints are on).
    `at_least_once`: barriers are only counted (rule P29). `incremental`: snapshots of keyed state
    hold changes only, where they may (rule P39). `fork` is in the names of transactions
    (see `TransactionId`), `life` in the ids of calls. `strict` looks at
    calls and records, or lets them be. `report` is told of what happens; `blocking`
    takes notice of steps that hold the event loop. `journal` is that of the journaled steps; None
    without any, or without checkpoints."""

    job: str
    attempt: int
    max_parallelism: int
    clock: Clock
    serializer: Serializer
    coordinator: CoordinatorGateway
    task_count: int
    keep_records: bool
    staged_capacity: int
    services: Mapping[Opener, Any] = field(default_factory=dict)
    look_at: float = float("inf")
    at_least_once: bool = False
    incremental: bool = False
    fork: str = ""
    life: str = ""
    strict: Lenient = field(default_factory=Lenient)
    report: Callable[[Event], object] = lambda event: None
    journal: Journal | None = None
    blocking: BlockingNotices = field(init=False)
    _call_ids: dict[str, StepCallIds] = field(init=False, default_factory=dict)
    _limits: dict[str, StepLimits] = field(init=False, default_factory=dict)
    _drift_groups: dict[str, DriftGroup] = field(init=False, default_factory=dict)
    _answers: dict[str, Answers[Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing was noticed so far."""
        self.blocking = BlockingNotices(self.clock, self.report)

    def end_of_slice(self, now: float) -> None:
        """Give the coordinator its chance, between two slices."""
        if now >= self.look_at:
            self.look_at = float("inf")
            self.coordinator.look(now)

    def limits_of(
        self, step: str, rates: Sequence[Rate], breaker: CircuitBreaker | None
    ) -> StepLimits | None:
        """The limits that all subtasks of a step share; None if it has none."""
        if not rates and breaker is None:
            return None
        if step not in self._limits:
            self._limits[step] = StepLimits(rates, breaker, self.clock.monotonic())
        return self._limits[step]

    def answers_of(self, step: str, size: int, ttl: float | None) -> Answers[Any]:
        """What all subtasks of a lookup step share: at most `size` answers, kept for `ttl`
        seconds."""
        if step not in self._answers:
            self._answers[step] = Answers(size, ttl, self.clock)
        return self._answers[step]

    def call_ids_of(self, step: str) -> StepCallIds:
        """The ids of calls that all subtasks of a step share."""
        if step not in self._call_ids:
            answered = () if self.journal is None else self.journal.numbers_of(step)
            self._call_ids[step] = StepCallIds(self.job, step, self.life, answered)
        return self._call_ids[step]

    def drift_group(self, name: str) -> DriftGroup:
        """The sources that keep together under a name."""
        return self._drift_groups.setdefault(name, DriftGroup())

    def chances(self, subtask: SubtaskId) -> Callable[[], float]:
        """Make what draws the chances of a subtask, from 0 to 1: the same ones in the same attempt
        of a job, others in each subtask."""
        return Random(f"{self.job} {self.attempt} {subtask}").random

    def turns(self) -> Turns:
        """Make the turn-taking of one task."""
        return Turns(self.clock, self.task_count)
