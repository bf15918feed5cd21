"""What a query is: the same question, written for streamcp, by hand, and in SQL.

Knows nothing of how queries are run or compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamcp as sc
from benchmarks.nexmark.model import Event

R = TypeVar("R")
Row = tuple[Any, ...]


def as_they_are(results: Iterable[Any]) -> Iterable[Row]:
    """The rows of results that are named tuples."""
    return results


@dataclass(frozen=True)
class Query(Generic[R]):
    """One question.

    `stream` describes the job's steps. `by_hand` is what somebody would write without a
    framework: one loop, nothing to restore it from. `sql` asks DuckDB, over the tables person,
    auction and bid. `rows` are the rows of SQL's answer that the results in their order stand for.
    `event_time` says whether the source needs watermarks, `processing_time` that the answer depends
    on when the events come: `sql` then tells it for each coming at its own time."""

    name: str
    stream: Callable[[sc.Stream[Event]], sc.Stream[R]]
    by_hand: Callable[[Iterable[Event]], Iterator[R]]
    sql: str
    rows: Callable[[Sequence[Any]], Iterable[Row]] = as_they_are
    event_time: bool = False
    processing_time: bool = False
