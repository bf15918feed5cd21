"""Nexmark's queries: what they answer is what SQL answers, undisturbed and killed in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from benchmarks.nexmark.answers import Answers, difference
from benchmarks.nexmark.generator import Auctioneering, events
from benchmarks.nexmark.jobs import job, results, results_in_virtual_time
from benchmarks.nexmark.model import Event, is_auction, is_bid
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.query import Query, its_own_time
from streamcp.config import Mode
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, TransactionalTargetSink, run_job

IN_ORDER = Auctioneering(rate=100)
OUT_OF_ORDER = Auctioneering(rate=50, out_of_order=150)  # for three seconds
BY_CLOCK = [name for name, query in QUERIES.items() if query.by_clock]
TIMELESS = [name for name, query in QUERIES.items() if not query.by_clock]


@cache
def answers(count: int, how: Auctioneering) -> Answers:
    return Answers(events(count, how))


@pytest.mark.parametrize("how", [IN_ORDER, OUT_OF_ORDER], ids=["in_order", "out_of_order"])
@pytest.mark.parametrize("name", TIMELESS)
async def test_job_and_loop_answer_what_sql_answers(name: str, how: Auctioneering) -> None:
    query, found = QUERIES[name], events(4000, how)
    expected = answers(4000, how).ask(query.sql)

    assert expected.total() > 3
    assert difference(query, [*query.by_hand(found)], expected) == ""
    for parallelism in (1, 3):
        assert difference(query, await results(query, found, parallelism), expected) == ""


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", BY_CLOCK)
def test_job_and_loop_by_the_clock_answer_what_sql_answers(name: str, parallelism: int) -> None:
    """Each event comes at its own time, by a clock that waits for nobody."""
    query, found = QUERIES[name], events(4000, IN_ORDER)
    expected = answers(4000, IN_ORDER).ask(query.sql)

    assert expected.total() > 3
    assert query.by_clock is not None
    assert difference(query, [*query.by_clock(found, its_own_time)], expected) == ""
    assert difference(query, results_in_virtual_time(query, found, parallelism), expected) == ""


def test_wrong_results_are_told() -> None:
    query, found = QUERIES["q2"], events(4000, IN_ORDER)
    rows = [*query.by_hand(found)]
    expected = answers(4000, IN_ORDER).ask(query.sql)

    assert "1 rows missing, such as [(" in difference(query, rows[1:], expected)
    assert "1 rows too many, such as [(" in difference(query, [*rows, rows[0]], expected)


# ---- killed in the middle

COUNT = 2500
AT_ONCE = 20
PAUSE = 0.01


def trickling(found: Sequence[Event], parallelism: int) -> sc.Source[Event]:
    """A few events at a time, so that a second is the middle; then wait until windows close."""
    shares = [found[first::parallelism] for first in range(parallelism)]

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def nexmark(split: int, position: int = 0) -> AsyncIterator[tuple[Sequence[Event], int]]:
        share = shares[split]
        for start in range(position, len(share), AT_ONCE):
            await asyncio.sleep(PAUSE * parallelism)
            batch = share[start : start + AT_ONCE]
            yield batch, start + len(batch)
        await asyncio.sleep(20)

    return nexmark()


class SlowSink(TransactionalTargetSink):
    """Slower than the source, so that records are under way when a barrier comes."""

    async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
        await asyncio.sleep(10 * PAUSE)
        await super().write(records, transaction)


async def kill_in_the_middle(seen: list[Any], handle: JobHandle) -> None:
    await asyncio.sleep(COUNT / AT_ONCE * PAUSE / 2)
    seen.append(await handle.checkpoint())
    await asyncio.sleep(3 * PAUSE)  # something is written that no checkpoint holds
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("mode", "parallelism"), [("aligned", 3), ("unaligned", 1), ("adaptive", 3)]
)
@pytest.mark.parametrize("name", QUERIES)
def test_killed_job_answers_what_sql_answers(
    tmp_path: Path, name: str, mode: Mode, parallelism: int
) -> None:
    query, found, target = QUERIES[name], events(COUNT, OUT_OF_ORDER), Target()
    seen: list[Any] = []

    def described() -> sc.Job:
        return job(
            query,
            trickling(found, parallelism),
            partial(SlowSink, target, lambda: None),
            parallelism=parallelism,
            checkpoints=sc.Checkpoints(to=tmp_path, mode=mode),
            channel_capacity=AT_ONCE,
        )

    assert run_job(described(), use=partial(kill_in_the_middle, seen)) is None
    assert seen[0].in_flight_records > 0 or mode != "unaligned" or name not in ("q0", "q1")
    before = len(target.records("results"))
    result = run_job(described())
    assert result is not None
    assert result.restored_from == seen[0].checkpoint_id
    assert len(target.records("results")) > before
    check_answer(query, target.records("results"), found)


def check_answer(query: Query[Any], rows: list[Any], found: list[Event]) -> None:
    if query.by_clock:
        # When an event came depends on when the job was killed; that it came once does not.
        ONCE[query.name](rows, found)
    else:
        expected = answers(COUNT, OUT_OF_ORDER).ask(query.sql)
        assert difference(query, rows, expected) == ""


def bids_of(found: list[Event]) -> Counter[int]:
    return Counter(event.bidder for event in found if is_bid(event))


def every_bid_is_in_one_window(rows: list[Any], found: list[Event]) -> None:
    counts: Counter[int] = Counter()
    for bidder, count, start, end in rows:
        assert start % 10_000 == 0
        assert end == start + 10_000
        counts[bidder] += count
    assert counts == bids_of(found)


def every_bid_is_counted_on(rows: list[Any], found: list[Event]) -> None:
    assert Counter(bidder for bidder, _ in rows) == bids_of(found)
    ones = Counter(bidder for bidder, count in rows if count == 1)
    assert ones.keys() == bids_of(found).keys()


def no_pair_comes_twice(rows: list[Any], found: list[Event]) -> None:
    sellers = {event.id: event.seller for event in found if is_auction(event)}
    assert max(Counter(rows).values()) == 1
    assert all(sellers[auction] == person for person, _, auction in rows)


ONCE = {
    "q12": every_bid_is_in_one_window,
    "q12-running": every_bid_is_counted_on,
    "q8-running": no_pair_comes_twice,
}
