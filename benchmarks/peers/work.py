"""What every engine does: the same functions on the same numbers, and how it tells what it did.

Imported by the interpreter of each peer, so it needs the standard library alone, and nothing else
of this checkout. A child gets one task as JSON, and answers with one line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

KEYS = 1000
CALL_SECONDS = 0.005
CALLS_AT_ONCE = 100
PER_SECOND = 10_000  # records in a second of event time
FIRST = 1_704_067_200_000  # milliseconds since the epoch: when event time begins
SLOW_SECONDS = 0.001  # that the slow step takes per record

ANSWER = "answer of the engine: "  # before the answer: peers print other things too


# ---- the functions


def scale(value: int) -> int:
    return value * 3 + 1


def is_kept(value: int) -> bool:
    return value % 4 != 0


def shift(value: int) -> int:
    return value - 7


def key_of(value: int) -> int:
    return value % KEYS


def time_of(value: int) -> int:
    """Milliseconds since the epoch."""
    return FIRST + value * 1000 // PER_SECOND


async def ask(value: int) -> int:
    await asyncio.sleep(CALL_SECONDS)
    return value * 3 + 1


# ---- what comes in and goes out


@dataclass(frozen=True)
class Task:
    """What a child is to do. `spawned`: when it was started, by the clock that all processes of a
    machine share. `folder` is an empty one, for checkpoints and notes."""

    workload: str
    records: int
    folder: str = ""
    spawned: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Results:
    """The end of a stream: how many results there were, and what they add up to.

    The clock runs from the first record that is drawn from the source until the last result is
    there; what comes before is start-up."""

    count: int = 0
    total: int = 0
    started: float = 0.0
    ended: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> None:
        """Called with each batch of the source; the first call counts."""
        if not self.started:
            self.started = time.perf_counter()

    def end(self) -> None:
        """Called when the last result is there."""
        self.ended = time.perf_counter()

    def add(self, value: int) -> None:
        """One result."""
        self.count += 1
        self.total += value

    def add_all(self, values: Sequence[int]) -> None:
        """Many results at once."""
        self.count += len(values)
        self.total += sum(values)

    def add_window(self, records: int) -> None:
        """The number of records of one key in one window."""
        self.count += 1
        self.total += records * records

    def add_in_order(self, values: Iterable[int]) -> None:
        """Results whose order is part of the answer."""
        for value in values:
            self.count += 1
            self.total += self.count * value

    def add_last_counts(self, counts: Iterable[int]) -> None:
        """The last number of each key, of an engine that does not emit one for each record."""
        for last in counts:
            self.count += last
            self.total += last * (last + 1) // 2


@dataclass(frozen=True)
class Answer:
    """What a child did: the speed, and the count and total that must be those of every engine."""

    records: int
    seconds: float
    startup: float
    count: int
    total: int
    version: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Records of the source."""
        return self.records / self.seconds


Workload = Callable[[Task], Results]


def serve(package: str, workloads: Mapping[str, Workload]) -> None:
    """The child: do the task of the command line, and print the answer."""
    task = Task(**json.loads(sys.argv[1]))
    results = workloads[task.workload](task)
    answer = Answer(
        task.records,
        results.ended - results.started,
        results.started - task.spawned,
        results.count,
        results.total,
        version(package) if package else "",
        results.extra,
    )
    print(f"\n{ANSWER}{json.dumps(asdict(answer))}", flush=True)


# ---- what must come out


def expected(workload: str, n: int) -> tuple[int, int]:
    """The count and total of `n` records, by arithmetic: no engine's code has a part in it."""
    return _EXPECTED[workload](n)


def _expected_stateless(n: int) -> tuple[int, int]:
    dropped = (n + 2) // 4  # 3i + 1 is a multiple of 4 where i = 1, 5, 9, ...
    of_all = 3 * n * (n - 1) // 2 - 6 * n
    of_dropped = 3 * (dropped + 4 * dropped * (dropped - 1) // 2) - 6 * dropped
    return n - dropped, of_all - of_dropped


def _expected_count(n: int) -> tuple[int, int]:
    whole, rest = divmod(n, KEYS)  # of KEYS numbers in a row no two kept ones share a key
    kept = [key for key in range(KEYS) if key % 4 != 1]
    counts = [whole + (key < rest) for key in kept]
    return sum(counts), sum(count * (count + 1) // 2 for count in counts)


def _expected_windows(n: int) -> tuple[int, int]:
    seconds, rest = divmod(n, PER_SECOND)
    each = PER_SECOND // KEYS
    in_last = [rest // KEYS + (key < rest % KEYS) for key in range(KEYS)]
    last = [count for count in in_last if count]
    return seconds * KEYS + len(last), seconds * KEYS * each**2 + sum(c * c for c in last)


def _expected_calls(n: int) -> tuple[int, int]:
    squares = (n - 1) * n * (2 * n - 1) // 6
    sum_of_all = n * (n - 1) // 2
    return n, 3 * squares + 4 * sum_of_all + n  # the sum of (i + 1) (3i + 1)


_EXPECTED: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "stateless": _expected_stateless,
    "count": _expected_count,
    "count_with_checkpoints": _expected_count,
    "windows": _expected_windows,
    "calls": _expected_calls,
}
