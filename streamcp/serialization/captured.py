"""`Captured`: a value that belongs to a snapshot and is not serialized yet (architecture, 4).

Taken by reference when the barrier passes; frozen in the background, or at the last moment before
somebody consumes or changes it. The bytes are those of the cut either way. Knows neither batches
nor state; when to freeze is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

from streamcp.errors import SerializationError
from streamcp.serialization.immutable import all_leaves, is_deeply_immutable
from streamcp.serialization.serializer import Serializer


class Captured:
    """A value as it was at the cut. `frozen` are its bytes once there are any; `error` is why
    there will be none, and declines the checkpoint, never the task."""

    __slots__ = ("_fixed_list", "_serializer", "_step", "error", "frozen", "value")

    def __init__(
        self, value: Any, serializer: Serializer, *, step: str, fixed_list: bool = False
    ) -> None:
        """Capture `value` for `step`, by reference.

        `fixed_list`: the value is a list that nobody ever changes (that of a batch); only the
        records in it may be changed.
        """
        self.value = value
        self.frozen: bytes | None = None
        self.error: SerializationError | None = None
        self._serializer = serializer
        self._step = step
        self._fixed_list = fixed_list

    def freeze(self) -> None:
        """Serialize the value, once. Never raises: a failure is kept in `error`."""
        if self.frozen is not None or self.error is not None:
            return
        try:
            self.frozen = self._serializer.dumps(self.value, step=self._step)
        except SerializationError as error:
            self.error = error

    def before_use(self) -> None:
        """To be called before the value is consumed or changed: freezes it, unless nothing in it
        can change. Never raises."""
        if self.frozen is None and self.error is None and not self._cannot_change():
            self.freeze()

    def _cannot_change(self) -> bool:
        if self._fixed_list:
            return all_leaves(self.value)
        return is_deeply_immutable(self.value)
