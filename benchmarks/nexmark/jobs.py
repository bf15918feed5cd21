"""From a query to a job over events that were made before; and running it for its results alone.

Every split of a source has its own share of the events: each n-th one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import Any, Final

import streamcp as sc
from benchmarks.nexmark.model import OUT_OF_ORDERNESS_MS, Event
from benchmarks.nexmark.query import Query
from streamcp.testing.running import run_job

Batches = AsyncIterator[tuple[Sequence[Event], int]]

BATCH: Final = 2048  # as many as `sc.items` gives at once
CLOCK_BEGINS: Final = 1_700_000_000_000  # of a job in virtual time
PACE_MS: Final = 100
LONGEST_WINDOW: Final = 10.0  # seconds
_WATERMARKS: Final = sc.Watermarks[Event](
    lambda event: event.time, out_of_orderness=f"{OUT_OF_ORDERNESS_MS}ms"
)


def shared_out(events: Sequence[Event], parallelism: int) -> sc.Source[Event]:
    """Make a source of so many splits that gives the events as fast as they are taken."""
    shares = [events[first::parallelism] for first in range(parallelism)]

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def nexmark(split: int, position: int = 0) -> Batches:
        share = shares[split]
        for start in range(position, len(share), BATCH):
            batch = share[start : start + BATCH]
            yield batch, start + len(batch)

    return nexmark()


def paced(events: Sequence[Event], parallelism: int) -> sc.Source[Event]:
    """Make a source that gives each event at its own time, within `PACE_MS`, by the loop's clock,
    and ends when the windows of the last ones have closed; for jobs in virtual time.

    The events are in the order of their times."""
    shares = [events[first::parallelism] for first in range(parallelism)]

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def nexmark(split: int, position: int = 0) -> Batches:
        share = shares[split]
        for step, group in groupby(share[position:], lambda event: event.time // PACE_MS):
            batch = [*group]
            # In the middle of the step: the same window is open while the events are worked off.
            await _until((step + 0.5) * PACE_MS)
            position += len(batch)
            yield batch, position
        await asyncio.sleep(2 * LONGEST_WINDOW)

    return nexmark()


async def _until(time: float) -> None:
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(max((time - CLOCK_BEGINS) / 1000 - now, 0))


def job(
    query: Query[Any],
    source: sc.Source[Event],
    sink: Callable[[], Any],
    *,
    parallelism: int = 1,
    **settings: Any,
) -> sc.Job:
    """Describe the job of a query, with settings of `sc.Job`; `sink` makes one sink per subtask."""
    described = sc.Job(query.name, parallelism=parallelism, **settings)
    watermarks = _WATERMARKS if query.event_time else None
    events = described.source(source, name="events", watermarks=watermarks)
    query.stream(events).sink(sink, name="results")
    return described


async def results(query: Query[Any], events: Sequence[Event], parallelism: int) -> list[Any]:
    """Run a query and return what it emits."""
    kept = sc.collect()
    source = shared_out(events, parallelism)
    await job(query, source, lambda: kept, parallelism=parallelism).run_async()
    return kept.records


def results_in_virtual_time(
    query: Query[Any], events: Sequence[Event], parallelism: int
) -> list[Any]:
    """Run a query where each event comes at its own time, and return what it emits.

    It has an event loop of its own: call it in a thread where another one runs."""
    kept = sc.collect()
    source = paced(events, parallelism)
    run_job(job(query, source, lambda: kept, parallelism=parallelism))
    return kept.records
