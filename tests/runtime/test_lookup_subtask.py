"""Lookups in the tasks of a job: one call for all that ask for the same, and none for what is
known; exact at any cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.runners.life import first_cause
from streamcp.runners.view import task_views
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Gate, Outputs, cut, finish, moments, settle, until

KEYS = 7


@sc.source
async def numbers(position: int = 0, *, count: int) -> AsyncIterator[tuple[int, int]]:
    for number in range(position, count):
        if number % 5 == 0:
            await asyncio.sleep(0)
        yield number, number + 1


class Bench(Outputs):
    """Numbers that ask for their rest; `calls` counts the calls of each."""

    def __init__(
        self,
        source: sc.Source[int] | None = None,
        *,
        count: int = 60,
        parallelism: int = 1,
        combine: Any = None,
        key: Any = None,
        timed: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.calls: Counter[Any] = Counter()
        self.failing: set[Any] = set()
        self.slow: Gate | None = None
        self.count = count
        self.job = sc.Job("job", parallelism=parallelism)
        given = numbers(count=count) if source is None else source
        marks = sc.Watermarks[int](lambda number: number) if timed else None
        stream = self.job.source(given, name="numbers", parallelism=1, watermarks=marks)
        step = stream.rebalance().lookup(
            (lambda number: number % KEYS) if key is None else key,
            self.fetch,
            (lambda number, answer: (number, answer)) if combine is None else combine,
            name="look up",
            **options,
        )
        self.collect(step, diverts=options.get("on_error") == "divert")

    async def fetch(self, key: int) -> str | None:
        self.calls[key] += 1
        if self.slow is not None:
            await self.slow.pass_(key)
        else:
            for _ in range(key % 3):
                await asyncio.sleep(0)
        if key in self.failing:
            raise LookupError(f"nothing of {key}")
        return None if key == 3 else f"answer {key}"

    def expected(self) -> list[tuple[int, str | None]]:
        rests = [(number, number % KEYS) for number in range(self.count)]
        return [(number, None if rest == 3 else f"answer {rest}") for number, rest in rests]


def counted(engine: Engine) -> tuple[int, int]:
    """Hits and misses, as whoever looks at the job sees them."""
    steps = [step for task in task_views(engine.plan, engine.subtasks, 0.0) for step in task.steps]
    (step,) = (step for step in steps if step.name == "look up")
    return step.cache_hits, step.cache_misses


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("ordered", [True, False])
async def test_every_record_gets_its_answer_and_each_key_is_asked_for_once(
    ordered: bool, timed: bool
) -> None:
    bench = Bench(ordered=ordered, timed=timed)
    engine = Engine(bench.job)
    await finish(engine)
    assert (bench.out if ordered else sorted(bench.out)) == bench.expected()
    assert bench.calls == Counter(range(KEYS))
    assert counted(engine) == (60 - KEYS, KEYS)


async def test_subtasks_of_a_process_share_answers_and_questions() -> None:
    bench = Bench(parallelism=3, concurrency=2)
    gate = bench.slow = Gate()
    engine = Engine(bench.job)
    async with engine.running():
        await settle(200)
        assert bench.calls[0] == bench.calls[1] == 1
        bench.slow = None
        gate.open()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert sorted(bench.out) == bench.expected()
    assert bench.calls == Counter(range(KEYS))


async def test_answers_that_make_room_are_asked_for_again() -> None:
    bench = Bench(cache=2, concurrency=1)
    engine = Engine(bench.job, capacity=1)
    await finish(engine)
    assert bench.out == bench.expected()
    assert all(calls >= 1 for calls in bench.calls.values())
    hits, misses = counted(engine)
    assert (hits + misses, misses) == (60, sum(bench.calls.values()))


async def test_answer_is_asked_for_again_when_it_is_too_old() -> None:
    clock = ManualClock()

    @sc.source
    async def slowly(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for place in range(position, 3):
            yield 0, place + 1
            await settle(50)
            clock.advance(6)

    bench = Bench(slowly(), ttl="10s")
    engine = Engine(bench.job, clock=clock)
    await finish(engine)
    assert bench.calls == {0: 2}
    assert counted(engine) == (1, 2)


async def test_failure_is_that_of_all_who_wait_and_is_not_kept() -> None:
    @sc.source
    async def twice(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for place in range(position, 6):
            if place == 4:
                await until(lambda: len(bench.errors) == 4)
                bench.failing.clear()
            yield 0, place + 1

    bench = Bench(twice(), on_error="divert", retry=sc.Retry(attempts=2, backoff="1ms"))
    bench.failing = {0}
    await finish(Engine(bench.job))
    assert [failure.attempts for failure in bench.errors] == [2, 2, 2, 2]
    assert all("nothing of 0" in failure.error for failure in bench.errors)
    assert bench.out == [(0, "answer 0"), (0, "answer 0")]
    assert bench.calls == {0: 3}


async def test_failure_fails_the_job_where_it_is_not_diverted() -> None:
    bench = Bench()
    bench.failing = {5}
    with pytest.raises(BaseExceptionGroup) as caught:
        await finish(Engine(bench.job))
    cause = first_cause(caught.value)
    assert isinstance(cause, StepFailed)
    assert "'look up'" in str(cause)
    assert "nothing of 5" in str(cause)


@pytest.mark.parametrize("part", ["key", "combine"])
async def test_function_that_fails_is_the_failure_of_its_record_alone(part: str) -> None:
    def key(number: int) -> int:
        return 1 // (number - 30) if part == "key" else number % KEYS

    def combine(number: int, answer: str | None) -> tuple[int, str | None]:
        if part == "combine" and number in (2, 30):  # asking, and answered from the cache
            raise ZeroDivisionError(number)
        return number, answer

    bench = Bench(key=key, combine=combine, on_error="divert")
    await finish(Engine(bench.job))
    failed = sorted(failure.record for failure in bench.errors)
    assert failed == ([30] if part == "key" else [2, 30])
    assert sorted(number for number, _ in bench.out) == sorted({*range(60)} - {*failed})


async def test_what_is_known_does_not_wait_for_the_rate() -> None:
    bench = Bench(key=lambda number: 0, rate=sc.Rate(1, per="1h"))
    await finish(Engine(bench.job))
    assert bench.out == [(number, "answer 0") for number in range(60)]


async def test_what_is_known_does_not_wait_for_the_breaker() -> None:
    @sc.source
    async def failing(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for place in range(position, 9):
            if place == 5:
                await until(lambda: len(bench.errors) == 1)  # the breaker is open
            yield place, place + 1

    bench = Bench(
        failing(),
        key=lambda number: 5 if number == 4 else 0,
        breaker=sc.CircuitBreaker(failures=1, reset_after="1h"),
        on_error="divert",
    )
    bench.failing = {5}
    await finish(Engine(bench.job))
    assert sorted(number for number, _ in bench.out) == [0, 1, 2, 3, 5, 6, 7, 8]


async def test_service_comes_last_and_a_lambda_may_ask() -> None:
    class Service:
        async def ask(self, key: int) -> int:
            return key * 10

    def opens() -> Any:
        raise AssertionError("it is given")

    job = sc.Job("job")
    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    stream = job.source(sc.items(range(4)), name="numbers")
    stream.lookup(
        lambda number: number % 2,
        lambda key, service: service.ask(key),
        lambda number, answer: number + answer,
        uses=opens,
        name="look up",
    ).sink(write, name="out")
    await finish(Engine(job, services={opens: Service()}))
    assert out == [0, 11, 2, 13]


@dataclass
class Found:
    rows: list[tuple[int, str | None]] = field(default_factory=list)


def gather(row: tuple[int, str | None], found: Found, ctx: sc.KeyContext[int]) -> None:
    found.rows.append(row)


class Kept(Bench):
    """The same, whose rows are kept in a state, and so are in the snapshot."""

    def collect(self, step: sc.Step[Any, Any], *, diverts: bool) -> None:
        kept = step.key_by(lambda row: row[0] % 5).process(gather, state=Found, name="gather")
        kept.sink(sc.discard(), name="end")

    def rows(self, engine: Engine) -> list[tuple[int, str | None]]:
        return [
            row
            for subtask in engine.subtasks
            for run in subtask.chain._keyed.values()
            for entry in run.state.entries.values()
            for row in entry.value.rows
        ]


@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "aligned"])
@pytest.mark.parametrize("ordered", [True, False])
async def test_cut_at_any_moment_is_exact(unaligned: bool, ordered: bool) -> None:
    options: dict[str, Any] = {"concurrency": 2, "ordered": ordered, "cache": 3}
    for turns in moments(3, 60, 11):
        engine = Engine(Kept(parallelism=2, **options).job, capacity=6)
        await cut(engine, turns, unaligned=unaligned)
        for then in (2, 1, 3):
            again = Kept(parallelism=then, **options)
            restored = engine.restored(1, again.job, capacity=6)
            await finish(restored)
            assert sorted(again.rows(restored)) == again.expected()


async def test_those_that_wait_for_one_call_are_in_the_snapshot_and_share_one_again() -> None:
    bench = Kept(count=20, key=lambda number: 0)
    bench.slow = Gate()
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: engine["look up"].pending_count == 20)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = Kept(count=20, key=lambda number: 0)
    restored = engine.restored(1, again.job)
    await finish(restored)
    assert sorted(again.rows(restored)) == [(number, "answer 0") for number in range(20)]
    assert again.calls == {0: 1}
