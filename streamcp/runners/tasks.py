"""The subtasks of this process as the coordinator sees them: commands down, facts up."""

from __future__ import annotations

from collections.abc import Sequence

from streamcp.checkpoint.mode_policy import TaskFacts
from streamcp.checkpoint.plan import Trigger
from streamcp.graph.logical import Broadcast
from streamcp.graph.physical import PhysicalPlan
from streamcp.identifiers import SubtaskId
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.replay import Replay
from streamcp.runtime.subtask import Subtask
from streamcp.runtime.work_list import BarrierWorkList

# A rate is measured over at least this much busy time, so that one odd slice does not make it.
SHORTEST_SAMPLE = 0.005


class _Rate:
    """The service rate of one subtask: records per second of busy time, since the last look."""

    __slots__ = ("_busy", "_records", "value")

    def __init__(self) -> None:
        self._busy = 0.0
        self._records = 0
        self.value: float | None = None

    def look(self, records: int, busy: float) -> float | None:
        """Take the subtask's totals; return the newest rate that is known.

        Before there is a sample, what little was measured is better than nothing."""
        if busy - self._busy >= SHORTEST_SAMPLE:
            self.value = max(records - self._records, 1) / (busy - self._busy)
            self._records, self._busy = records, busy
        if self.value is None and records and busy > 0:
            return records / busy
        return self.value


class LocalTasks:
    """Implements the coordinator's `TaskGateway` for one process."""

    def __init__(
        self,
        plan: PhysicalPlan,
        subtasks: Sequence[Subtask],
        work_list: BarrierWorkList,
        context: TaskContext,
        replay: Replay,
    ) -> None:
        self._replay = replay
        self._subtasks = subtasks
        self._work_list = work_list
        self._context = context
        self._rates = {subtask.id: _Rate() for subtask in subtasks}
        self._upstream = {
            task.name: tuple(
                {e.sender for e in plan.edges if e.receiver == task.name and not e.is_back}
            )
            for task in plan.tasks
        }
        self._broadcast_from = {
            task.name: frozenset(
                edge.sender
                for edge in plan.edges
                if edge.receiver == task.name and isinstance(edge.connection.exchange, Broadcast)
            )
            for task in plan.tasks
        }
        self._edges_out = {
            task.name: sum(edge.sender == task.name for edge in plan.edges) for task in plan.tasks
        }

    def start(self, trigger: Trigger) -> None:
        """Begin a checkpoint."""
        self._work_list.start(trigger)

    def escalate(self, checkpoint_id: int) -> None:
        """Let a checkpoint go on unaligned."""
        self._work_list.escalate(checkpoint_id)

    def cancel(self, checkpoint_id: int) -> None:
        """End a checkpoint at every subtask."""
        self._work_list.cancel(checkpoint_id)

    def release(self) -> None:
        """Let the subtasks go on that hold still for a stop."""
        self._work_list.release()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every subtask that a checkpoint is complete."""
        self._work_list.notify_complete(checkpoint_id)

    def drain(self) -> None:
        """Let every source read no more."""
        for subtask in self._subtasks:
            subtask.drain()

    def finished(self) -> frozenset[SubtaskId]:
        """Who has finished."""
        return frozenset(subtask.id for subtask in self._subtasks if subtask.finished)

    def all_ended(self) -> bool:
        """Nobody will do anything more by itself."""
        return all(subtask.ended for subtask in self._subtasks)

    def replaying(self) -> bool:
        """Restored data of a changed job is left (rule P41)."""
        return self._replay.under_way

    def commits_outstanding(self) -> bool:
        """Some sink has something to commit now."""
        return any(subtask.commits_outstanding for subtask in self._subtasks)

    def queued_records(self) -> int:
        """Records that an unaligned checkpoint would capture now."""
        return sum(subtask.gate.queued_records for subtask in self._subtasks)

    def look_at(self, when: float) -> None:
        """Let the coordinator look between two slices, once this time has come."""
        self._context.look_at = when

    def facts(self) -> list[TaskFacts]:
        """What the prediction needs to know of each task."""
        by_task: dict[str, list[Subtask]] = {}
        for subtask in self._subtasks:
            by_task.setdefault(subtask.id.task, []).append(subtask)
        return [self._task_facts(name, subtasks) for name, subtasks in by_task.items()]

    def _rate_of(self, subtask: Subtask) -> float | None:
        busy = subtask.meter.upto(self._context.clock.monotonic())["busy"]
        return self._rates[subtask.id].look(subtask.meter.records_in, busy)

    def _task_facts(self, name: str, subtasks: Sequence[Subtask]) -> TaskFacts:
        rates = [rate for subtask in subtasks if (rate := self._rate_of(subtask))]
        taken = sum(subtask.meter.records_in for subtask in subtasks)
        sent = sum(edge.pushed for subtask in subtasks for edge in subtask.output.edges)
        outputs = self._edges_out[name]
        return TaskFacts(
            name,
            self._upstream[name],
            tuple(subtask.gate.queued_records for subtask in subtasks),
            min(rates, default=None),
            sent / outputs / taken if outputs and taken else 1.0,
            self._broadcast_from[name],
        )
