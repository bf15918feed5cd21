"""Whether a complete checkpoint of a stop ends the job (rule P33).

A stop that asks for a savepoint is decided only when that is written: until then the subtasks hold
still, and if it fails the job goes on. One that asks for none ends the job whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamcp.checkpoint.trigger_policy import TriggerNow
from streamcp.coordinator.requests import Wish


def savepoints_to_wait_for(wishes: Iterable[Wish]) -> int:
    """Count the savepoints that decide: none if a stop without one is among the wishes."""
    stops = [wish for wish in wishes if wish.stop]
    return len(stops) if all(wish.savepoint for wish in stops) else 0


class UndecidedStop:
    """A stop whose checkpoint is complete and whose savepoints are being written."""

    def __init__(self, decision: TriggerNow, waiting: int) -> None:
        """Wait for the outcome of that many savepoints."""
        self.decision = decision
        self._waiting = waiting

    def has_failed(self) -> bool:
        """Count a savepoint that could not be written; True says that it was the last hope."""
        self._waiting -= 1
        return self._waiting == 0
