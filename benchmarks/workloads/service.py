"""A sink that is slow as an outside service is: it is waited for, and other tasks go on.

A token bucket for all subtasks together; each has one record at a time, so that an aligned barrier
waits for all records before it.
"""

from __future__ import annotations

import asyncio

from benchmarks.harness.open_loop import SECOND, now
from benchmarks.harness.recorder import Recorder
from benchmarks.workloads.counting import Counted, Ending

# Saved up by a service that had nothing to do; it makes up for timers that fire late.
BURST = 0.01  # seconds
SLOWER = 10


class Service:
    """Takes `rate` records per second, a tenth of that from when to when `slow` says, in seconds
    since `begun`."""

    def __init__(
        self, rate: float, recorder: Recorder, begun: int, slow: tuple[float, float] | None
    ) -> None:
        self._recorder = recorder
        self._slow = slow
        self._begun = begun
        self._pause = SECOND / rate
        self._free = 0.0  # when the next record may be taken

    async def take(self, record: Counted) -> None:
        """Take one record, in its turn."""
        at = now()
        turn = max(self._free, at - BURST * SECOND)
        self._free = turn + self._pause * (SLOWER if self._is_slow(at) else 1)
        if turn > at:
            await asyncio.sleep((turn - at) / SECOND)
        self._recorder.write((record[2],), (record[3],))

    def _is_slow(self, at: int) -> bool:
        if self._slow is None:
            return False
        since, until = self._slow
        return since <= (at - self._begun) / SECOND < until


def service_sink(service: Service) -> Ending:
    """One record at a time in each subtask."""
    return lambda counted: counted.for_each(service.take, name="service", concurrency=1)
