"""Event time through the tasks of a job: watermarks, timers, restore (P15, P21, P42)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.elements import Batch, Watermark
from streamcp.errors import BuildError, RestoreRefused
from streamcp.runners.life import first_cause
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, Gate, cut, finish, moments, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])

WINDOW = 100
BOUND = 40
LATE = sc.Tag["Click"]("late")


@dataclass(frozen=True)
class Click:
    user: int
    ts: int


@dataclass
class Windows:
    counts: dict[int, int] = field(default_factory=dict)


@dataclass
class Found:
    windows: list[tuple[int, int]] = field(default_factory=list)


def clicks(split: int, count: int) -> list[Click]:
    """Out of order, but never by more than the bound."""
    return [Click(n % 5, n * 7 + (n * 17 + split * 5) % BOUND) for n in range(count)]


def add(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> list[Any]:
    assert ctx.timestamp == click.ts
    end = click.ts // WINDOW * WINDOW + WINDOW - 1
    if end <= ctx.watermark:
        ctx.emit_to(LATE, click)
        return []
    windows.counts[end] = windows.counts.get(end, 0) + 1
    ctx.set_timer(end)
    return []


def close(timestamp: int, windows: Windows, ctx: sc.KeyContext[int]) -> list[tuple[int, int, int]]:
    assert ctx.watermark >= timestamp == ctx.timestamp
    return [(ctx.key, timestamp, windows.counts.pop(timestamp))]


async def add_later(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> list[Any]:
    for _ in range(click.ts % 4):
        await asyncio.sleep(0)
    return add(click, windows, ctx)


async def close_later(
    timestamp: int, windows: Windows, ctx: sc.KeyContext[int]
) -> list[tuple[int, int, int]]:
    await asyncio.sleep(0)
    return close(timestamp, windows, ctx)


async def hop(click: Click) -> Click:
    for _ in range(click.ts % 3):
        await asyncio.sleep(0)
    return click


def gather(
    window: tuple[int, int, int], found: Found, ctx: sc.KeyContext[int]
) -> list[tuple[int, int, int]]:
    assert ctx.timestamp == window[1]
    found.windows.append(window[1:])
    return []


@sc.source(splits=lambda: range(2))
async def source(split: int, position: int = 0, *, count: int) -> AsyncIterator[tuple[Click, int]]:
    for number, click in enumerate(clicks(split, count)[position:], position):
        if number % 9 == 0:
            await asyncio.sleep(0)
        yield click, number + 1


KINDS = ("plain", "coroutines", "ordered map", "unordered map")


class Bench:
    """Windows per user, counted by event-time timers; what they give is kept in a state."""

    def __init__(self, kind: str = "plain", count: int = 60) -> None:
        self.late: list[Click] = []
        self.kind = kind
        self.count = count
        self.expected = Counter(
            (click.user, click.ts // WINDOW * WINDOW + WINDOW - 1)
            for split in range(2)
            for click in clicks(split, count)
        )

    def job(self, p: int = 2) -> sc.Job:
        job = sc.Job("job", types=[Click, Windows, Found], parallelism=p)
        marks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness=f"{BOUND}ms")
        stream: sc.Stream[Click] = job.source(
            source(count=self.count), name="source", watermarks=marks
        )
        if "map" in self.kind:
            ordered = self.kind == "ordered map"
            stream = stream.map(hop, name="hop", concurrency=3, ordered=ordered)
        keyed = stream.key_by(lambda click: click.user)
        if self.kind == "coroutines":
            step = keyed.process(
                add_later, state=Windows, on_timer=close_later, concurrency=3, name="windows"
            )
        else:
            step = keyed.process(add, state=Windows, on_timer=close, name="windows")
        step.side(LATE).rebalance().sink(self.write_late, name="late", parallelism=1)
        step.key_by(lambda window: window[0]).process(gather, state=Found, name="gather").sink(
            sc.discard(), name="end"
        )
        return job

    async def write_late(self, late: Sequence[Click]) -> None:
        self.late += late

    def check(self, engine: Engine) -> None:
        windows = [
            (key, end, count)
            for subtask in engine.subtasks
            for run in subtask.chain._keyed.values()
            if run.state.step == "gather"
            for key, entry in run.state.entries.items()
            for end, count in entry.value.windows
        ]
        found = {(key, end): count for key, end, count in windows}
        assert self.late == []
        assert found == self.expected
        assert len(windows) == len(found)


@pytest.mark.parametrize("kind", KINDS)
async def test_windows_close_by_watermarks_and_nothing_is_late(kind: str) -> None:
    bench = Bench(kind, 300)
    engine = Engine(bench.job())
    await finish(engine)
    bench.check(engine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "aligned"])
async def test_cut_at_any_moment_is_exact_in_event_time(kind: str, unaligned: bool) -> None:
    for turns in moments(3, 120, 29):
        bench = Bench(kind)
        engine = Engine(bench.job(2), capacity=6)
        await cut(engine, turns, unaligned=unaligned)
        for then in (2, 1, 3):
            again = engine.restored(1, bench.job(then), capacity=6)
            await finish(again)
            bench.check(again)


@pytest.mark.parametrize("kind", KINDS)
async def test_two_cuts_in_a_row_are_exact_in_event_time(kind: str) -> None:
    for turns in range(5, 60, 23):
        bench = Bench(kind)
        engine = Engine(bench.job(2), capacity=6)
        for then in (3, 2):
            async with engine.running():
                await settle(turns)
                engine.trigger(1)
                await engine.until_acknowledged(1)
            engine = engine.restored(1, bench.job(then), capacity=6)
        await finish(engine)
        bench.check(engine)


# ---- what a watermark waits for


def timed(records: Sequence[Click], **options: Any) -> tuple[sc.Job, sc.Stream[Click]]:
    job = sc.Job("job", types=[Click, Windows, Found])
    marks = sc.Watermarks[Click](lambda click: click.ts, **options)
    return job, job.source(sc.items(records), name="source", watermarks=marks)


def watermark_of(engine: Engine, name: str) -> int:
    time = engine[name].time
    assert time is not None
    return int(time.watermark)


@pytest.mark.parametrize("ordered", [True, False])
async def test_watermark_waits_for_the_calls_before_it_and_results_do_not_pass_it(
    ordered: bool,
) -> None:
    gate = Gate()
    seen: list[tuple[int, int]] = []

    async def wait(click: Click) -> Click:
        await gate.pass_(click.ts)
        return click

    def look(click: Click, found: Found, ctx: sc.KeyContext[int]) -> None:
        seen.append((click.ts, ctx.watermark))

    @sc.source
    async def slowly(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        for number in range(position, 3):
            yield Click(0, number * 10), number + 1
            await settle(20)

    job = sc.Job("job", types=[Click, Found])
    stream = job.source(slowly(), name="source", watermarks=sc.Watermarks(lambda c: c.ts))
    called = stream.map(wait, name="wait", concurrency=5, ordered=ordered)
    called.key_by(lambda c: c.user).process(look, state=Found, name="look").sink(
        sc.discard(), name="end"
    )
    engine = Engine(job)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 3)
        assert watermark_of(engine, "wait") < 0
        gate.open(20)
        await settle()
        assert seen == []  # 20 is behind the watermarks 9 and 19, which wait
        gate.open(0)
        await settle()
        assert watermark_of(engine, "wait") == -1
        gate.open(10)
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert [ts for ts, _ in seen] == [0, 10, 20]
    assert all(ts > watermark for ts, watermark in seen)


async def test_record_behind_a_watermark_waits_for_the_timers_of_its_key_and_others_do_not() -> (
    None
):
    gate = Gate()

    async def fn(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> list[str]:
        name = f"{click.user} at {click.ts}"
        await gate.pass_(name)
        if click.ts == 0:
            ctx.set_timer(5)
        return [name]

    async def fire(at: int, windows: Windows, ctx: sc.KeyContext[int]) -> list[str]:
        await gate.pass_(f"timer of {ctx.key}")
        return [f"timer of {ctx.key}"]

    @sc.source
    async def some(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        for number, click in enumerate([Click(1, 0), Click(9, 7), Click(1, 8), Click(2, 8)]):
            yield click, number + 1
            await settle(20)

    out: list[str] = []

    async def write(records: Sequence[str]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Click, Windows])
    stream = job.source(some(), name="source", watermarks=sc.Watermarks(lambda c: c.ts))
    step = stream.key_by(lambda c: c.user).process(
        fn, state=Windows, on_timer=fire, concurrency=8, name="step"
    )
    step.sink(write, name="out")
    engine = Engine(job)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 3)
        assert set(gate.waiting) == {"1 at 0", "9 at 7", "2 at 8"}
        gate.open("1 at 0")  # it sets a timer that the watermark 6 has made due
        await until(lambda: "timer of 1" in gate.waiting)
        assert "1 at 8" not in gate.waiting
        gate.open("timer of 1")
        await until(lambda: "1 at 8" in gate.waiting)
        assert watermark_of(engine, "step") <= 6
        gate.open()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    of_1 = [name for name in out if " 1" in name or name.startswith("1")]
    assert of_1 == ["1 at 0", "timer of 1", "1 at 8"]


# ---- timers


async def run_plain(
    records: Sequence[Click], fn: Any, fire: Any, **options: Any
) -> tuple[list[Any], Engine]:
    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job, stream = timed(records)
    step = stream.key_by(lambda c: c.user).process(
        fn, state=Windows, on_timer=fire, name="step", **options
    )
    step.sink(write, name="out")
    loop = asyncio.get_running_loop()
    clock = loop.clock if isinstance(loop, VirtualTimeLoop) else None
    engine = Engine(job, clock=clock)
    await finish(engine)
    return out, engine


async def test_deleted_timer_does_not_fire() -> None:
    def fn(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> None:
        if click.ts == 0:
            ctx.set_timer(50)
            ctx.set_timer(60)
        else:
            ctx.delete_timer(50)
            ctx.delete_timer(51)

    out, _ = await run_plain(
        [Click(1, 0), Click(1, 10)], fn, lambda at, windows, ctx: [(ctx.key, at)]
    )
    assert out == [(1, 60)]


async def test_timer_that_sets_the_next_ends_with_the_input() -> None:
    def fn(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(click.ts + 10)

    def tick(at: int, windows: Windows, ctx: sc.KeyContext[int]) -> list[int]:
        ctx.set_timer(at + 10)
        return [at]

    out, _ = await run_plain([Click(1, 0), Click(1, 35)], fn, tick)
    assert out[:3] == [10, 20, 30]
    assert len(out) <= 6


@virtual_time
@pytest.mark.parametrize("coroutines", [False, True])
async def test_timers_of_both_clocks_live_side_by_side(coroutines: bool) -> None:
    def fn(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="50ms")
        ctx.set_timer(0, clock="processing")  # long ago

    def fire(at: int, windows: Windows, ctx: sc.KeyContext[int]) -> list[tuple[int, bool]]:
        return [(at, ctx.timestamp == at)]

    async def fn_later(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> None:
        fn(click, windows, ctx)

    async def fire_later(at: int, windows: Windows, ctx: sc.KeyContext[int]) -> Any:
        return fire(at, windows, ctx)

    if coroutines:
        out, _ = await run_plain([Click(1, 7)], fn_later, fire_later, concurrency=2)
    else:
        out, _ = await run_plain([Click(1, 7)], fn, fire)
    assert sorted(out) == [(0, False), (57, True)]


async def test_event_timer_without_watermarks_names_both() -> None:
    def fn(click: Click, windows: Windows, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(5, clock="event")

    job = sc.Job("job", types=[Click, Windows])
    stream = job.source(sc.items([Click(1, 1)]), name="source")
    stream.key_by(lambda c: c.user).process(
        fn, state=Windows, on_timer=lambda at, windows, ctx: [], name="step"
    ).sink(sc.discard(), name="out")
    with pytest.raises(BaseExceptionGroup) as caught:
        await finish(Engine(job))
    assert "needs watermarks: give the source" in str(first_cause(caught.value))


# ---- idleness, and records ahead of the clock


@virtual_time
async def test_idle_split_holds_nothing_back_and_backpressure_is_not_idleness() -> None:
    @sc.source(splits=lambda: ["busy", "silent"])
    async def uneven(split: str, position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        yield Click(0, 0), 1
        if split == "silent":
            await asyncio.sleep(3600)
        for number in range(1, 10):
            yield Click(0, number * 1000), number + 1
            await asyncio.sleep(1)

    reached: list[int] = []

    def look(click: Click, found: Found, ctx: sc.KeyContext[int]) -> None:
        reached.append(ctx.watermark)

    job = sc.Job("job", types=[Click, Found])
    marks = sc.Watermarks[Click](lambda c: c.ts, idle_after="3s")
    stream = job.source(uneven(), name="source", watermarks=marks)
    stream.key_by(lambda c: c.user).process(look, state=Found, name="look").sink(
        sc.discard(), name="end"
    )
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    engine = Engine(job, clock=loop.clock)
    async with engine.running():
        await asyncio.sleep(2.5)
        assert watermark_of(engine, "source") == -1  # the silent one has announced no more
        engine["source"].held = True  # as if there were no room for a long time
        await asyncio.sleep(10)
        assert watermark_of(engine, "source") == -1
        engine["source"]._go_on()
        await asyncio.sleep(2)
        assert watermark_of(engine, "source") == -1
        await asyncio.sleep(2)
        assert watermark_of(engine, "source") >= 2999


async def test_records_too_far_ahead_leave_and_move_no_watermark() -> None:
    now = 1_800_000_000_000
    ahead: list[Click] = []
    here: list[Click] = []

    async def write_ahead(records: Sequence[Click]) -> None:
        ahead.extend(records)

    async def write(records: Sequence[Click]) -> None:
        here.extend(records)

    job = sc.Job("job", types=[Click])
    marks = sc.Watermarks[Click](lambda c: c.ts, max_ahead="1h")
    early, far = Click(1, 1000), Click(2, now + 10 * 3_600_000)
    stream = job.source(sc.items([early, far, early]), name="source", watermarks=marks)
    stream.ahead.sink(write_ahead, name="ahead")
    stream.sink(write, name="out")
    await finish(Engine(job))
    assert (here, ahead) == ([early, early], [far])


async def test_ahead_needs_a_bound() -> None:
    _, stream = timed([Click(1, 1)])
    with pytest.raises(sc.DefinitionError, match="max_ahead"):
        _ = stream.ahead


# ---- graphs


def test_streams_with_and_without_timestamps_cannot_be_united() -> None:
    job, stream = timed([Click(1, 1)])
    other = job.source(sc.items([Click(2, 2)]), name="other")
    stream.union(other).sink(sc.discard(), name="out")
    with pytest.raises(BuildError, match="whose records have none; give the source of the latter"):
        job.validate(job.settings())


async def test_broadcast_input_needs_no_event_time() -> None:
    @dataclass
    class Rules:
        known: int = 0

    job, stream = timed([Click(1, 1), Click(1, 500)])
    rules = job.source(sc.items([1, 2]), name="rules")
    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    def read(click: Click, shared: Rules) -> list[Any]:
        return [click]

    def learn(rule: int, shared: Rules) -> list[Any]:
        shared.known += rule
        return [rule]

    connected = stream.connect(rules.broadcast())
    step = connected.process(read, learn, broadcast_state=Rules, name="step")
    step.sink(write, name="out")
    engine = Engine(job)
    await finish(engine)
    assert sorted(map(str, out)) == sorted(map(str, [Click(1, 1), Click(1, 500), 1, 2]))


async def test_records_in_flight_without_timestamps_cannot_become_timed() -> None:
    gate = Gate()

    async def write(records: Sequence[Any]) -> None:
        await gate.pass_("write")

    def make(watermarks: Any) -> sc.Job:
        job = sc.Job("job", types=[Click])
        stream = job.source(sc.items([Click(1, n) for n in range(50)]), name="source", **watermarks)
        stream.sink(write, name="out")
        return job

    engine = Engine(make({}), capacity=5)
    async with engine.running():
        await until(lambda: "write" in gate.waiting)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    with pytest.raises(RestoreRefused, match="have no timestamps; since then the watermarks="):
        engine.restored(1, make({"watermarks": sc.Watermarks(lambda c: c.ts)}))


# ---- restore


async def test_key_groups_are_judged_by_what_their_old_subtask_had_reached() -> None:
    """I4: after a rescale nothing is newly late, and nothing newly on time."""
    job = Bench("plain", 1).job(2)
    engine = Engine(job)
    one, two = engine["windows[0]"].time, engine["windows[1]"].time
    for time, reached in ((one, 1000), (two, 2000)):
        assert time is not None
        for number in range(2):
            time.inputs.advance(number, reached)
        while time.work_off():
            pass
    async with engine.running():
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1, Bench("plain", 1).job(3))
    for index in range(3):
        time = again[f"windows[{index}]"].time
        assert time is not None
        assert time.watermark == 1000
        floors = time.floors_of("windows")
        assert floors[:64] == [1000] * 64
        assert floors[64:] == [2000] * 64
        time.reached(1500)
        assert (floors[0], floors[100]) == (1500, 2000)


async def test_captured_watermarks_come_back_between_the_records_they_were_between() -> None:
    gate = Gate()

    async def hold(click: Click) -> Click:
        await gate.pass_("hold")
        return click

    @sc.source
    async def marked(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        for number in range(position, 9):
            yield Click(1, number * 10), number + 1
            await settle(10)
        await asyncio.Event().wait()

    job = sc.Job("job", types=[Click])
    stream = job.source(marked(), name="source", watermarks=sc.Watermarks(lambda c: c.ts))
    stream.rebalance().map(hold, name="hold", concurrency=1, parallelism=1).sink(
        sc.discard(), name="out"
    )
    engine = Engine(job, capacity=1)
    async with engine.running():
        await until(lambda: "hold" in gate.waiting)
        await settle(200)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1, capacity=1)
    gate.open()
    queued = again["hold"].gate.channels[0].capture(lambda batch: None)
    assert queued[0] == Watermark(29)
    assert isinstance(queued[1], Batch)
    assert [ts for _, ts in queued[1].values] == [40]
