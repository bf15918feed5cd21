import asyncio
import threading
import time

import anyio.to_thread
import pytest

from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop, WaitsForever, run_virtual


def test_long_sleep_takes_no_real_time_and_moves_clock() -> None:
    clock = ManualClock(start_ms=0)
    started = time.monotonic()

    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), clock=clock) == 86_400
    assert clock.wall_ms() == 86_400_000
    assert time.monotonic() - started < 60


def test_timers_fire_in_order_of_their_times() -> None:
    async def main() -> list[int]:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for delay in (3, 1, 2):
            loop.call_later(delay, fired.append, delay)
        await asyncio.sleep(4)
        return fired

    assert run_virtual(main()) == [1, 2, 3]


def test_advance_by_hand_fires_timers() -> None:
    clock = ManualClock()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        loop.call_later(5, fired.set_result, None)
        clock.advance(7)
        await fired
        return loop.time()

    assert run_virtual(main(), clock=clock) == 7


@pytest.mark.parametrize("kind", ["anyio", "executor"])
def test_time_stands_still_while_thread_works(kind: str) -> None:
    seen: list[float] = []
    go = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)

        def work() -> None:
            go.wait()
            seen.append(loop.time())

        # The thread goes on only when the loop has nothing to do but wait for it or jump.
        loop.call_later(0, lambda: threading.Timer(0.02, go.set).start())
        loop.call_later(100, lambda: None)
        if kind == "anyio":
            await anyio.to_thread.run_sync(work)
        else:
            await asyncio.to_thread(work)
        return loop.time()

    assert run_virtual(main(), clock=ManualClock()) == 0
    assert seen == [0]


def test_waiting_for_nothing_fails_and_names_tasks() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the waiting one")
        await asyncio.get_running_loop().create_future()

    with pytest.raises(WaitsForever, match="the waiting one"):
        run_virtual(main())


def test_loop_reading_own_clock_lets_shares_end() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        readings = 0
        until = loop.clock.monotonic() + 0.001
        while loop.clock.monotonic() < until:
            readings += 1
        return readings

    assert 900 <= run_virtual(main()) <= 1100
