"""Wake-ups are not lost, turns end, and slices fit their share."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.runtime.waking import SHORTEST_SHARE, TURN, SliceLength, Turns, Wakeup
from streamcp.testing.clock import ManualClock

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


async def test_wakeup_before_the_wait_is_not_lost_and_counts_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    await wakeup.wait()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(wakeup.wait())
        await asyncio.sleep(0)
        assert not task.done()
        wakeup.set()
        wakeup.set()


@virtual_time
async def test_wait_ends_after_its_timeout() -> None:
    wakeup = Wakeup()
    await wakeup.wait(timeout=3)
    assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.01)


@virtual_time
async def test_timer_of_a_wait_that_was_woken_does_not_end_the_next_one() -> None:
    wakeup = Wakeup()
    asyncio.get_running_loop().call_later(1, wakeup.set)
    await wakeup.wait(timeout=2)
    await wakeup.wait(timeout=5)
    assert asyncio.get_running_loop().time() == pytest.approx(6, abs=0.01)


async def test_cancelled_wait_leaves_the_wakeup_usable() -> None:
    wakeup = Wakeup()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(wakeup.wait(timeout=100))
        await asyncio.sleep(0)
        task.cancel()
    wakeup.set()
    await wakeup.wait()


async def test_turn_ends_only_when_the_share_is_used_up() -> None:
    clock = ManualClock()
    turns = Turns(clock, tasks=2)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(other())
        await turns.end_if_over(clock.monotonic())
        assert others == 0
        clock.advance(turns.share)
        await turns.end_if_over(clock.monotonic())
        assert others == 1
        await turns.end_if_over(clock.monotonic())
        assert others == 1
        clock.advance(turns.share)
        turns.begin(clock.monotonic())
        await turns.end_if_over(clock.monotonic())
        assert others == 1
        task.cancel()


@pytest.mark.parametrize(("tasks", "share"), [(1, TURN), (2, TURN / 2), (1000, SHORTEST_SHARE)])
def test_share_is_divided_with_a_floor(tasks: int, share: float) -> None:
    assert Turns(ManualClock(), tasks).share == share


def test_slice_grows_fourfold_at_most_and_shrinks_at_once() -> None:
    slices = SliceLength(0.001)
    slices.observe(64, 0.0)
    assert slices.records == 256
    slices.observe(256, 0.256)
    assert slices.records == 1
    slices.observe(0, 1.0)
    assert slices.records == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from([0.0, 1e-9, 1e-5, 0.1, 100])), max_size=30
    )
)
def test_slice_is_never_empty_nor_longer_than_the_longest(seen: list[tuple[int, float]]) -> None:
    slices = SliceLength(0.001)
    for records, seconds in seen:
        slices.observe(records, seconds)
        assert 1 <= slices.records <= SliceLength.LONGEST
