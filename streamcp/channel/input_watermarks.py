"""The event time of a subtask's inputs: the least of what its channels have announced.

Plain numbers in, plain numbers out. It never goes back (rule I4): a channel that was idle and
comes back with an earlier watermark does not hold back what was announced meanwhile.
"""

from __future__ import annotations

from collections.abc import Set

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


class InputWatermarks:
    """What each of a number of inputs has announced.

    `ignored` are inputs without event time: back edges of loops, and broadcast inputs whose source
    has no watermarks. `watermark` is that of all others together."""

    __slots__ = ("_inputs", "ended", "idle", "watermark", "watermarks")

    def __init__(self, inputs: int, ignored: Set[int] = frozenset()) -> None:
        """Nothing is announced yet."""
        self._inputs = [number for number in range(inputs) if number not in ignored]
        self.watermarks = [MIN_TIMESTAMP] * inputs
        self.idle: set[int] = set()
        self.ended: set[int] = set()
        self.watermark = MIN_TIMESTAMP

    @property
    def all_idle(self) -> bool:
        """No input that has not ended holds event time back."""
        waiting = [number for number in self._inputs if number not in self.ended]
        return bool(waiting) and self.idle.issuperset(waiting)

    def advance(self, number: int, watermark: int) -> None:
        """An input announces a watermark; whoever does is not idle."""
        self.idle.discard(number)
        if watermark > self.watermarks[number]:
            self.watermarks[number] = watermark
        self._combine()

    def set_idle(self, number: int, idle: bool) -> None:
        """An input becomes idle, or active again."""
        if idle:
            self.idle.add(number)
        else:
            self.idle.discard(number)
        self._combine()

    def end(self, number: int) -> None:
        """An input has ended: nothing comes from it any more."""
        self.ended.add(number)
        self._combine()

    def _combine(self) -> None:
        waiting = [number for number in self._inputs if number not in self.ended]
        active = [self.watermarks[number] for number in waiting if number not in self.idle]
        if active:
            combined = min(active)
        elif waiting:
            # Had the slower ones fallen idle first, the fastest would have been alone at last.
            combined = max(self.watermarks[number] for number in waiting)
        else:
            combined = MAX_TIMESTAMP if self._inputs else MIN_TIMESTAMP
        self.watermark = max(self.watermark, combined)

    def announced(self, number: int) -> tuple[int, bool]:
        """What a snapshot keeps of an input: its watermark, and whether it is idle (rule P42)."""
        return self.watermarks[number], number in self.idle

    def restore(self, number: int, watermark: int, idle: bool) -> None:
        """Take back what an input had announced."""
        self.watermarks[number] = watermark
        self.set_idle(number, idle)
