"""Steps whose state has fields that are stored one by one, plain, in calls, and across restores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Gate, settle, until


@dataclass
class Cart:
    items: sc.ListState[int] = field(default_factory=sc.ListState[int])
    counts: sc.MapState[str, int] = field(default_factory=sc.MapState)
    calls: int = 0


Action = tuple[int, str, int]  # key, what, with


def change(action: Action, cart: Cart) -> list[Any]:
    _, what, number = action
    cart.calls += 1
    match what:
        case "append":
            cart.items.append(number)
        case "shift":
            del cart.items[:1]
        case "count":
            cart.counts[str(number % 3)] = cart.counts.get(str(number % 3), 0) + 1
        case "clear":
            cart.items.clear()
        case "fail":
            cart.items.append(-1)
            cart.counts["failed"] = 1
            raise ValueError("on purpose")
    return [(action, [*cart.items], dict(cart.counts), cart.calls)]


def plain(action: Action, cart: Cart, ctx: sc.KeyContext[int]) -> list[Any]:
    return change(action, cart)


async def coroutine(action: Action, cart: Cart, ctx: sc.KeyContext[int]) -> list[Any]:
    found = change(action, cart)
    await asyncio.sleep(0)
    return found


def expected(actions: Sequence[Action]) -> list[Any]:
    carts: dict[int, tuple[list[int], dict[str, int], int]] = {}
    found: list[Any] = []
    for action in actions:
        key, what, number = action
        items, counts, calls = carts.get(key, ([], {}, 0))
        items, counts = [*items], dict(counts)
        match what:
            case "append":
                items.append(number)
            case "shift":
                items = items[1:]
            case "count":
                counts[str(number % 3)] = counts.get(str(number % 3), 0) + 1
            case "clear":
                items = []
            case "fail":
                continue
        carts[key] = items, counts, calls + 1
        found.append((action, items, counts, calls + 1))
    return found


class Bench:
    def __init__(self, kind: str, actions: Sequence[Action]) -> None:
        self.kind = kind
        self.actions = actions
        self.gate = Gate()
        self.out: list[Any] = []

    def job(self, p: int = 1) -> sc.Job:
        @sc.source
        async def source(position: int = 0) -> AsyncIterator[tuple[Action, int]]:
            for number in range(position, len(self.actions)):
                await self.gate.pass_(number)
                yield self.actions[number], number + 1
            await self.gate.pass_("end")

        async def write(records: Sequence[Any]) -> None:
            self.out += records

        job = sc.Job("job", types=[Cart])
        keyed = job.source(source(), name="source").key_by(lambda action: action[0])
        options: dict[str, Any] = {"name": "step", "parallelism": p, "on_error": "drop"}
        if self.kind == "plain":
            options["on_error"] = "fail"
        fn: Any = coroutine if self.kind == "coroutine" else plain
        step = keyed.process(fn, state=Cart, **options)
        step.rebalance().sink(write, name="out", parallelism=1)
        return job

    async def let_in(self, number: int) -> None:
        await until(lambda: number in self.gate.waiting)
        self.gate.open(number)
        await until(lambda: number + 1 in self.gate.waiting or "end" in self.gate.waiting)
        await settle(30)


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["append", "append", "shift", "count", "clear", "fail"]),
        st.integers(0, 9),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", ["plain", "coroutine", "on a copy"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, parallelism=st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_what_calls_see_equals_an_oracle_with_a_restore_after_every_record(
    kind: str, actions: list[Action], parallelism: list[int]
) -> None:
    if kind == "plain":  # there a failure is that of the job
        actions = [action for action in actions if action[1] != "fail"]
    bench = Bench(kind, actions)

    async def run() -> None:
        clock = ManualClock(tick=1e-6)
        engine = Engine(bench.job(), clock=clock)
        for number in range(len(actions)):
            async with engine.running():
                await bench.let_in(number)
                engine.trigger(1)
                await engine.until_acknowledged(1)
            engine = engine.restored(1, bench.job(parallelism[number]), clock=clock)

    asyncio.run(run())
    assert bench.out == expected(actions)


async def test_call_that_is_made_again_after_a_restore_finds_what_was_there_before_it() -> None:
    gate, out = Gate(), list[Any]()

    async def slow(number: int, cart: Cart, ctx: sc.KeyContext[int]) -> list[Any]:
        cart.items.append(number)
        await gate.pass_(number)
        return [[*cart.items]]

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Cart])
    keyed = job.source(sc.items([1, 2]), name="source").key_by(lambda number: 0)
    keyed.process(slow, state=Cart, name="step").sink(write, name="out")
    engine = Engine(job, clock=ManualClock(tick=1e-6))
    async with engine.running():
        await until(lambda: 1 in gate.waiting)
        gate.open(1)
        await until(lambda: 2 in gate.waiting)
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
        assert out == [[1]]
    again = engine.restored(1, clock=ManualClock(tick=1e-6))
    async with again.running():
        await until(lambda: 2 in gate.waiting)
        gate.open(2)
        await until(lambda: len(out) == 2)
    assert out == [[1], [1, 2]]
