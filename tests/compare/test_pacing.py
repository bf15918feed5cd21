"""Records are given out when they are due; what nobody takes waits, and keeps its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.compare.pacing import Pace, paced
from streamcp.testing.clock import ManualClock
from tests.compare.sources import batches_of, numbers

START_MS = 1_700_000_000_000


class Slept:
    """Sleeping moves the clock, a little too far."""

    def __init__(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, late: float) -> None:
        self._clock, self._late = clock, late
        self.times: list[float] = []
        monkeypatch.setattr("streamcp.compare.pacing.asyncio.sleep", self)

    async def __call__(self, seconds: float) -> None:
        self.times.append(round(seconds, 6))
        self._clock.advance(seconds + self._late)


async def test_record_waits_until_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    slept = Slept(clock, monkeypatch, late=0.002)
    pace = Pace({"numbers": 10.0}, clock)
    source = paced(numbers(), "numbers", pace, stamped=True)

    async with aclosing(source.open(source.start)) as opened:  # type: ignore[type-var]
        read = [await anext(opened) for _ in range(3)]

    assert [record for record, _ in read] == [(n, START_MS + 100 * n) for n in range(3)]
    assert slept.times == [0.1, 0.098]
    assert pace.late.as_plain() == {"2000": 2}
    assert pace.waited.as_plain() == {"0": 1, "2000": 2}


async def test_what_is_due_within_a_tick_is_given_out_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    slept = Slept(clock, monkeypatch, late=0.0)
    pace = Pace({"numbers": 10_000.0}, clock)
    source = paced(numbers(), "numbers", pace, stamped=False)

    async with aclosing(source.open(source.start)) as opened:  # type: ignore[type-var]
        read = [await anext(opened) for _ in range(11)]

    assert [record for record, _ in read] == list(range(11))
    assert slept.times == [0.001]


async def test_records_that_nobody_takes_keep_the_time_at_which_they_were_due() -> None:
    """The job was busy for ten seconds: what it then takes was due long before."""
    clock = ManualClock()
    pace = Pace({"numbers": 1.0}, clock)
    source = paced(numbers(), "numbers", pace, stamped=True)

    async with aclosing(source.open(source.start)) as opened:  # type: ignore[type-var]
        await anext(opened)
        clock.advance(10.0)
        assert pace.waiting({"numbers": 100}) == 9
        assert pace.waiting({"numbers": 5}) == 4
        later = [await anext(opened) for _ in range(2)]

    assert [stamp for (_, stamp), _ in later] == [START_MS + 1000, START_MS + 2000]
    assert pace.waited.as_plain() == {"0": 1, "8000000": 1, "9000000": 1}


def test_nothing_waits_before_the_first_reader_asks() -> None:
    assert Pace({"numbers": 1000.0}, ManualClock(tick=1.0)).waiting({"numbers": 10}) == 0


@given(
    sizes=st.lists(st.integers(0, 6), max_size=6),
    steps=st.lists(st.floats(0.1, 3.0), min_size=1, max_size=5),
    before=st.integers(0, 12),
)
async def test_batches_in_parts_are_whole_also_after_a_restore(
    sizes: list[int], steps: list[float], before: int
) -> None:
    whole = list(range(sum(sizes)))

    first = await read_parts(sizes, steps, None, before)
    rest = await read_parts(sizes, steps, first[-1][1] if first else None, None)

    assert [n for part, _ in [*first, *rest] for n in part] == whole
    assert [position[1] for _, position in [*first, *rest]] == sorted(
        position[1] for _, position in [*first, *rest]
    )


async def read_parts(
    sizes: list[int], steps: list[float], position: Any, most: int | None
) -> list[Any]:
    """One record a second; the reader comes back whenever it likes."""
    clock = ManualClock()
    pace = Pace({"rows": 1.0}, clock)
    source = paced(batches_of(sizes), "rows", pace, stamped=False)
    found: list[Any] = []
    moving = Moving(clock, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamcp.compare.pacing.asyncio.sleep", moving)
        async with aclosing(source.open(position or source.start)) as opened:  # type: ignore[type-var]
            while most is None or len(found) < most:
                try:
                    found.append(await anext(opened))
                except StopAsyncIteration:
                    break
                clock.advance(steps[len(found) % len(steps)])
    return found


class Moving:
    def __init__(self, clock: ManualClock, steps: list[float]) -> None:
        self._clock, self._steps, self._calls = clock, steps, 0

    async def __call__(self, seconds: float) -> None:
        self._calls += 1
        self._clock.advance(max(seconds, self._steps[self._calls % len(self._steps)]))


@sc.source(splits=lambda: ["a", "b"])
async def split_numbers(split: str, position: int = 0) -> AsyncIterator[tuple[str, int]]:
    for number in count(position):
        yield f"{split}{number}", number + 1


async def test_each_split_has_a_pace_of_its_own() -> None:
    clock = ManualClock()
    pace = Pace({"parts['a']": 1.0, "parts['b']": 2.0}, clock)
    source = paced(split_numbers(), "parts", pace, stamped=True)
    pace.now()
    clock.advance(5.0)

    for split in ("a", "b"):
        async with aclosing(source.open_split(split, source.start)) as opened:  # type: ignore[type-var]
            due = [(await anext(opened))[0] for _ in range(2)]
        rate = {"a": 1.0, "b": 2.0}[split]
        assert due == [(f"{split}0", START_MS), (f"{split}1", START_MS + round(1000 / rate))]
    assert pace.given == {"parts['a']": 2, "parts['b']": 2}
