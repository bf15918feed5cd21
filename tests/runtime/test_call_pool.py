"""The pool makes each call once, never more than `concurrency` at a time, and never loses a
worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from streamcp.config import Retry
from streamcp.graph.logical import Node, Place
from streamcp.observability.events import Event
from streamcp.operators.steps import AsyncOptions, MapStep
from streamcp.runtime import call_pool
from streamcp.runtime.blocking import BLOCKING
from streamcp.runtime.call_pool import CallPool
from streamcp.runtime.meters import StepMeter
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Gate, bare_context, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


class Calls:
    """Tickets that call `fn(ticket, attempt)`."""

    def __init__(self, fn: Callable[[Any, int], Awaitable[Any]]) -> None:
        self.fn = fn
        self.direct: Callable[[Any], Awaitable[Any]] | None = None
        self.in_place = False
        self.told = False
        self.wait_returned: Callable[[], Awaitable[None]] | None = None
        self.queue: deque[Any] = deque()
        self.results: list[tuple[Any, Any]] = []
        self.failures: list[tuple[Any, str, int]] = []
        self.running = 0
        self.most = 0

    @property
    def waiting(self) -> int:
        return len(self.queue)

    def tell(self) -> None:
        self.told = True

    def start(self) -> Any:
        return self.queue.popleft()

    async def call(self, ticket: Any, attempt: int) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.fn(ticket, attempt)
        finally:
            self.running -= 1

    def call_id(self, ticket: Any) -> str:
        return f"of {ticket}"

    def record_of(self, ticket: Any) -> tuple[Any, ...]:
        return (ticket,)

    def refill(self) -> bool:
        return False

    def succeeded(self, ticket: Any, result: Any) -> None:
        self.results.append((ticket, result))

    def failed(self, ticket: Any, error: Exception, attempts: int) -> None:
        self.failures.append((ticket, f"{type(error).__name__}: {error}", attempts))


class Bench:
    def __init__(self, fn: Callable[[Any, int], Awaitable[Any]], **options: Any) -> None:
        self.calls = Calls(fn)
        self.meter = StepMeter()
        self.events: list[Event] = []
        loop = asyncio.get_running_loop()
        clock = loop.clock if isinstance(loop, VirtualTimeLoop) else ManualClock(tick=1e-6)
        self.clock = clock
        node = Node(1, MapStep(echo), (), Place("job.py", 7), "step")
        context = bare_context(clock, self.events.append)
        made = AsyncOptions(**options)
        limits = context.limits_of("step", made.rates, made.breaker)
        self.pool = CallPool(
            self.calls, made, context, self.meter, node, limits, chance=lambda: 0.0
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            self.pool.begin(group)
            try:
                yield
            finally:
                self.pool.close()

    def add(self, *tickets: Any) -> None:
        self.calls.queue.extend(tickets)
        self.pool.wake()

    async def done(self, count: int) -> None:
        await until(lambda: len(self.calls.results) + len(self.calls.failures) == count)


async def echo(ticket: Any, attempt: int) -> Any:
    return ticket


async def test_calls_that_never_wait_are_all_made_in_order() -> None:
    bench = Bench(echo, concurrency=3)
    async with bench.running():
        bench.add(*range(5000))
        await bench.done(5000)
    assert [ticket for ticket, _ in bench.calls.results] == list(range(5000))


async def test_pool_that_was_held_up_watches_its_calls_for_a_while_and_not_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_pool, "MEASURED", 50)
    told_before: dict[int, int] = {}

    async def call(ticket: int, attempt: int) -> int:
        told_before[ticket] = len(bench.events)
        if ticket in (0, 200, 230):
            assert isinstance(bench.clock, ManualClock)
            bench.clock.advance(BLOCKING)
        return ticket

    bench = Bench(call, concurrency=1)
    async with bench.running():
        bench.add(*range(300))
        await bench.done(300)
    assert told_before[229] == 0, "the 200th call was still watched"
    assert told_before[231] == 1, "the 230th call was not watched"


async def test_waiting_calls_run_side_by_side_up_to_concurrency() -> None:
    gate = Gate()
    bench = Bench(lambda ticket, _: gate.pass_(ticket), concurrency=4)
    async with bench.running():
        bench.add(*range(10))
        await settle()
        assert gate.order == [0, 1, 2, 3]
        gate.open(2)
        await settle()
        assert gate.order == [0, 1, 2, 3, 4]
        while len(bench.calls.results) < 10:
            gate.open()
            await settle(5)
    assert bench.calls.most == 4
    assert sorted(ticket for ticket, _ in bench.calls.results) == list(range(10))


@pytest.mark.parametrize("pause", range(6))
async def test_calls_added_at_any_turn_are_made_without_another_wake(pause: int) -> None:
    async def waits(ticket: int, attempt: int) -> int:
        for _ in range(ticket % 3):
            await asyncio.sleep(0)
        return ticket

    bench = Bench(waits, concurrency=2)
    async with bench.running():
        for ticket in range(50):
            bench.add(ticket)
            for _ in range(pause):
                await asyncio.sleep(0)
        await bench.done(50)
    assert bench.calls.most <= 2


async def test_paused_pool_starts_nothing_until_it_is_woken() -> None:
    bench = Bench(echo, concurrency=2)
    async with bench.running():
        await settle()
        bench.pool.paused = True
        bench.add(1, 2)
        await settle()
        assert bench.calls.results == []
        bench.pool.paused = False
        bench.pool.wake()
        await bench.done(2)


@virtual_time
async def test_pool_paused_while_workers_are_being_woken_does_not_spin() -> None:
    bench = Bench(echo, concurrency=2)
    async with bench.running():
        await settle()
        bench.add(1, 2)
        bench.pool.paused = True
        await asyncio.sleep(1)  # it would never be over if something were always ready
        assert bench.calls.results == []
        bench.pool.paused = False
        bench.pool.wake()
        await bench.done(2)


async def test_failing_call_is_told_once_and_others_go_on() -> None:
    async def fails(ticket: int, attempt: int) -> int:
        if ticket == 1:
            raise ValueError("one")
        return ticket

    bench = Bench(fails, concurrency=1)
    async with bench.running():
        bench.add(0, 1, 2)
        await bench.done(3)
    assert bench.calls.failures == [(1, "ValueError: one", 1)]
    assert bench.calls.results == [(0, 0), (2, 2)]


async def test_failure_that_fails_the_job_ends_all_workers() -> None:
    bench = Bench(echo, concurrency=3)

    def fail(ticket: Any, result: Any) -> None:
        raise LookupError("the job fails")

    bench.calls.succeeded = fail  # type: ignore[method-assign]
    with pytest.RaisesGroup(LookupError):
        async with bench.running():
            bench.add(1)
            await asyncio.get_running_loop().create_future()


@virtual_time
async def test_call_beyond_timeout_is_cancelled_and_told() -> None:
    cancelled: list[Any] = []

    async def slow(ticket: float, attempt: int) -> str:
        try:
            await asyncio.sleep(ticket)
        except asyncio.CancelledError:
            cancelled.append(ticket)
            raise
        return "in time"

    bench = Bench(slow, concurrency=2, timeout=1.0)
    async with bench.running():
        bench.add(0.5, 2.0, 0.9, 3.0)
        await asyncio.sleep(5)
    assert cancelled == [2.0, 3.0]
    assert bench.calls.results == [(0.5, "in time"), (0.9, "in time")]
    assert [text for _, text, _ in bench.calls.failures] == [
        "TimeoutError: no result within 1 s"
    ] * 2


async def _swallow() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(100)
    return "too late"


async def _convert() -> str:
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        raise ValueError("connection reset") from None
    return "never"


async def _own_timeout() -> str:
    async with asyncio.timeout(50):
        await asyncio.sleep(100)
    return "never"


async def _tidy_up() -> str:
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(0.5)
    return "never"


@virtual_time
@pytest.mark.parametrize("reaction", [_swallow, _convert, _own_timeout, _tidy_up])
async def test_worker_survives_timeouts_whatever_the_coroutine_makes_of_them(
    reaction: Callable[[], Awaitable[Any]],
) -> None:
    async def call(ticket: str, attempt: int) -> Any:
        return await reaction() if ticket == "slow" else ticket

    bench = Bench(call, concurrency=1, timeout=1.0)
    async with bench.running():
        bench.add("slow", "slow", "slow", "fast")
        await asyncio.sleep(10)
    assert bench.calls.failures == [("slow", "TimeoutError: no result within 1 s", 1)] * 3
    assert bench.calls.results == [("fast", "fast")]


@virtual_time
async def test_timeout_error_of_user_code_is_its_own_failure() -> None:
    async def fails(ticket: int, attempt: int) -> None:
        raise TimeoutError("the database said so")

    bench = Bench(fails, concurrency=1, timeout=1.0)
    async with bench.running():
        bench.add(1)
        await bench.done(1)
    assert bench.calls.failures == [(1, "TimeoutError: the database said so", 1)]


@pytest.mark.parametrize(
    "options", [{}, {"timeout": 1.0}, {"retry": Retry(attempts=2, backoff="0s")}]
)
async def test_cancelled_error_of_user_code_is_a_failure_and_loses_no_worker(options: Any) -> None:
    async def odd(ticket: int, attempt: int) -> int:
        if ticket == 1:
            raise asyncio.CancelledError
        return ticket

    bench = Bench(odd, concurrency=1, **options)
    async with bench.running():
        bench.add(1, 2)
        await bench.done(2)
    assert bench.calls.results == [(2, 2)]
    assert [ticket for ticket, _, _ in bench.calls.failures] == [1]


@virtual_time
async def test_retries_wait_longer_each_time_and_are_counted() -> None:
    times: list[float] = []

    async def third(ticket: int, attempt: int) -> int:
        times.append(round(asyncio.get_running_loop().time(), 3))
        if attempt < 3:
            raise ValueError(attempt)
        return attempt

    bench = Bench(third, concurrency=1, retry=Retry(attempts=3, backoff="1s"))
    async with bench.running():
        bench.add(7)
        await bench.done(1)
    assert times == [0.0, 1.0, 3.0]
    assert bench.calls.results == [(7, 3)]
    assert bench.meter.retries == 2


@virtual_time
async def test_retries_end_after_their_number_and_only_for_the_named_errors() -> None:
    async def fails(ticket: int, attempt: int) -> int:
        raise (KeyError if ticket else ValueError)(attempt)

    bench = Bench(fails, concurrency=1, retry=Retry(attempts=3, backoff="1s", on=ValueError))
    async with bench.running():
        bench.add(0, 1)
        await bench.done(2)
    assert bench.calls.failures == [(0, "ValueError: 3", 3), (1, "KeyError: 1", 1)]


@virtual_time
async def test_each_attempt_has_its_own_timeout() -> None:
    async def second(ticket: int, attempt: int) -> int:
        await asyncio.sleep(5 if attempt == 1 else 0.9)
        return attempt

    bench = Bench(second, concurrency=1, timeout=1.0, retry=Retry(attempts=2, backoff="10s"))
    async with bench.running():
        bench.add(1)
        await asyncio.sleep(20)
    assert bench.calls.results == [(1, 2)]


@virtual_time
@pytest.mark.parametrize("options", [{}, {"timeout": 1000.0}])
async def test_cancellation_ends_the_pool_also_if_calls_swallow_it(options: Any) -> None:
    async def swallows(ticket: int, attempt: int) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return "anyway"

    bench = Bench(swallows, concurrency=2, **options)

    async def run() -> None:
        async with bench.running():
            bench.add(1)
            await asyncio.get_running_loop().create_future()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        await asyncio.sleep(1)
        task.cancel()
    assert bench.calls.running == 0


@virtual_time
@pytest.mark.parametrize("by", ["cancel", "failure"])
async def test_cleaning_up_of_a_cancelled_call_is_not_interrupted(by: str) -> None:
    cleaned: list[str] = []

    async def tidy(ticket: str, attempt: int) -> None:
        if ticket == "fail":
            raise ValueError
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            cleaned.append(ticket)

    bench = Bench(tidy, concurrency=2)

    def fail(ticket: Any, error: Exception, attempts: int) -> None:
        raise error

    bench.calls.failed = fail  # type: ignore[method-assign]

    async def run() -> None:
        async with bench.running():
            bench.add("tidy")
            await asyncio.sleep(1)
            if by == "failure":
                bench.add("fail")
            await asyncio.get_running_loop().create_future()

    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        task = group.create_task(_quietly(run()))
        await asyncio.sleep(2)
        if by == "cancel":
            task.cancel()
    assert cleaned == ["tidy"]


async def _quietly(work: Any) -> None:
    with suppress(BaseExceptionGroup):
        await work


async def test_closed_pool_ends_although_workers_are_idle() -> None:
    bench = Bench(echo, concurrency=3)
    async with bench.running():
        bench.add(1)
        await bench.done(1)
    assert bench.calls.results == [(1, 1)]
