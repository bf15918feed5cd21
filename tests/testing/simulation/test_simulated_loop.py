import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamcp.testing.loop import WaitsForever
from streamcp.testing.simulation.clock import SimulatedClock
from streamcp.testing.simulation.loop import STYLES, SimulatedLoop, StepLimit, Style, task_label

Main = Callable[[], Coroutine[Any, Any, Any]]


def run(main: Main, *, seed: int = 0, style: Style = "shuffled", limit: int = 100_000) -> Any:
    rnd = random.Random(seed)
    loop = SimulatedLoop(rnd, SimulatedClock(rnd), style=style, limit=limit)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close_all()


async def _turns(log: list[str], name: str, count: int = 3) -> None:
    for number in range(count):
        log.append(f"{name}{number}")
        await asyncio.sleep(0)


async def _three() -> list[str]:
    log: list[str] = []
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(_turns(log, name), name=name)
    return log


@pytest.mark.parametrize("style", STYLES)
def test_same_seed_gives_the_same_order_of_tasks(style: Style) -> None:
    assert run(_three, seed=3, style=style) == run(_three, seed=3, style=style)


@pytest.mark.parametrize("style", ["shuffled", "held", "uneven"])
def test_other_seeds_give_other_orders_of_ready_tasks(style: Style) -> None:
    orders = {tuple(run(_three, seed=seed, style=style)) for seed in range(30)}
    assert len(orders) > 5


def test_style_asyncio_keeps_the_order_of_asyncio() -> None:
    expected = ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]
    assert all(run(_three, seed=seed, style="asyncio") == expected for seed in range(5))


@pytest.mark.parametrize("style", ["held", "uneven"])
def test_held_tasks_come_to_their_end_all_the_same(style: Style) -> None:
    for seed in range(20):
        assert len(run(_three, seed=seed, style=style)) == 9


def test_plain_callbacks_run_in_the_order_of_their_registration() -> None:
    async def main() -> list[int]:
        called: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(10):
            loop.call_soon(called.append, number)
        await asyncio.sleep(1)
        return called

    assert all(run(main, seed=seed) == list(range(10)) for seed in range(20))


def test_callbacks_of_one_future_and_the_task_that_waits_for_it_keep_their_order() -> None:
    async def main() -> list[str]:
        log: list[str] = []
        future = asyncio.get_running_loop().create_future()

        async def wait(name: str) -> None:
            await future
            log.append(name)

        future.add_done_callback(lambda _: log.append("first"))
        async with asyncio.TaskGroup() as group:
            group.create_task(wait("second"))
            await asyncio.sleep(1)
            group.create_task(wait("third"))
            await asyncio.sleep(1)
            future.add_done_callback(lambda _: log.append("fourth"))
            future.set_result(None)
        return log

    expected = ["first", "second", "third", "fourth"]
    assert all(run(main, seed=seed) == expected for seed in range(30))


def test_timers_fire_in_order_and_never_early() -> None:
    async def main() -> list[tuple[float, bool]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[float, bool]] = []

        def fire(delay: float, when: float) -> None:
            fired.append((delay, loop.time() >= when - 1e-8))

        for delay in (3.0, 1.0, 2.0):
            loop.call_at(loop.time() + delay, fire, delay, loop.time() + delay)
        await asyncio.sleep(86_400)
        return fired

    assert run(main) == [(1.0, True), (2.0, True), (3.0, True)]


def test_call_in_a_thread_is_made_inline_later_and_takes_virtual_time() -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        called: list[float] = []

        def work() -> str:
            called.append(loop.time())
            loop.thread_seconds += 7
            return "done"

        working = loop.run_in_executor(None, work)
        assert not called
        started = loop.time()
        result = await working
        return [result, len(called), 7 <= loop.time() - started < 8]

    assert run(main) == ["done", 1, True]


def test_error_of_a_call_in_a_thread_belongs_to_who_waits() -> None:
    async def main() -> None:
        await asyncio.to_thread(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        run(main)


def test_waiting_for_nothing_fails_and_names_the_tasks() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the waiting one")
        await asyncio.get_running_loop().create_future()

    with pytest.raises(WaitsForever, match="the waiting one"):
        run(main)


def test_going_round_in_circles_ends_at_the_limit() -> None:
    async def main() -> None:
        def again() -> None:
            asyncio.get_running_loop().call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(StepLimit, match="200"):
        run(main, limit=200)


def test_closing_cancels_what_is_left() -> None:
    cancelled: list[str] = []
    left: list[asyncio.Task[None]] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append("left")
            raise

    async def main() -> None:
        left.append(asyncio.get_running_loop().create_task(waits()))
        await asyncio.sleep(0.1)

    run(main)
    assert cancelled == ["left"]


def test_nameless_task_is_labelled_by_its_coroutine() -> None:
    async def main() -> list[str]:
        async with asyncio.TaskGroup() as group:
            named = group.create_task(_turns([], "a"), name="worker")
            nameless = group.create_task(_turns([], "b"))
        return [task_label(named), task_label(nameless)]

    assert run(main) == ["worker", "_turns"]


def test_task_group_cancels_its_tasks_in_the_same_order_in_every_run() -> None:
    """It keeps them in a set, whose order would follow from addresses."""

    async def main() -> list[int]:
        cancelled: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                cancelled.append(number)

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(wait(number))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await together()
        return cancelled

    kept = [object() for _ in range(1000)]
    orders = []
    for i in range(10):
        orders.append(run(main, style="asyncio"))
        del kept[i::7]  # other addresses are free
    assert all(order == orders[0] for order in orders)
