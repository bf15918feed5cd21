"""How a barrier crosses all subtasks of a process within one turn of the event loop.

A first-in-first-out work list of plain calls, never recursion (architecture, section 3). It is
started by the coordinator only, never from inside user code, and no task runs until it is empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from streamcp.channel.channel import Channel
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.plan import Trigger
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.snapshots import SnapshotWriter
from streamcp.runtime.subtask import Subtask


class BarrierWorkList:
    """The one work list of an event loop. `subtasks` are all of the process, senders first."""

    def __init__(self, context: TaskContext, snapshots: SnapshotWriter) -> None:
        self._triggers: dict[int, Trigger] = {}
        self._context = context
        self._snapshots = snapshots
        self._subtasks: Sequence[Subtask] = ()
        self._receivers: dict[Channel, tuple[Subtask, int]] = {}
        self._work: deque[tuple[Subtask, int]] = deque()

    def attach(self, subtasks: Sequence[Subtask]) -> None:
        """Learn which channel ends at which subtask."""
        self._subtasks = subtasks
        self._receivers = {
            channel: (subtask, number)
            for subtask in subtasks
            for number, channel in enumerate(subtask.gate.channels)
        }

    @property
    def newest(self) -> int:
        """The newest checkpoint under way; 0 if there is none."""
        return max(self._triggers, default=0)

    def trigger_of(self, checkpoint_id: int) -> Trigger:
        """How a checkpoint under way was begun; several are only if all are aligned (P10)."""
        return self._triggers[checkpoint_id]

    def start(self, trigger: Trigger) -> None:
        """Begin a checkpoint: at its end every barrier that overtakes has passed (P12 to P15);
        those in line are on their way."""
        self._triggers[trigger.checkpoint_id] = trigger
        self._snapshots.expect(trigger.checkpoint_id, len(self._subtasks))
        if trigger.unaligned:
            self._hand_on()
        for subtask in self._subtasks:
            if subtask.id in trigger.finished:
                self._guarded(subtask, subtask.take_final_snapshot, trigger)
                continue
            if subtask.id in trigger.triggered:
                self._guarded(subtask, subtask.triggered, trigger)
            subtask.checkpoint_begins()
        self._work_off(trigger)

    def escalate(self, checkpoint_id: int) -> None:
        """Let a checkpoint under way, the only one, go on unaligned (P26)."""
        trigger = self._triggers[checkpoint_id]
        self._hand_on()
        for subtask in self._subtasks:
            if not subtask.finished:
                self._guarded(subtask, subtask.escalate, trigger)
            self._work_off(trigger)

    def cancel(self, checkpoint_id: int) -> None:
        """End a checkpoint without completing it, at every subtask (P10)."""
        self._snapshots.drop(checkpoint_id)
        for subtask in self._subtasks:
            subtask.cancel(checkpoint_id)
        self._triggers.pop(checkpoint_id, None)

    def release(self) -> None:
        """Let the subtasks go on that hold still for a stop (P33)."""
        for subtask in self._subtasks:
            subtask.release()

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell every subtask that a checkpoint is complete (P30)."""
        self._triggers.pop(checkpoint_id, None)
        self._snapshots.completed(checkpoint_id)
        if self._context.journal is not None:
            self._context.journal.completed(checkpoint_id)
        for subtask in self._subtasks:
            subtask.on_complete(checkpoint_id)

    def forward(self, channels: Iterable[Channel]) -> None:
        """Queue the receivers of an overtaking barrier."""
        self._work.extend(self._receivers[channel] for channel in channels)

    def _hand_on(self) -> None:
        for subtask in self._subtasks:
            subtask.hand_on()

    def _work_off(self, trigger: Trigger) -> None:
        while self._work:
            subtask, channel = self._work.popleft()
            self._guarded(subtask, partial(subtask.overtaken, channel=channel), trigger)

    def _guarded(
        self, subtask: Subtask, handler: Callable[[Trigger], None], trigger: Trigger
    ) -> None:
        """A handler never raises: a failure is a decline, and the barrier goes on."""
        try:
            handler(trigger)
        except Exception as error:  # snapshot hooks call user code, which may raise anything
            self._context.coordinator.decline(
                subtask.id,
                trigger.checkpoint_id,
                FailureReason.DECLINED,
                f"{type(error).__name__}: {error}",
            )
