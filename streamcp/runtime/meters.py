"""What is counted of steps and tasks: plain numbers, read by views and by the mode policy."""

from __future__ import annotations

from typing import Literal, TypeAlias

Waiting: TypeAlias = Literal["idle", "backpressured", "busy", "aligning"]
"""What a wait is for: input, room in the outputs, calls that are being made, or the event time of
the sources that a source keeps together with."""


class StepMeter:
    """Records of one step in one subtask; of a lookup, how many were answered without a call of
    their own, and with one."""

    __slots__ = ("cache_hits", "cache_misses", "dropped", "records_in", "records_out", "retries")

    def __init__(self) -> None:
        self.records_in = 0
        self.records_out = 0
        self.dropped = 0
        self.retries = 0
        self.cache_hits = 0
        self.cache_misses = 0


class TaskMeter:
    """Where one subtask's time goes, in seconds; and its records.

    `busy` working, `idle` waiting for input, `backpressured` waiting for room in its outputs,
    `aligning` (a source) waiting for the others of its group to catch up in event time. A wait is
    counted as it ends; `upto` counts one under way as well, so that a task that is stuck shows
    it."""

    __slots__ = ("_since", "_waiting", "aligning", "backpressured", "busy", "idle", "records_in")

    def __init__(self) -> None:
        self.busy = 0.0
        self.idle = 0.0
        self.backpressured = 0.0
        self.aligning = 0.0
        self.records_in = 0
        self._waiting: Waiting = "idle"
        self._since: float | None = None

    def begin(self, waiting: Waiting, now: float) -> None:
        """A wait begins at `now` (monotonic)."""
        self._waiting, self._since = waiting, now

    @property
    def waits(self) -> bool:
        """A wait is under way."""
        return self._since is not None

    def end(self, now: float) -> None:
        """The wait is over, if there is one."""
        if self._since is None:
            return
        waited, self._since = now - self._since, None
        setattr(self, self._waiting, getattr(self, self._waiting) + waited)

    def upto(self, now: float) -> dict[Waiting, float]:
        """The seconds of each kind until `now`."""
        seconds: dict[Waiting, float] = {
            "busy": self.busy,
            "idle": self.idle,
            "backpressured": self.backpressured,
            "aligning": self.aligning,
        }
        if self._since is not None:
            seconds[self._waiting] += now - self._since
        return seconds
