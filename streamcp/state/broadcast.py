"""The state that a broadcast input changes: one value per subtask, the same on all of them.

A snapshot takes it by reference, and whoever is about to change it says so first (copy on
consume). Between two changes all snapshots share one capture, so that rules that rest cost a
checkpoint nothing to freeze. Knows neither records nor who changes the value.
"""

from __future__ import annotations

from typing import Any

from streamcp.serialization.captured import Captured
from streamcp.serialization.serializer import Serializer


class BroadcastState:
    """The broadcast state of one step in one subtask."""

    def __init__(self, step: str, value: Any, serializer: Serializer) -> None:
        self.step = step
        self.value = value
        self._serializer = serializer
        self._captured: Captured | None = None

    def capture(self) -> Captured:
        """Take the value as it is now, by reference; the same capture until the next change."""
        if self._captured is None:
            self._captured = Captured(self.value, self._serializer, step=self.step)
        return self._captured

    def before_change(self) -> None:
        """To be called before the value is changed or replaced: freezes what was captured."""
        if self._captured is not None:
            self._captured.before_use()
            self._captured = None

    def copy(self) -> Any:
        """Make an independent copy of the value. Raises SerializationError where that cannot be."""
        return self._serializer.copy(self.value, step=self.step)

    def is_as_captured(self) -> bool:
        """Say whether the value has still the bytes of its capture; True where it has none, since
        it cannot be serialized."""
        captured = self.capture()
        captured.freeze()
        now = Captured(self.value, self._serializer, step=self.step)
        now.freeze()
        return captured.frozen == now.frozen
