"""Rates and circuit breakers of coroutine steps: calls wait, records are pending, barriers pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.observability.events import BreakerClosed, BreakerOpened
from streamcp.runners.life import first_cause
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, Outputs, until

# Everything here waits for time.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])


def now() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop.clock.now


class Service:
    """Notes when it is called with what; fails while it is down."""

    def __init__(self, *, down_until: float = 0.0) -> None:
        self.calls: list[tuple[float, Any]] = []
        self.down_until = down_until

    async def __call__(self, record: Any) -> Any:
        self.calls.append((round(now(), 2), record))
        await asyncio.sleep(0.01)
        if now() < self.down_until:
            raise ConnectionError("down")
        return record

    async def keyed(self, record: Any, state: list[Any], context: Any) -> list[Any]:
        return [await self(record)]

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.calls]


class Bench(Outputs):
    """A job whose one coroutine step calls `fn`."""

    def __init__(self, fn: Any, records: Sequence[Any], verb: str = "map", **options: Any) -> None:
        super().__init__()
        self.job = sc.Job("job")
        stream = self.job.source(sc.items(records), name="source").rebalance()
        if verb == "process":
            keyed = stream.key_by(lambda record: record)
            step: Any = keyed.process(fn.keyed, state=list, name="step", **options)
        else:
            step = getattr(stream, verb)(fn, name="step", **options)
        if verb != "for_each":
            self.collect(step, diverts=options.get("on_error") == "divert")

    def engine(self, **options: Any) -> Engine:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        return Engine(self.job, clock=loop.clock, **options)

    async def finish(self) -> Engine:
        engine = self.engine()
        await ended(engine)
        return engine


async def ended(engine: Engine) -> None:
    async with engine.running():
        while not all(subtask.ended for subtask in engine.subtasks):  # noqa: ASYNC110 - time passes
            await asyncio.sleep(0.05)


def spaced(times: Sequence[float], interval: float) -> bool:
    return all(b - a >= interval - 0.011 for a, b in pairwise(times))


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map", "for_each", "process"])
async def test_calls_of_every_verb_keep_to_the_rate(verb: str) -> None:
    service = Service()
    fn: Any = service
    if verb == "flat_map":

        async def fn(record: Any) -> list[Any]:
            return [await service(record)]

    await Bench(fn, range(1, 9), verb, rate=sc.Rate(2)).finish()
    assert [record for _, record in service.calls] == list(range(1, 9))
    assert service.times[-1] == pytest.approx(3.5, abs=0.05)
    assert spaced(service.times, 0.5)


async def test_burst_is_saved_up_and_then_used_at_once() -> None:
    service = Service()
    await Bench(service, range(5), rate=sc.Rate(1, burst=3)).finish()
    assert service.times == pytest.approx([0, 1, 2, 3, 4], abs=0.05)


async def test_several_rates_hold_together() -> None:
    service = Service()
    rates = [sc.Rate(10, burst=5), sc.Rate(60, per="1m")]
    await Bench(service, range(5), rate=rates).finish()
    assert service.times == pytest.approx([0, 1, 2, 3, 4], abs=0.05)


async def test_keys_are_limited_apart_and_order_is_kept() -> None:
    service = Service()
    records = ["a1", "a2", "a3", "b1", "b2", "c1"]
    bench = Bench(service, records, rate=sc.Rate(1, key=lambda record: record[0]))
    await bench.finish()
    assert bench.out == records
    at = {record: when for when, record in service.calls}
    assert [at["a1"], at["b1"], at["c1"]] == pytest.approx([0, 0, 0], abs=0.05)
    assert [at["a2"], at["b2"], at["a3"]] == pytest.approx([1, 1, 2], abs=0.05)


async def test_subtasks_share_the_rate_of_their_step() -> None:
    service = Service()
    await Bench(service, range(8), rate=sc.Rate(4), parallelism=3).finish()
    assert service.times[-1] == pytest.approx(7 * 0.25, abs=0.05)
    assert spaced(service.times, 0.25)


async def test_further_attempts_count_as_calls() -> None:
    service = Service(down_until=1.2)
    retry = sc.Retry(attempts=9, backoff="1ms", maximum="1ms")
    bench = Bench(service, range(3), rate=sc.Rate(2), retry=retry)
    await bench.finish()
    assert bench.out == [0, 1, 2]
    assert spaced(service.times, 0.5)


async def test_records_that_wait_for_the_rate_are_pending_and_no_barrier_waits() -> None:
    service = Service()
    bench = Bench(service, range(6), rate=sc.Rate(1, per="1m"))
    engine = bench.engine()
    async with engine.running():
        await until(lambda: len(bench.out) == 1)
        engine.trigger(1, unaligned=False)
        await engine.until_whole(1)
        assert now() < 1
    statuses = [status for status, _ in engine.contents(1)["step[0]", "pending"][0]]
    assert statuses == [0] * 5

    service.calls.clear()
    restored = engine.restored(1, clock=engine.clock)
    await ended(restored)
    assert [record for _, record in service.calls] == [1, 2, 3, 4, 5]
    assert service.times[0] < 1, "a restart begins with room for one call"
    assert service.times[-1] == pytest.approx(4 * 60, abs=1)


async def test_key_function_that_fails_fails_the_record() -> None:
    def key(record: int) -> int:
        if record == 1:
            raise ValueError("no key")
        return record

    service = Service()
    bench = Bench(service, range(3), rate=sc.Rate(1, key=key), on_error="divert")
    await bench.finish()
    assert bench.out == [0, 2]
    [failure] = bench.errors
    assert (failure.record, failure.error, failure.attempts) == (1, "ValueError: no key", 0)

    with pytest.raises(ExceptionGroup) as caught:
        await Bench(service, range(3), rate=sc.Rate(1, key=key)).finish()
    assert isinstance(first_cause(caught.value), StepFailed)


# ---- circuit breaker

PATIENT = sc.Retry(attempts=50, backoff="10ms", maximum="10ms")


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_breaker_leaves_the_service_alone_until_a_probe_succeeds(parallelism: int) -> None:
    service = Service(down_until=25.0)
    breaker = sc.CircuitBreaker(failures=5, reset_after="10s")
    bench = Bench(
        service, range(40), breaker=breaker, retry=PATIENT, concurrency=4, parallelism=parallelism
    )
    engine = await bench.finish()
    assert sorted(bench.out) == list(range(40))
    early = [at for at in service.times if at < 9]
    assert 5 <= len(early) < 5 + 4 * parallelism
    probes = [at for at in service.times if 9 < at < 29]
    assert probes == pytest.approx([10, 20], abs=0.2)
    kinds = [type(event) for event in engine.events]
    assert kinds == [BreakerOpened, BreakerOpened, BreakerOpened, BreakerClosed]
    opened = engine.events[0]
    assert isinstance(opened, BreakerOpened)
    assert (opened.step, opened.error) == ("step", "ConnectionError: down")
    assert opened.pause == pytest.approx(10, abs=0.01)


async def test_errors_that_do_not_count_never_open_the_breaker() -> None:
    async def fails(record: int) -> int:
        raise KeyError(record)

    breaker = sc.CircuitBreaker(failures=1, on=ConnectionError)
    bench = Bench(fails, range(30), breaker=breaker, on_error="divert")
    engine = await bench.finish()
    assert len(bench.errors) == 30
    assert engine.events == []


async def test_barrier_passes_while_the_breaker_is_open() -> None:
    service = Service(down_until=1e6)
    breaker = sc.CircuitBreaker(failures=2, reset_after="1h")
    bench = Bench(service, range(6), breaker=breaker, retry=PATIENT, concurrency=2)
    engine = bench.engine()
    async with engine.running():
        await until(lambda: engine.events)
        engine.trigger(1, unaligned=False)
        await engine.until_whole(1)
        assert now() < 10
    service.down_until = 0.0
    service.calls.clear()
    await ended(engine.restored(1, clock=engine.clock))
    assert bench.out == list(range(6))
