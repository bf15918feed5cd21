"""What a query is: the same question, written for streamcp, by hand, and in SQL.

Knows nothing of how queries are run or compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamcp as sc
from benchmarks.nexmark.model import Event

R = TypeVar("R")
Row = tuple[Any, ...]
Clock = Callable[[Event], int]
"""The time at which an event comes, in milliseconds since the epoch."""


def wall_clock(event: Event) -> int:
    """What time it is."""
    return time.time_ns() // 1_000_000


def its_own_time(event: Event) -> int:
    """The time of the event: that of a source that gives each one then."""
    return event.time


def as_they_are(results: Iterable[Any]) -> Iterable[Row]:
    """The rows of results that are named tuples."""
    return results


@dataclass(frozen=True)
class Query(Generic[R]):
    """One question.

    `stream` describes the job's steps. `by_hand` is what somebody would write without a
    framework: one loop, nothing to restore it from. `sql` asks DuckDB, over the tables person,
    auction and bid. `rows` are the rows of SQL's answer that the results in their order stand for.
    `event_time` says whether the source needs watermarks. `by_clock` is the loop of a query whose
    answer depends on when the events come; `sql` then tells it for each coming at its own time."""

    name: str
    stream: Callable[[sc.Stream[Event]], sc.Stream[R]]
    by_hand: Callable[[Iterable[Event]], Iterator[R]]
    sql: str
    rows: Callable[[Sequence[Any]], Iterable[Row]] = as_they_are
    event_time: bool = False
    by_clock: Callable[[Iterable[Event], Clock], Iterator[R]] | None = None
