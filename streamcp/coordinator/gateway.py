"""What the coordinator needs of the tasks: the calls downward, and the facts of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamcp.checkpoint.mode_policy import TaskFacts
from streamcp.checkpoint.plan import Trigger
from streamcp.checkpoint.snapshot import TaskShape
from streamcp.identifiers import SubtaskId


class TaskGateway(Protocol):
    """What the coordinator tells the tasks, and asks them. All of it is synchronous."""

    def start(self, trigger: Trigger) -> None:
        """Begin a checkpoint."""
        ...

    def escalate(self, checkpoint_id: int) -> None:
        """Let a checkpoint go on unaligned."""
        ...

    def cancel(self, checkpoint_id: int) -> None:
        """End a checkpoint at every subtask."""
        ...

    def release(self) -> None:
        """Let the subtasks go on that hold still for a stop."""
        ...

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every subtask that a checkpoint is complete."""
        ...

    def drain(self) -> None:
        """Let every source read no more, all in this one call."""
        ...

    def finished(self) -> frozenset[SubtaskId]:
        """Who has finished."""
        ...

    def all_ended(self) -> bool:
        """Nobody will do anything more by itself."""
        ...

    def replaying(self) -> bool:
        """Restored data of a changed job is left, which a restore must treat as such (P41)."""
        ...

    def commits_outstanding(self) -> bool:
        """Some sink has something to commit now."""
        ...

    def facts(self) -> Sequence[TaskFacts]:
        """What the prediction needs to know."""
        ...

    def queued_records(self) -> int:
        """Records that an unaligned checkpoint would capture now."""
        ...

    def look_at(self, when: float) -> None:
        """Ask the tasks to call `look` between two slices, once this time has come."""
        ...


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the coordinator must know of the job; it never changes in an attempt."""

    job: str
    attempt: int
    max_parallelism: int
    tasks: tuple[TaskShape, ...]
    subtasks: tuple[SubtaskId, ...]
    senders: Mapping[SubtaskId, frozenset[SubtaskId]]
    sources: frozenset[SubtaskId]
    fork: str = ""
    life: str = ""
