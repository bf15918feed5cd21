"""When a loop ends (rule P19): its outer inputs have ended, and nothing is left inside.

All subtasks of a loop are in one process and stand still while one of them runs, so a plain look
at all of them is exact: no record can be on its way past it. What it finds stays true, since only
a record, a pending call or a due timer makes another record. It must not know what the subtasks
do with their records.
"""

from __future__ import annotations

from typing import Protocol


class LoopMember(Protocol):
    """What a loop asks of its subtasks."""

    finished: bool

    @property
    def outer_inputs_ended(self) -> bool:
        """Every input from outside the loop has delivered its end."""
        ...

    @property
    def is_empty(self) -> bool:
        """Nothing is queued, in hand, pending or in a partial batch, and no timer is due."""
        ...

    def end_back_edges(self) -> None:
        """Nothing comes round any more."""
        ...


class Iteration:
    """One loop: the subtasks through which records go round."""

    __slots__ = ("_members", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._members: list[LoopMember] = []

    def join(self, member: LoopMember) -> None:
        """Add a subtask."""
        self._members.append(member)

    def look(self) -> None:
        """End the loop if it is over; called whenever a member is about to wait.

        That is often enough: the member that works off the last record, or takes the last end of
        an outer input, waits afterwards, and finds everyone empty. All back edges end in one step,
        so that no checkpoint waits for a barrier to come round where nobody sends any more."""
        if not self.ended and self._is_over():
            self.ended = True
            for member in self._members:
                member.end_back_edges()

    def _is_over(self) -> bool:
        members = self._members
        # A restored member has finished only if the loop had ended before the checkpoint (P7).
        if any(member.finished for member in members):
            return True
        return all(one.outer_inputs_ended for one in members) and all(
            one.is_empty for one in members
        )
