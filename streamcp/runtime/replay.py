"""After the restore of a changed job: stage by stage, until no restored data is left (rule P41).

What was in flight as one old channel may now lie on another channel than what its old sender
emits next. So that nothing newer overtakes it, a task stays closed until everything behind it is
worked off, and sources read on only when the whole job is. Invariant: while a task is closed, it
takes no record and starts no call; barriers pass it as ever. It knows no checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamcp.runtime.subtask import Subtask


class Replay:
    """Opens the tasks of a process from the sinks upward.

    `downstream` names the tasks that each task's records can reach."""

    def __init__(
        self, subtasks: Sequence[Subtask], downstream: Mapping[str, frozenset[str]]
    ) -> None:
        """Nothing is closed before `begin`."""
        self.under_way = False
        self._subtasks = subtasks
        self._downstream = downstream
        self._closed: set[str] = set()

    def begin(self) -> None:
        """Close every task behind which restored data is left, before any task runs."""
        self.under_way = True
        self._closed = {subtask.id.task for subtask in self._subtasks}
        for subtask in self._subtasks:
            subtask.on_idle = self.look
            subtask.close_for_replay()
        self.look()

    def look(self) -> None:
        """Open what may be opened; called whenever a subtask waits or has finished."""
        holding = {subtask.id.task for subtask in self._subtasks if subtask.holds_records}
        opened = {name for name in self._closed if not self._downstream[name] & holding}
        self._closed -= opened
        for subtask in self._subtasks:
            if subtask.id.task in opened:
                subtask.open_after_replay()
        if not holding:
            self._end()

    def _end(self) -> None:
        self.under_way = False
        for subtask in self._subtasks:
            subtask.on_idle = None
            subtask.replay_is_over()
