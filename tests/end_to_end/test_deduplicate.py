"""Of equal records one passes, for as long as was said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.testing.running import run_job
from streamcp.testing.simulating import simulate
from tests.recovery.world import Target, staged

Record = tuple[str, int]


def passed(records: list[Record], within: str | None, *, timed: bool = True) -> list[Record]:
    @sc.source
    async def each(position: int = 0) -> AsyncIterator[tuple[Record, int]]:
        for place in range(position, len(records)):
            yield records[place], place + 1
            await asyncio.sleep(1)

    job = sc.Job("once")
    watermarks = sc.Watermarks[Record](lambda record: record[1]) if timed else None
    source = job.source(each(), name="records", watermarks=watermarks)
    found = sc.collect()
    keyed = source.key_by(lambda record: record[0])
    keyed.deduplicate(within=within, name="once").sink(found, name="out")
    run_job(job)
    return found.records


def test_first_record_of_each_key_passes_and_none_behind_it() -> None:
    records = [("a", 5), ("b", 6), ("a", 7), ("a", 10**9), ("b", 1)]
    assert passed(records, None) == [("a", 5), ("b", 6)]
    assert passed(records, None, timed=False) == [("a", 5), ("b", 6)]


def test_key_passes_again_when_its_time_is_over() -> None:
    records = [("a", 5), ("a", 14), ("a", 15), ("a", 24), ("a", 26)]
    assert passed(records, "10ms") == [("a", 5), ("a", 15), ("a", 26)]


def test_without_event_time_the_clock_counts() -> None:
    records = [("a", n) for n in range(7)]
    assert passed(records, "2500ms", timed=False) == [("a", 0), ("a", 3), ("a", 6)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=12))
def test_what_passes_equals_a_loop_over_all_records(records: list[Record]) -> None:
    """A key is forgotten by the first watermark that comes when its time is over."""
    expected: list[Record] = []
    until: dict[str, int] = {}
    watermark = -2
    for key, timestamp in records:
        if timestamp >= until.get(key, timestamp):
            expected.append((key, timestamp))
            until[key] = timestamp + 10
        if timestamp - 1 > watermark:
            watermark = timestamp - 1
            until = {key: end for key, end in until.items() if end > watermark}
    assert passed(records, "10ms") == expected


def test_the_same_passes_whatever_crashes() -> None:
    def make() -> sc.Job:
        job = sc.Job("once", checkpoints=sc.Checkpoints(to="unused", every="1s"))
        watermarks = sc.Watermarks[int](lambda number: number)
        source = job.source(sc.items(range(100)), name="numbers", watermarks=watermarks)
        once: Any = source.key_by(lambda number: number % 7).deduplicate(within="20ms", name="once")
        once.sink(staged(Target()), name="out")
        return job

    simulate(make, seeds=range(12))


@pytest.mark.parametrize("within", [5, "5", "0s"])
def test_time_that_is_none_is_refused(within: Any) -> None:
    keyed = sc.Job("once").source(sc.items([1])).key_by(lambda number: number)
    with pytest.raises(sc.SettingsError, match=r"deduplicate\(within\)"):
        keyed.deduplicate(within=within)
