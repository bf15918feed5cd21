"""State with a ttl in the tasks of a job: never seen too late, freed, restored, rescaled (P42)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import BuildError
from streamcp.operators.context import TimerClock
from streamcp.state.expiring import ExpiringState
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, Gate, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])

LIFE = 100
KINDS = ("plain", "coroutine", "thread", "connected", "on a copy")
CLOCKS: tuple[TimerClock, ...] = ("event", "processing")


@dataclass(frozen=True)
class Seen:
    key: str
    at: int


@dataclass
class Count:
    times: list[int] = field(default_factory=list)


def note(seen: Seen, count: Count, ctx: sc.KeyContext[str]) -> list[tuple[str, int, int]]:
    count.times.append(seen.at)
    return [(seen.key, seen.at, len(count.times))]


async def note_later(
    seen: Seen, count: Count, ctx: sc.KeyContext[str]
) -> list[tuple[str, int, int]]:
    await asyncio.sleep(0)
    return note(seen, count, ctx)


def key_of(seen: Seen) -> str:
    return seen.key


class Bench:
    """A job that gives each record with how often its key was seen; records are let in by
    number, one gate each."""

    def __init__(self, kind: str, clock: TimerClock, records: Sequence[Seen]) -> None:
        self.kind = kind
        self.clock = clock
        self.records = records
        self.out_of_orderness = "0s"
        self.gate = Gate()
        self.out: list[tuple[str, int, int]] = []

    def job(self, p: int = 1, ttl: Any = None) -> sc.Job:
        @sc.source
        async def source(position: int = 0) -> AsyncIterator[tuple[Seen, int]]:
            for number in range(position, len(self.records)):
                await self.gate.pass_(number)
                yield self.records[number], number + 1
            await self.gate.pass_("end")

        async def write(records: Sequence[Any]) -> None:
            self.out += records

        job = sc.Job("job", types=[Seen, Count])
        marks = None
        if self.clock == "event":
            marks = sc.Watermarks[Seen](lambda one: one.at, out_of_orderness=self.out_of_orderness)
        keyed = job.source(source(), name="source", watermarks=marks).key_by(key_of)
        options: Any = {"name": "step", "parallelism": p, "ttl": ttl or f"{LIFE}ms"}
        if self.kind == "connected":
            other: Any = job.source(sc.items([]), name="nothing", watermarks=marks).key_by(key_of)
            step = other.connect(keyed).process(note, note, state=Count, **options)
        else:
            fn: Any = note_later if self.kind == "coroutine" else note
            if self.kind == "thread":
                options["executor"] = "thread"
            elif self.kind == "on a copy":
                options["on_error"] = "drop"
            step = keyed.process(fn, state=Count, **options)
        step.rebalance().sink(write, name="out", parallelism=1)
        return job

    def engine(self, **options: Any) -> Engine:
        return Engine(self.job(), clock=ManualClock(tick=1e-6), **options)

    async def let_in(self, number: int) -> None:
        """Let a record in, and wait until it has come out."""
        await until(lambda: number in self.gate.waiting)
        self.gate.open(number)
        await until(lambda: len(self.out) == number + 1)
        await settle(30)  # the watermark behind it


def states(engine: Engine) -> list[ExpiringState]:
    return [expiry.state for one in engine.subtasks for expiry in one.chain._expiries]


def expected(records: Sequence[Seen], clock: TimerClock) -> list[tuple[str, int, int]]:
    """What a loop over all records gives. In event time a record is judged by the watermark that
    it comes behind, one less than the largest timestamp."""
    found: list[tuple[str, int, int]] = []
    live: dict[str, tuple[int, int]] = {}
    largest = -(2**62)
    for seen in records:
        now = largest - 1 if clock == "event" else seen.at
        count, updated = live.get(seen.key, (0, now))
        count = 0 if updated + LIFE <= now else count
        updated = max(updated, now, seen.at) if count else max(now, seen.at)
        live[seen.key] = (count + 1, updated)
        found.append((seen.key, seen.at, count + 1))
        largest = max(largest, seen.at)
    return found


RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, LIFE), st.integers(-30, 0)), max_size=12
)


def made_of(drawn: Sequence[tuple[str, int, int]], clock: TimerClock) -> list[Seen]:
    """Time passes from record to record; in event time they are out of order."""
    now, records = 1_700_000_000_000, []
    for key, passed, back in drawn:
        now += passed
        records.append(Seen(key, now + (back if clock == "event" else 0)))
    return records


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=RECORDS, parallelism=st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_what_is_seen_equals_an_oracle_with_a_restore_after_every_record_and_rescaling(
    kind: str, clock: TimerClock, drawn: list[tuple[str, int, int]], parallelism: list[int]
) -> None:
    records = made_of(drawn, clock)
    bench = Bench(kind, clock, records)

    async def run() -> None:
        wall = ManualClock(tick=1e-6, start_ms=1_700_000_000_000)
        engine = Engine(bench.job(), clock=wall)
        for number, seen in enumerate(records):
            if clock == "processing":
                wall.advance((seen.at - wall.wall_ms()) / 1000)
            async with engine.running():
                await bench.let_in(number)
                engine.trigger(1)
                await engine.until_acknowledged(1)
            again = bench.job(parallelism[number])
            engine = engine.restored(1, again, clock=wall)

    asyncio.run(run())
    assert bench.out == expected(records, clock)


@pytest.mark.parametrize("kind", KINDS)
async def test_state_without_date_lives_from_the_call_that_updates_it_before_the_first_watermark(
    kind: str,
) -> None:
    """It was kept where the stream had no watermarks."""
    late = 10 * LIFE
    records = [Seen("a", 0), Seen("a", late), Seen("b", late + 110), Seen("a", late + 111)]
    bench = Bench(kind, "processing", records)
    engine = bench.engine()
    async with engine.running():
        await bench.let_in(0)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    bench.clock, bench.out_of_orderness = "event", f"{LIFE + 50}ms"
    again = engine.restored(1, bench.job(), clock=ManualClock(tick=1e-6))
    async with again.running():
        for number in (1, 2, 3):
            await bench.let_in(number)
    assert [times for _, _, times in bench.out] == [1, 2, 1, 3]


@virtual_time
@pytest.mark.parametrize("kind", KINDS)
async def test_memory_is_freed_without_further_records(kind: str) -> None:
    records = [Seen(key, 0) for key in "abcdef"]
    bench = Bench(kind, "processing", records)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    engine = Engine(bench.job(), clock=loop.clock)
    async with engine.running():
        for number in range(len(records)):
            await bench.let_in(number)
        [state] = states(engine)
        assert len(state.entries) == 6
        await asyncio.sleep(0.11)
        assert len(state.entries) == state.index.count == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_memory_is_freed_by_the_watermark(kind: str) -> None:
    records = [*(Seen(key, 0) for key in "abcdef"), Seen("z", LIFE + 10)]
    bench = Bench(kind, "event", records)
    engine = bench.engine()
    async with engine.running():
        for number in range(len(records)):
            await bench.let_in(number)
        [state] = states(engine)
        await until(lambda: [*state.entries] == ["z"])
        assert state.index.count == 1


@pytest.mark.parametrize("clock", CLOCKS)
async def test_end_of_the_input_lets_nothing_expire_in_event_time(clock: TimerClock) -> None:
    records = [Seen("a", 0), Seen("b", 1)]
    bench = Bench("plain", clock, records)
    engine = bench.engine()
    async with engine.running():
        for number in range(len(records)):
            await bench.let_in(number)
        await until(lambda: "end" in bench.gate.waiting)
        bench.gate.open("end")
        await until(lambda: all(one.ended for one in engine.subtasks))
    [state] = states(engine)
    assert sorted(state.entries) == ["a", "b"]
    assert dict(state.copies()) == {"a": Count([0]), "b": Count([1])}


async def test_state_that_expires_during_a_call_is_what_the_call_makes_of_it() -> None:
    gate, out = Gate(), list[int]()

    async def slow(record: int, count: Count, ctx: sc.KeyContext[int]) -> list[int]:
        await gate.pass_(record)
        count.times.append(record)
        return [len(count.times)]

    async def write(records: Sequence[int]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Count])
    keyed = job.source(sc.items([1, 2, 3]), name="source").key_by(lambda record: 0)
    keyed.process(slow, state=Count, ttl="100ms", name="step").sink(write, name="out")
    clock = ManualClock(tick=1e-6)
    engine = Engine(job, clock=clock)
    async with engine.running():
        await until(lambda: 1 in gate.waiting)
        gate.open(1)
        await until(lambda: 2 in gate.waiting)
        clock.advance(1)
        await settle()
        gate.open(2)  # it began while the state was there
        await until(lambda: 3 in gate.waiting)
        await until(lambda: out == [1, 2])
        clock.advance(1)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out.clear()
    again = engine.restored(1, clock=clock)
    async with again.running():
        await until(lambda: 3 in gate.waiting)
        gate.open(3)
        await until(lambda: out == [1])


def fired(timestamp: int, count: Count, ctx: sc.KeyContext[str]) -> list[Any]:
    return [("timer", timestamp, list(count.times))]


async def fired_later(timestamp: int, count: Count, ctx: sc.KeyContext[str]) -> list[Any]:
    return fired(timestamp, count, ctx)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_timer_sees_the_state_that_was_there_at_its_time_and_a_fresh_one_after(
    kind: str,
) -> None:
    """One watermark makes both timers due: the state expires between them."""
    out: list[Any] = []

    def start(record: Seen, count: Count, ctx: sc.KeyContext[str]) -> None:
        count.times.append(record.at)
        if record.key == "a":
            ctx.set_timer(50)
            ctx.set_timer(50 + LIFE)

    async def start_later(record: Seen, count: Count, ctx: sc.KeyContext[str]) -> None:
        start(record, count, ctx)

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Seen, Count])
    marks = sc.Watermarks[Seen](lambda seen: seen.at)
    records = [Seen("a", 0), Seen("b", 10_000)]
    keyed = job.source(sc.items(records), name="source", watermarks=marks).key_by(key_of)
    options: Any = {"state": Count, "ttl": f"{LIFE}ms", "name": "step"}
    if kind == "plain":
        step: Any = keyed.process(start, on_timer=fired, **options)
    else:
        step = keyed.process(start_later, on_timer=fired_later, **options)
    step.sink(write, name="out")
    engine = Engine(job)
    async with engine.running():
        await until(lambda: all(one.ended for one in engine.subtasks))
    assert out == [("timer", 50, [0]), ("timer", 50 + LIFE, [])]


async def test_broadcast_function_sees_no_state_that_has_expired() -> None:
    found: list[dict[str, Count]] = []
    gate = Gate()

    @sc.source
    async def rules(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for number in range(position, 2):
            await gate.pass_(number)
            yield number, number + 1
        await gate.pass_("end")

    def on_record(seen: Seen, count: Count, shared: Count, ctx: sc.KeyContext[str]) -> None:
        count.times.append(seen.at)

    def look(rule: int, shared: Count, ctx: sc.BroadcastContext[str, Count]) -> None:
        found.append(dict(ctx.states()))

    job = sc.Job("job", types=[Seen, Count])
    keyed = job.source(sc.items([Seen("a", 1)]), name="source").key_by(key_of)
    both = keyed.connect(job.source(rules(), name="rules").broadcast())
    both.process(
        on_record, look, state=Count, broadcast_state=Count, ttl="100ms", name="step"
    ).sink(sc.discard(), name="out")
    clock = ManualClock(tick=1e-6)
    engine = Engine(job, clock=clock)
    async with engine.running():
        await until(lambda: 0 in gate.waiting)
        await settle()
        gate.open(0)
        await until(lambda: 1 in gate.waiting and len(found) == 1)
        clock.advance(0.1)
        gate.open(1)
        await until(lambda: len(found) == 2)
    assert found == [{"a": Count([1])}, {}]


async def test_processing_time_can_be_chosen_on_a_stream_with_watermarks() -> None:
    records = [Seen("a", 0), Seen("b", 10**9), Seen("a", 10**9)]
    bench = Bench("plain", "event", records)
    job = bench.job(ttl=sc.Ttl(f"{LIFE}ms", clock="processing"))
    clock = ManualClock(tick=1e-6)
    engine = Engine(job, clock=clock)
    async with engine.running():
        await bench.let_in(0)
        await bench.let_in(1)
        await bench.let_in(2)
    assert bench.out[-1] == ("a", 10**9, 2)


def test_ttl_in_event_time_without_watermarks_is_refused_and_names_the_remedy() -> None:
    bench = Bench("plain", "processing", [])
    job = bench.job(ttl=sc.Ttl("7d", clock="event"))
    with pytest.raises(BuildError, match=r"ttl in event time.*watermarks=sc.Watermarks"):
        job.validate(job.settings())


@pytest.mark.parametrize(
    ("ttl", "said"),
    [(7, "not a duration"), ("0s", "every state at once"), ("1x", "not a duration")],
)
def test_ttl_that_is_none_is_refused_where_it_is_written(ttl: Any, said: str) -> None:
    keyed = sc.Job("job").source(sc.items([Seen("a", 1)])).key_by(key_of)
    with pytest.raises(sc.DefinitionError, match=said):
        keyed.process(note, state=Count, ttl=ttl)


def test_ttl_of_a_step_without_state_per_key_is_refused() -> None:
    job = sc.Job("job")
    stream = job.source(sc.items([1]))
    both: Any = stream.connect(job.source(sc.items([1])).broadcast())
    with pytest.raises(sc.DefinitionError, match="needs state="):
        both.process(
            lambda record, shared: None, lambda r, s: None, broadcast_state=Count, ttl="1s"
        )
