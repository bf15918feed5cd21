"""Sources of one `align=` group keep together, and nobody waits for ever or holds a barrier up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.runners.view import task_views
from streamcp.testing.running import run_job
from tests.runtime.engine import Engine, finish, settle, until

DRIFT = 50
SPLITS = {"slow": 1, "faster": 3, "fast": 10, "fastest": 20}
Seen = list[tuple[str, int]]


@sc.source
async def timed(
    position: int = 0, *, times: Sequence[int], waits: Sequence[float] = (0,)
) -> AsyncIterator[tuple[int, int]]:
    """Records are their timestamps; before each one comes a wait."""
    for number in range(position, len(times)):
        await asyncio.sleep(waits[number % len(waits)])
        yield times[number], number + 1


@sc.source(splits=lambda: SPLITS)
async def divided(split: str, position: int = 0) -> AsyncIterator[tuple[tuple[str, int], int]]:
    for number in range(position, 60):
        await asyncio.sleep(0)
        yield (split, number * SPLITS[split]), number + 1


def marks(drift: int = DRIFT, **options: Any) -> sc.Watermarks[int]:
    return sc.Watermarks(lambda at: at, align="group", max_drift=f"{drift}ms", **options)


def noting(name: str, seen: Seen) -> Callable[[int], None]:
    return lambda at: seen.append((name, at))


def together(sources: dict[str, Any], seen: Seen, drift: int = DRIFT, **options: Any) -> sc.Job:
    job = sc.Job("together")
    for name, source in sources.items():
        read = job.source(source, name=name, watermarks=marks(drift, **options))
        read.inspect(noting(name, seen)).sink(sc.discard(), name=f"{name} out")
    return job


def furthest_ahead(seen: Seen, names: Sequence[str]) -> int:
    """How far a record was ahead of the last one of the slowest source that was not at its end."""
    left = {name: sum(one == name for one, _ in seen) for name in names}
    reached = dict.fromkeys(names, 0)
    furthest = 0
    for name, at in seen:
        others = [reached[other] for other in names if left[other] and other != name]
        furthest = max(furthest, at - min(others, default=at))
        reached[name] = at
        left[name] -= 1
    return furthest


def fast_and_slow(count: int = 40) -> dict[str, Any]:
    return {
        "fast": timed(times=range(0, 10 * count, 10)),
        "slow": timed(times=range(count), waits=(0, 0, 0)),
    }


async def test_fast_source_stays_within_the_drift_of_the_slow_one() -> None:
    seen: Seen = []
    await finish(Engine(together(fast_and_slow(), seen)))
    assert len(seen) == 80
    assert furthest_ahead(seen, ["fast", "slow"]) <= DRIFT + 10 + 1


async def test_without_a_group_it_does_not() -> None:
    seen: Seen = []
    job = sc.Job("apart")
    for name, source in fast_and_slow().items():
        read = job.source(source, name=name, watermarks=sc.Watermarks(lambda at: at))
        read.inspect(noting(name, seen)).sink(sc.discard(), name=f"{name} out")
    await finish(Engine(job))
    assert furthest_ahead(seen, ["fast", "slow"]) > 2 * DRIFT


def of_splits(seen: Seen, parallelism: int) -> sc.Job:
    job = sc.Job("splits", parallelism=parallelism)
    watermarks = sc.Watermarks[tuple[str, int]](
        lambda record: record[1], align="splits", max_drift=f"{DRIFT}ms"
    )
    read = job.source(divided(), name="divided", watermarks=watermarks)
    read.inspect(seen.append).rebalance().sink(sc.discard(), name="out")
    return job


@pytest.mark.parametrize("parallelism", [1, 2, 4])
async def test_splits_keep_together_in_one_subtask_and_in_several(parallelism: int) -> None:
    seen: Seen = []
    await finish(Engine(of_splits(seen, parallelism)))
    assert len(seen) == 240
    # What is collected before a take-over is up to some records that came without a wait.
    assert furthest_ahead(seen, list(SPLITS)) <= DRIFT + 20 + 1


@pytest.mark.parametrize("then", [1, 2, 4])
async def test_cut_at_any_moment_and_restored_they_keep_together(then: int) -> None:
    for turns in range(2, 200, 37):
        seen: Seen = []
        engine = Engine(of_splits(seen, 2))
        async with engine.running():
            await settle(turns)
            engine.trigger(1)
            before = list(seen)
            await engine.until_acknowledged(1)
        seen[:] = before
        await finish(engine.restored(1, of_splits(seen, then)))
        assert sorted(seen) == sorted((s, n * SPLITS[s]) for s in SPLITS for n in range(60))
        assert furthest_ahead(seen, list(SPLITS)) <= DRIFT + 20 + 1


async def test_restored_source_that_had_ended_holds_nobody_back() -> None:
    seen: Seen = []
    sources = {"short": timed(times=[0, 1]), "long": timed(times=range(0, 3000, 10), waits=[0] * 9)}
    engine = Engine(together(sources, seen))
    async with engine.running():
        await until(lambda: engine["short"].finished)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1)
    assert again["short"].finished
    await finish(again)
    assert seen[-1] == ("long", 2990)


async def test_barrier_passes_while_a_source_waits_for_others() -> None:
    release = asyncio.Event()

    @sc.source
    async def held(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 0, 1
        await release.wait()
        yield 1000, 2

    seen: Seen = []
    job = together({"held": held(), "fast": timed(times=range(0, 1000, 10))}, seen)
    engine = Engine(job)
    async with engine.running():
        await until(lambda: engine["fast"].meter._waiting == "aligning")
        assert seen[-1][1] <= DRIFT + 10
        engine.trigger(1)
        await engine.until_acknowledged(1)
        view = {task.name: task for task in task_views(engine.plan, engine.subtasks, 1e9)}
        assert view["fast"].aligning > view["fast"].idle
        assert view["held"].aligning == 0
        release.set()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert len(seen) == 102


def test_idle_source_is_not_waited_for_and_counts_again_with_its_next_record() -> None:
    times, seen = range(0, 400, 10), list[tuple[str, int]]()
    sources = {
        "fast": timed(times=times),
        "sleeps": timed(times=[0, 200, 400], waits=(0, 5, 5)),
    }
    run_job(together(sources, seen, idle_after="1s"))
    assert len(seen) == 43
    assert seen.index(("sleeps", 200)) > seen.index(("fast", 390))


def test_source_that_waits_for_others_is_not_idle() -> None:
    seen: Seen = []
    sources = {
        "fast": timed(times=range(0, 200, 10)),
        "slow": timed(times=range(0, 200, 5), waits=(0.9,)),
    }
    run_job(together(sources, seen, idle_after="1s"))
    assert len(seen) == 60
    assert furthest_ahead(seen, ["fast", "slow"]) <= DRIFT + 10 + 1


async def test_drain_ends_a_source_that_waits_for_others() -> None:
    @sc.source
    async def silent(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 0, 1
        await asyncio.Event().wait()

    seen: Seen = []
    engine = Engine(together({"silent": silent(), "fast": timed(times=range(0, 990, 10))}, seen))
    async with engine.running():
        await until(lambda: engine["fast"].meter._waiting == "aligning")
        for subtask in engine.subtasks:
            subtask.drain()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))


# ---- whatever comes


STREAMS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 400), max_size=12),
        st.lists(st.sampled_from([0, 0, 0.001, 0.4, 3]), min_size=1, max_size=4),
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(STREAMS, st.integers(0, 300), st.sampled_from(["500ms", "2s"]), st.integers(0, 3))
def test_whatever_comes_everything_is_read(
    streams: list[tuple[list[int], list[float]]], drift: int, idle_after: str, seed: int
) -> None:
    seen: Seen = []
    sources = {f"s{n}": timed(times=times, waits=waits) for n, (times, waits) in enumerate(streams)}
    run_job(together(sources, seen, drift, idle_after=idle_after), seed=seed, style="shuffled")
    for n, (times, _) in enumerate(streams):
        assert [at for name, at in seen if name == f"s{n}"] == times
