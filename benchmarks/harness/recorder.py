"""What a sink sees of an open-loop run, and what is made of it when the run is over.

Per record it keeps two numbers in arrays, per write one reading of the clock; everything else is
worked out afterwards.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.harness.histogram import Histogram
from benchmarks.harness.open_loop import SECOND, Times, now

SLICE = SECOND // 10  # of the series over time


class Recorder:
    """Latencies in nanoseconds, in the order of the writes: from the intended time, and naively
    from the time at which the source gave the record out."""

    def __init__(self) -> None:
        self.latencies = array("q")
        self.naive = array("q")
        self._writes = array("q")  # the time of each
        self._ends = array("q")  # how many records there are after each

    def write(self, intended: Sequence[int], given: Sequence[int]) -> None:
        """Take the stamps of records that are in the sink now."""
        self.write_at(now(), intended, given)

    def write_at(self, at: int, intended: Sequence[int], given: Sequence[int]) -> None:
        """Take the stamps of records that were in the sink then, the writes in their order."""
        self.latencies.extend([at - stamp for stamp in intended])
        self.naive.extend([at - stamp for stamp in given])
        self._writes.append(at)
        self._ends.append(len(self.latencies))

    @property
    def last(self) -> int:
        """When the last record came."""
        return self._writes[-1]

    def by_second(self, start: int, seconds: int) -> list[Histogram]:
        """The latencies of so many seconds from `start` on, by the time of the write."""
        ends = [self._upto(start + n * SECOND) for n in range(seconds + 1)]
        return [Histogram(self.latencies[first:end]) for first, end in pairwise(ends)]

    def naively(self, start: int, seconds: int) -> Histogram:
        """The naive latencies of the same time."""
        return Histogram(self.naive[self._upto(start) : self._upto(start + seconds * SECOND)])

    def _upto(self, time: int) -> int:
        """How many records were written before that time."""
        writes = bisect_left(self._writes, time)
        return self._ends[writes - 1] if writes else 0

    def slices(self, begun: int) -> list[list[float]]:
        """Of each tenth of a second in which something was written: its end in seconds since
        `begun`, p50, p99 and maximum in milliseconds, and how many records it had."""
        return [_slice(number, values) for number, values in self._by_slice(begun)]

    def _by_slice(self, begun: int) -> Iterator[tuple[int, list[int]]]:
        for number in range((self.last - begun) // SLICE + 1):
            start = begun + number * SLICE
            values = self.latencies[self._upto(start) : self._upto(start + SLICE)]
            if values:
                yield number, sorted(values)


def _slice(number: int, values: list[int]) -> list[float]:
    last = len(values) - 1
    middle, high = (math.ceil(share * len(values)) - 1 for share in (0.5, 0.99))
    ms = [round(values[rank] / 1e6, 3) for rank in (middle, high, last)]
    return [(number + 1) / 10, *ms, len(values)]


def backlog(slices: Sequence[Sequence[float]], times: Times) -> list[list[float]]:
    """How many records were due and not in the sink, at the end of each slice."""
    done, found = 0.0, list[list[float]]()
    for end, *_, count in slices:
        done += count
        found.append([end, times.due(round(end * SECOND)) - done])
    return found


def checkpoint_json(statistics: Any, begun_ms: float) -> dict[str, Any]:
    """The figures of a checkpoint for a picture: its trigger in seconds since the beginning,
    durations in milliseconds, and sizes."""
    durable = statistics.durable_delay
    return {
        "at": (statistics.triggered_ms - begun_ms) / 1000,
        "kind": statistics.kind,
        "mode": statistics.mode,
        "outcome": statistics.outcome,
        "escalated_after": statistics.escalated_after,
        "barrier_ms": statistics.barrier_delay * 1000,
        "durable_ms": None if durable is None else durable * 1000,
        "state_bytes": statistics.state_bytes,
        "in_flight_bytes": statistics.in_flight_bytes,
        "in_flight_records": statistics.in_flight_records,
    }
