"""The capture of a channel on which the barrier has not arrived when the snapshot is taken.

What it has gathered may be used before the capture ends, so each batch gets its handle at once.
"""

from __future__ import annotations

from collections.abc import Callable

from streamcp.channel.channel import GiveHandle
from streamcp.elements import Batch, InFlight


class OpenCapture:
    """Gathers the elements of one channel for one checkpoint (rule P14)."""

    __slots__ = ("_checkpoint_id", "_ended", "_give_handle", "elements")

    def __init__(
        self,
        checkpoint_id: int,
        elements: list[InFlight],
        give_handle: GiveHandle,
        ended: Callable[[], None],
    ) -> None:
        """Begin with `elements`, what is queued now. `give_handle` makes a batch one that is frozen
        before it is used; `ended` is called when the barrier arrives in line."""
        self.elements = elements
        self._checkpoint_id = checkpoint_id
        self._give_handle = give_handle
        self._ended = ended

    def add(self, element: InFlight) -> None:
        """An element was handed on before the barrier."""
        if type(element) is Batch:
            self._give_handle(element)
        self.elements.append(element)

    def ends_at(self, checkpoint_id: int) -> bool:
        """The barrier of this checkpoint ends the capture where it arrives, in line too: what comes
        behind it is not in flight. Its subtask may be holding still, and would not take it."""
        if checkpoint_id != self._checkpoint_id:
            return False
        self._ended()
        return True
