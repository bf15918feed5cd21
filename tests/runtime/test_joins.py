"""Joins through the tasks of a job: cut at any moment, restored, with records on their way divided
anew. Nothing is late, so the rows are those of plain loops over all records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, cut, finish, moments, settle

BOUND = 40
BEFORE, AFTER = 15, 10
TOLERANCE = 30
SIZE = 40


@dataclass(frozen=True)
class Record:
    side: str
    key: int
    ts: int
    number: int


@dataclass
class Found:
    rows: list[tuple[Any, int]] = field(default_factory=list)


Left = sc.KeyedStream[int, Record]
Rows = Counter[tuple[Any, ...]]


def records(side: str, count: int) -> list[Record]:
    """Out of order, but never by more than the bound; of five keys, some on one side only."""
    keys = 4 if side == "left" else 5
    shift = 3 if side == "left" else 11
    return [Record(side, n * 3 % keys, n * 7 + (n * 17 + shift) % BOUND, n) for n in range(count)]


@sc.source(splits=lambda: range(2))
async def reading(
    split: int, position: int = 0, *, side: str, count: int
) -> AsyncIterator[tuple[Record, int]]:
    own = records(side, count)[split::2]
    for number, record in enumerate(own[position:], position):
        if number % (3 if side == "left" else 4) == 0:
            await asyncio.sleep(0)
        yield record, number + 1


def shown(left: Record | None, right: Record | None) -> tuple[int, int]:
    return (left.number if left else -1), (right.number if right else -1)


def interval(how: Any) -> Callable[[Left, Left], sc.Stream[Any]]:
    return lambda left, right: left.join(
        right, shown, before=f"{BEFORE}ms", after=f"{AFTER}ms", how=how, name="join"
    )


def interval_rows(how: str, lefts: list[Record], rights: list[Record]) -> Rows:
    pairs = [
        (one, other)
        for one in lefts
        for other in rights
        if one.key == other.key and one.ts - BEFORE <= other.ts <= one.ts + AFTER
    ]
    met = {record for both in pairs for record in both}
    rows = Counter((shown(one, other), max(one.ts, other.ts)) for one, other in pairs)
    if how in ("left", "outer"):
        rows.update((shown(one, None), one.ts + AFTER) for one in lefts if one not in met)
    if how in ("right", "outer"):
        rows.update((shown(None, other), other.ts + BEFORE) for other in rights if other not in met)
    return rows


def shown_by_time(left: Record, right: Record | None) -> tuple[int, int]:
    """Which of equally new ones is met depends on the order of the splits."""
    return left.number, (right.ts if right else -1)


def asof(how: Any) -> Callable[[Left, Left], sc.Stream[Any]]:
    return lambda left, right: left.join_asof(
        right, shown_by_time, tolerance=f"{TOLERANCE}ms", how=how, name="join"
    )


def asof_rows(how: str, lefts: list[Record], rights: list[Record]) -> Rows:
    rows: Rows = Counter()
    for one in lefts:
        fitting = [
            other
            for other in rights
            if one.key == other.key and one.ts - TOLERANCE <= other.ts <= one.ts
        ]
        newest = max(fitting, key=lambda other: other.ts, default=None)
        if newest is not None or how == "left":
            rows[shown_by_time(one, newest), one.ts] += 1
    return rows


def windows(how: Any) -> Callable[[Left, Left], sc.Stream[Any]]:
    return lambda left, right: (
        left.window(sc.Sliding(f"{SIZE}ms", f"{SIZE // 2}ms"), name="join")
        .join(right, shown, how=how)
        .map(lambda result: (result.key, result.start, result.value))
    )


def window_rows(how: str, lefts: list[Record], rights: list[Record]) -> Rows:
    rows: Rows = Counter()
    for start in range(-SIZE, 2000, SIZE // 2):
        for key in range(5):
            here = [
                [one for one in side if one.key == key and start <= one.ts < start + SIZE]
                for side in (lefts, rights)
            ]
            pairs = [shown(one, other) for one in here[0] for other in here[1]]
            if not here[1] and how in ("left", "outer"):
                pairs = [shown(one, None) for one in here[0]]
            if not here[0] and how in ("right", "outer"):
                pairs = [shown(None, other) for other in here[1]]
            rows.update(((key, start, both), start + SIZE - 1) for both in pairs)
    return rows


@dataclass(frozen=True)
class Kind:
    """How a join is described, and what it makes of all records."""

    describe: Callable[[Left, Left], sc.Stream[Any]]
    rows: Callable[[list[Record], list[Record]], Rows]


def _kinds() -> dict[str, Kind]:
    hows = ("inner", "left", "right", "outer")
    intervals = {
        f"interval {how}": Kind(interval(how), partial(interval_rows, how)) for how in hows
    }
    asofs = {f"asof {how}": Kind(asof(how), partial(asof_rows, how)) for how in hows[:2]}
    shared = {f"windows {how}": Kind(windows(how), partial(window_rows, how)) for how in hows}
    return intervals | asofs | shared


KINDS = _kinds()


def gather(row: Any, found: Found, ctx: sc.KeyContext[int]) -> list[Any]:
    found.rows.append((row, ctx.timestamp))
    return []


class Bench:
    """Two sources, a join, and a step that keeps its rows with their timestamps in its state."""

    def __init__(self, kind: str, left: int = 50, right: int = 60) -> None:
        self.kind = KINDS[kind]
        self.counts = {"left": left, "right": right}

    def job(self, parallelism: int = 2) -> sc.Job:
        job = sc.Job("job", types=[Record, Found], parallelism=parallelism)
        left, right = (
            job.source(
                reading(side=side, count=count),
                name=side,
                watermarks=sc.Watermarks[Record](lambda r: r.ts, out_of_orderness=f"{BOUND}ms"),
            ).key_by(lambda record: record.key)
            for side, count in self.counts.items()
        )
        joined = self.kind.describe(left, right)
        joined.key_by(hash).process(gather, state=Found, name="gather").sink(
            sc.discard(), name="end"
        )
        return job

    def check(self, engine: Engine) -> None:
        found = [
            row
            for subtask in engine.subtasks
            for run in subtask.chain._keyed.values()
            if run.state.step == "gather"
            for entry in run.state.entries.values()
            for row in entry.value.rows
        ]
        expected = self.kind.rows(*(records(*one) for one in self.counts.items()))
        assert Counter(found) == expected
        assert all(not run.dropped for subtask in engine.subtasks for run in _meters(subtask))


def _meters(subtask: Any) -> list[Any]:
    return list(subtask.chain.meters.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("left", "right"), [(150, 170), (40, 0), (0, 40)])
async def test_rows_are_those_of_loops_over_all_records(kind: str, left: int, right: int) -> None:
    bench = Bench(kind, left, right)
    engine = Engine(bench.job())
    await finish(engine)
    bench.check(engine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "aligned"])
async def test_cut_at_any_moment_is_exact(kind: str, unaligned: bool) -> None:
    for turns in moments(3, 90, 29):
        bench = Bench(kind)
        engine = Engine(bench.job(2), capacity=6)
        await cut(engine, turns, unaligned=unaligned)
        for then in (2, 1, 3):
            again = engine.restored(1, bench.job(then), capacity=6)
            await finish(again)
            bench.check(again)


@pytest.mark.parametrize("kind", ["interval outer", "asof left", "windows outer"])
async def test_records_on_their_way_are_divided_anew_when_the_join_is_rescaled(kind: str) -> None:
    bench = Bench(kind, 200, 200)
    engine = Engine(bench.job(2), capacity=20)
    async with engine.running():
        for index in range(2):
            engine[f"join[{index}]"].held = True  # as if there were no room for a long time
        await settle(60)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    on_their_way = [
        section.records
        for subtask, section in engine.disk.written[1]
        if subtask.task == "join" and section.kind == "channel"
    ]
    assert sum(on_their_way) > 20
    for then in (3, 1, 5):
        again = engine.restored(1, bench.job(then), capacity=20)
        await finish(again)
        bench.check(again)
