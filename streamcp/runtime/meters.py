"""What is counted of steps and tasks: plain numbers, read by views and by the mode policy."""

from __future__ import annotations


class StepMeter:
    """Records of one step in one subtask."""

    __slots__ = ("dropped", "records_in", "records_out", "retries")

    def __init__(self) -> None:
        self.records_in = 0
        self.records_out = 0
        self.dropped = 0
        self.retries = 0


class TaskMeter:
    """Where one subtask's time goes, in seconds; and its records.

    `busy` working, `idle` waiting for input, `backpressured` waiting for room in its outputs."""

    __slots__ = ("backpressured", "busy", "idle", "records_in", "records_out")

    def __init__(self) -> None:
        self.busy = 0.0
        self.idle = 0.0
        self.backpressured = 0.0
        self.records_in = 0
        self.records_out = 0
