from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from streamcp.testing.loop import WaitsForever
from streamcp.testing.standing import StandingLoop

START = 1_700_000_000_000


async def note(times: list[float], seconds: float) -> None:
    await asyncio.sleep(seconds)
    times.append(asyncio.get_running_loop().time())


def test_time_stands_still_until_it_is_moved_and_timers_come_in_order() -> None:
    loop, times = StandingLoop(start_ms=START), list[float]()
    tasks = [loop.create_task(note(times, seconds)) for seconds in (3, 0, 1)]
    loop.advance(0)
    assert (times, loop.time()) == ([0.0], 0.0)
    loop.advance(2.5)
    assert (times, loop.time()) == ([0.0, 1.0], 2.5)
    assert loop.clock.wall_ms() == START + 2500
    loop.advance(0.5)
    assert (times, [task.done() for task in tasks]) == ([0.0, 1.0, 3.0], [True] * 3)
    loop.end()


def test_looks_at_the_clock_move_no_date_and_no_timer() -> None:
    loop = StandingLoop(start_ms=START)
    looks = [loop.clock.monotonic() for _ in range(100)]
    assert looks == sorted(set(looks))
    assert (loop.time(), loop.clock.wall_ms()) == (0.0, START)
    loop.end()


def test_whoever_waits_for_an_end_lets_time_pass() -> None:
    loop = StandingLoop(start_ms=START)
    loop.run(asyncio.sleep(3600))
    assert loop.time() == 3600
    loop.end()


def test_rest_comes_before_time_and_may_give_more_to_do() -> None:
    loop, rests, given = StandingLoop(start_ms=START), list[float](), asyncio.Event()

    def rest() -> bool:
        rests.append(loop.time())
        given.set()
        return len(rests) == 1

    loop.on_rest = rest
    waiting = loop.create_task(given.wait())
    loop.advance(5)
    assert waiting.done()
    assert rests == [0.0, 0.0]
    loop.end()


def test_wait_that_never_ends_is_an_error_and_leaves_the_loop_usable() -> None:
    loop = StandingLoop(start_ms=START)
    with pytest.raises(WaitsForever):
        loop.run(asyncio.Event().wait())
    loop.run(asyncio.sleep(1))
    loop.end()


async def test_loop_and_task_around_it_are_as_before_also_behind_an_error() -> None:
    outer, task, loop = asyncio.get_running_loop(), asyncio.current_task(), StandingLoop(start_ms=0)

    async def inner() -> None:
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is not task
        raise ValueError("inner")

    with pytest.raises(ValueError, match="inner"):
        loop.run(inner())
    assert (asyncio.get_running_loop(), asyncio.current_task()) == (outer, task)
    assert datetime.fromtimestamp(loop.clock.wall_ms() / 1000, UTC).year == 1970
    loop.end()
    await asyncio.sleep(0)
