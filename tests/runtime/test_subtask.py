"""Barriers through a running graph: every mode, escalation, cancellation, ends, and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, Gate, finish, settle, until


@dataclass
class Counter:
    seen: int = 0


class Graph:
    """Two sources, a keyed exchange of two subtasks that count, and a slow sink."""

    def __init__(self, records: int = 200) -> None:
        self.out: list[Any] = []
        self.gate: Gate | None = None

        async def write(records: Sequence[Any]) -> None:
            if self.gate is not None:
                await self.gate.pass_("write")
            self.out.extend(records)

        self.job = sc.Job("job", parallelism=2)
        first = self.job.source(sc.items([("a", i) for i in range(records)]), name="first")
        second = self.job.source(sc.items([("b", i) for i in range(records)]), name="second")
        (
            first.union(second)
            .key_by(lambda record: record[1] % 7)
            .process(_count, state=Counter, name="count")
            .sink(write, name="out", parallelism=2)
        )
        self.expected = sorted((n, key) for key in range(7) for n in _counts(records, key))


def _counts(records: int, key: int) -> range:
    return range(1, 2 * len(range(key, records, 7)) + 1)


def _count(record: tuple[str, int], counter: Counter, ctx: sc.KeyContext[int]) -> list[Any]:
    counter.seen += 1
    return [(counter.seen, ctx.key)]


async def check_restored(
    graph: Graph, engine: Engine, checkpoint_id: int, before: list[Any]
) -> None:
    graph.gate = None
    graph.out[:] = before
    await finish(engine.restored(checkpoint_id))
    assert sorted(graph.out) == graph.expected


def run_graph(capacity: int = 6) -> tuple[Graph, Engine]:
    graph = Graph()
    graph.gate = Gate()
    return graph, Engine(graph.job, capacity=capacity)


async def test_undisturbed_graph_gives_the_expected_output() -> None:
    graph = Graph()
    await finish(Engine(graph.job, capacity=6))
    assert sorted(graph.out) == graph.expected


@pytest.mark.parametrize("turns", range(0, 80, 7))
async def test_unaligned_cut_is_acknowledged_although_nothing_moves_any_more(turns: int) -> None:
    graph, engine = run_graph()
    assert graph.gate is not None
    async with engine.running():
        for turn in range(turns):
            if turn % 3 == 0:
                graph.gate.open()
            await asyncio.sleep(0)
        engine.trigger(1)
        before = list(graph.out)
        await engine.until_acknowledged(1)
    await check_restored(graph, engine, 1, before)


@pytest.mark.parametrize("turns", range(0, 80, 7))
async def test_aligned_cut_holds_no_in_flight_data_but_pending_writes_and_rests(turns: int) -> None:
    graph, engine = run_graph()
    gate = graph.gate
    assert gate is not None
    cut: dict[str, list[Any]] = {}
    async with engine.running():
        await settle(turns)
        engine.trigger(1, unaligned=False)
        while not engine.whole(1):
            gate.open()
            await asyncio.sleep(0)
    kinds = {kind for _, kind in engine.contents(1)}
    assert "channel" not in kinds
    del cut
    # What the sink wrote before its barrier is not known here; state and positions are.
    counted = sum(
        value.seen
        for (_, kind), frames in engine.contents(1).items()
        if kind == "state"
        for rows in frames
        for _, value, _ in rows
    )
    read = 0
    for (subtask, kind), frames in engine.contents(1).items():
        if kind == "position":
            read += sum(position for positions in frames for _, position, _ in positions)
        if kind == "rest":
            read -= sum(map(len, frames))
        del subtask
    assert counted == read


@pytest.mark.parametrize("turns", range(0, 60, 6))
@pytest.mark.parametrize("later", [0, 3, 11])
async def test_escalated_cut_is_whole_although_the_sink_stands_still(
    turns: int, later: int
) -> None:
    graph, engine = run_graph()
    assert graph.gate is not None
    async with engine.running():
        await settle(turns)
        engine.trigger(1, unaligned=False)
        for _ in range(later):
            graph.gate.open()
            await asyncio.sleep(0)
        engine.work_list.escalate(1)
        engine.work_list.escalate(1)
        await engine.until_acknowledged(1)
    # Exactly once in state: each key's counts go on where the cut was.
    graph.gate = None
    graph.out.clear()
    again = engine.restored(1)
    await finish(again)
    newest = {key: max(n for n, k in graph.out if k == key) for _, key in graph.out}
    assert all(newest[key] == _counts(200, key)[-1] for key in newest)
    assert len(set(graph.out)) == len(graph.out)


@pytest.mark.parametrize("turns", range(0, 40, 4))
@pytest.mark.parametrize("unaligned", [True, False])
async def test_cancelled_checkpoint_leaves_nothing_behind(turns: int, unaligned: bool) -> None:
    graph, engine = run_graph()
    gate = graph.gate
    assert gate is not None
    async with engine.running():
        await settle(10)
        engine.trigger(1, unaligned=unaligned)
        await settle(turns)
        if not engine.whole(1):
            engine.work_list.cancel(1)
        for subtask in engine.subtasks:
            assert not subtask.gate.blocked
            assert all(channel.capturing is None for channel in subtask.gate.channels)
            assert not subtask.gate.with_barrier(1) or engine.whole(1)
        engine.trigger(2)
        before = list(graph.out)
        await engine.until_acknowledged(2)
    await check_restored(graph, engine, 2, before)


async def test_checkpoints_one_after_another_capture_what_is_still_queued_again() -> None:
    graph, engine = run_graph()
    async with engine.running():
        await settle()
        engine.trigger(1)
        await engine.until_whole(1)
        engine.trigger(2)
        await engine.until_whole(2)
        before = list(graph.out)
    first, second = engine.contents(1), engine.contents(2)
    channels = {key: value for key, value in first.items() if key[1] == "channel"}
    assert channels
    assert {key: value for key, value in second.items() if key[1] == "channel"} == channels
    await check_restored(graph, engine, 2, before)


async def test_finished_subtasks_contribute_their_state_and_end_their_outputs_again() -> None:
    gate = Gate()

    @sc.source
    async def late(position: int = 0) -> Any:
        for value in range(position, 3):
            await gate.pass_(value)
            yield ("b", value), value + 1

    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job")
    early = job.source(sc.items([("a", 0), ("a", 1)]), name="early").map(
        lambda r: r, name="early-map"
    )
    counted = (
        early.union(job.source(late(), name="late"))
        .key_by(lambda record: 0)
        .process(_count, state=Counter, name="count")
    )
    counted.sink(write, name="out")
    engine = Engine(job)
    async with engine.running():
        await until(lambda: engine["early"].finished and len(out) == 2)
        engine.trigger(1, unaligned=False)
        await engine.until_acknowledged(1)
        assert engine.upward.acknowledged[1][engine["early"].id].finished
    again = engine.restored(1)
    assert again["early"].finished
    async with again.running():
        for value in range(3):
            await until(lambda n=value: n in gate.waiting)
            gate.open(value)
        await until(lambda: all(subtask.ended for subtask in again.subtasks))
    assert [n for n, _ in out] == [1, 2, 3, 4, 5]


async def test_draining_subtask_behind_finished_sources_is_triggered_itself() -> None:
    for unaligned in (True, False):
        graph, engine = Graph(records=4), None
        graph.gate = Gate()
        engine = Engine(graph.job, capacity=1000)
        async with engine.running():
            await settle()
            assert engine["first"].finished
            assert engine["second"].finished
            trigger = engine.trigger(1, unaligned=unaligned)
            assert engine["first"].id in trigger.finished
            if not unaligned:
                for _ in range(50):
                    graph.gate.open()
                    await asyncio.sleep(0)
            await engine.until_acknowledged(1)


async def test_failure_of_a_snapshot_declines_and_the_barrier_goes_on() -> None:
    graph, engine = run_graph()
    broken = engine["count"]

    def fail() -> Any:
        raise OSError("no memory")

    broken.own_sections = fail
    async with engine.running():
        await settle()
        engine.trigger(1)
        assert engine.upward.declined[0][:2] == ("count[0]", 1)
        assert "no memory" in engine.upward.declined[0][3]
        engine.work_list.cancel(1)
        del broken.own_sections
        engine.trigger(2)
        before = list(graph.out)
        await engine.until_acknowledged(2)
    await check_restored(graph, engine, 2, before)


async def test_stop_that_fails_lets_every_subtask_go_on() -> None:
    graph, engine = run_graph()
    assert graph.gate is not None
    async with engine.running():
        await settle()
        engine.trigger(1, stopping=True)
        assert all(subtask.held for subtask in engine.subtasks if not subtask.finished)
        graph.gate.open()
        await settle()
        written = len(graph.out)
        await settle()
        assert len(graph.out) == written
        engine.work_list.cancel(1)
        while not all(subtask.ended for subtask in engine.subtasks):
            graph.gate.open()
            await asyncio.sleep(0)
    assert sorted(graph.out) == graph.expected


@pytest.mark.parametrize("capacity", [1, 3, 1000])
async def test_cancellation_at_any_turn_loses_and_doubles_nothing(capacity: int) -> None:
    """All is in a channel, a hand, a rest or a pending list at every await (P15)."""
    for turns in range(0, 40 if capacity > 1 else 80, 2):
        graph = Graph(records=12)
        engine = Engine(graph.job, capacity=capacity)
        async with engine.running():
            await settle(turns)
        engine.trigger(1)
        before = list(graph.out)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(engine.snapshots.run())
            await engine.until_acknowledged(1)
            writing.cancel()
        graph.out[:] = before
        await finish(engine.restored(1))
        assert sorted(graph.out) == graph.expected, f"cancelled after {turns} turns"
