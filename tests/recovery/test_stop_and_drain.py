"""Both kinds of stop, at any moment and in every mode, and stops that fail (rule P33)."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import streamcp as sc
from streamcp.config import EXACTLY_ONCE_MODES, MODES
from streamcp.durable_files import LOCAL_FILES
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from tests.recovery.test_failing_checkpoints import FailingDisk
from tests.recovery.world import Target, copy_directory, run_job, staged, transactional

Row = tuple[str, int]
# The silent source ends by itself only then: a drain must not wait for it.
LATE = 2.0
LENGTHS = {"tick": 60, "part0": 20, "part1": 25, "part2": 30}


class Outside(Target):
    """A target, and what an at-least-once sink has written."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: list[Any] = []

    def copy(self) -> Outside:
        twin = Outside()
        twin.open = {name: list(records) for name, records in self.open.items()}
        twin.prepared = set(self.prepared)
        twin.committed = dict(self.committed)
        return twin


@sc.source
async def ticks(position: int = 0) -> AsyncIterator[tuple[Row, int]]:
    for i in range(position, LENGTHS["tick"]):
        if i % 3 == 0:
            await asyncio.sleep(0.01)
        yield ("tick", i), i + 1


@sc.source(splits=lambda: [0, 1, 2], batches=True)
async def parts(split: int, position: int = 0) -> AsyncIterator[tuple[Sequence[Row], int]]:
    count = LENGTHS[f"part{split}"]
    for i in range(position, count, 3):
        await asyncio.sleep(0.007 * split)
        end = min(i + 3, count)
        yield [(f"part{split}", j) for j in range(i, end)], end


@sc.source
async def silent(position: int = 0) -> AsyncIterator[tuple[Row, int]]:
    await asyncio.sleep(LATE)
    for _ in ():
        yield ("silent", 0), 0


@dataclass
class Seen:
    numbers: set[int] = field(default_factory=set)


def note(row: Row, state: Seen, ctx: sc.KeyContext[str]) -> list[Any]:
    twice = row[1] in state.numbers
    state.numbers.add(row[1])
    ctx.set_timer(ctx.timestamp + 1_000_000)  # never due in a test: an end must not fire it
    return [(row[0], row[1], "twice" if twice else "once")]


def fire(timestamp: int, state: Seen, ctx: sc.KeyContext[str]) -> list[Any]:
    return [(ctx.key, timestamp, "timer")]


async def slowly(row: Row) -> Row:
    await asyncio.sleep(0.004)
    return row


def draw(
    directory: Path, sink: Any, mode: Any, check: Callable[[Row], Row] = lambda row: row
) -> sc.Job:
    job = sc.Job(
        "ending",
        checkpoints=sc.Checkpoints(
            to=directory,
            every="40ms",
            mode=mode,
            alignment_timeout="5ms",
            max_concurrent=2 if mode == "aligned" else 1,
        ),
        channel_capacity=5,
        restart=sc.Restart.fixed_delay(attempts=20, delay="10ms"),
    )
    read = job.source(ticks(), name="ticks").union(
        job.source(parts(), name="parts", parallelism=2),
        job.source(silent(), name="silent"),
    )
    called = read.rebalance().map(check).map(slowly, name="slowly", concurrency=3)
    noted = called.key_by(lambda row: row[0]).process(
        note, state=Seen, on_timer=fire, name="note", parallelism=2
    )
    noted.sink(sink, name="out", parallelism=2)
    return job


def sink_of(mode: str, target: Outside, make: Any = transactional) -> Any:
    if mode != "at_least_once":
        return make(target)

    async def write(records: Sequence[Any]) -> None:
        target.plain.extend(records)

    return write


def rows(target: Outside) -> list[Any]:
    return [tuple(row) for row in target.records("out") or target.plain]


def lengths_read(found: list[Any]) -> dict[str, int]:
    """How much of each source came; whatever came is a whole beginning, each record once."""
    read: dict[str, int] = {}
    for origin in LENGTHS:
        numbers = Counter(row[1] for row in found if row[0] == origin)
        assert numbers == Counter(range(len(numbers))), origin
        read[origin] = len(numbers)
    assert {row[2] for row in found} <= {"once"}
    return read


def moments(count: int) -> list[tuple[str, float]]:
    """For each mode the beginning, and moments of its own."""
    rnd = random.Random(7)
    drawn = ((mode, round(rnd.random() * 0.3, 4)) for mode in MODES for _ in range(count - 1))
    return sorted([*((mode, 0.0) for mode in MODES), *drawn])


@pytest.mark.parametrize(("mode", "moment"), moments(3))
def test_drained_job_is_finished_for_good_with_all_that_was_read(
    tmp_path: Path, mode: str, moment: float
) -> None:
    target = Outside()
    results = []

    async def drain(handle: JobHandle) -> None:
        await asyncio.sleep(moment)
        begun = asyncio.get_running_loop().time()
        results.append(await handle.stop(drain=True))
        assert asyncio.get_running_loop().time() - begun < LATE / 2
        assert await handle.stop(drain=True) == results[0]

    result = run_job(draw(tmp_path, sink_of(mode, target), mode), use=drain)
    assert result is not None
    assert (results, result.outcome) == ([result], "finished")
    read = lengths_read(rows(target))
    assert moment == 0.0 or 0 < sum(read.values()) < sum(LENGTHS.values())
    assert result.last_checkpoint is not None
    manifest = LocalStorage(tmp_path, job="ending").load_manifest(result.last_checkpoint)
    assert manifest.final

    again = run_job(draw(tmp_path, sink_of(mode, target), mode))
    assert again is not None
    assert again.outcome == "already_finished"
    assert lengths_read(rows(target)) == read
    fresh = Outside()
    anew = run_job(draw(tmp_path, sink_of(mode, fresh), mode), fresh=True)
    assert anew is not None
    assert anew.outcome == "finished"
    assert lengths_read(rows(fresh)) == LENGTHS


@pytest.mark.parametrize(("mode", "moment"), moments(3))
def test_stopped_job_fires_nothing_and_goes_on_where_it_was(
    tmp_path: Path, mode: str, moment: float
) -> None:
    """Every subtask holds still from its cut on: so also an at-least-once stop is exact."""
    target = Outside()

    async def stop(handle: JobHandle) -> None:
        await asyncio.sleep(moment)
        await handle.stop()

    stopped = run_job(draw(tmp_path, sink_of(mode, target), mode), use=stop)
    assert stopped is not None
    assert stopped.outcome == "stopped"
    lengths_read([row for row in rows(target) if row[0].startswith("tick")] or [])
    result = run_job(draw(tmp_path, sink_of(mode, target), mode))
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", stopped.last_checkpoint)
    assert lengths_read(rows(target)) == LENGTHS


@pytest.mark.parametrize("moment", [0.0971, 0.0453])
@pytest.mark.parametrize("mode", MODES)
def test_stop_that_fails_goes_on_and_the_next_one_stops(
    tmp_path: Path, mode: str, moment: float
) -> None:
    target, disk = Outside(), FailingDisk("_create", errno.ENOSPC)

    async def stop_twice(handle: JobHandle) -> None:
        await asyncio.sleep(moment)
        disk.failing = True
        with pytest.raises(sc.CheckpointFailed, match="disk full"):
            await handle.stop()
        before = sum(task.records_in for task in handle.view().tasks)
        disk.failing = False
        await asyncio.sleep(0.1)
        assert handle.view().state == "running"
        assert sum(task.records_in for task in handle.view().tasks) > before
        assert (await handle.stop()).outcome == "stopped"

    directory = tmp_path / "checkpoints"
    with mock.patch.object(LOCAL_FILES, "_create", disk):
        job = draw(directory, sink_of(mode, target), mode)
        result = run_job(job, use=stop_twice)
    assert result is not None
    assert result.attempts == 1
    assert run_job(draw(directory, sink_of(mode, target), mode)) is not None
    assert lengths_read(rows(target)) == LENGTHS


@pytest.mark.parametrize("mode", MODES)
def test_drain_completes_when_the_disk_works_again(tmp_path: Path, mode: str) -> None:
    target, disk = Outside(), FailingDisk("_create", errno.ENOSPC)

    async def drain(handle: JobHandle) -> None:
        await asyncio.sleep(0.1)
        disk.failing = True
        draining = asyncio.ensure_future(handle.stop(drain=True))
        await asyncio.sleep(5)
        assert not draining.done()
        disk.failing = False
        assert (await draining).outcome == "finished"

    with mock.patch.object(LOCAL_FILES, "_create", disk):
        result = run_job(draw(tmp_path / "checkpoints", sink_of(mode, target), mode), use=drain)
    assert result is not None
    assert result.failed_checkpoints > 1
    assert 0 < sum(lengths_read(rows(target)).values()) < sum(LENGTHS.values())


@pytest.mark.parametrize("make", [transactional, staged])
@pytest.mark.parametrize("mode", EXACTLY_ONCE_MODES)
def test_drain_during_which_the_job_fails_raises_and_the_job_goes_on(
    tmp_path: Path, mode: str, make: Any
) -> None:
    target = Outside()
    failing = False

    def check(row: Row) -> Row:
        nonlocal failing
        if failing:
            failing = False
            raise ValueError("in the middle of the drain")
        return row

    async def drain(handle: JobHandle) -> None:
        nonlocal failing
        await asyncio.sleep(0.05)
        handle.set_interval(None)  # no checkpoint between the drain and the failure
        await asyncio.sleep(0.01)
        failing = True
        with pytest.raises(sc.CheckpointFailed, match="in the middle of the drain"):
            await handle.stop(drain=True)
        assert handle.view().state != "ended"

    job = draw(tmp_path, sink_of(mode, target, make), mode, check)
    result = run_job(job, use=drain)
    assert result is not None
    assert (result.outcome, result.attempts) == ("finished", 2)
    assert lengths_read(rows(target)) == LENGTHS


@pytest.mark.parametrize("make", [transactional, staged])
@pytest.mark.parametrize("mode", EXACTLY_ONCE_MODES)
def test_drain_that_is_killed_is_taken_up_or_forgotten_and_nothing_comes_twice(
    tmp_path: Path, mode: str, make: Any
) -> None:
    """What a later run does is decided by the newest checkpoint: all sources have ended in it, or
    none that the drain ended."""
    target = Outside()
    killed: list[tuple[Path, Outside]] = []
    rnd = random.Random(3)

    async def drain(handle: JobHandle) -> None:
        await asyncio.sleep(0.12)
        handle.set_interval("5ms")
        draining = asyncio.ensure_future(handle.stop(drain=True))
        while not draining.done():
            copy = copy_directory(tmp_path / "first", tmp_path / str(len(killed)))
            killed.append((copy, target.copy()))
            await asyncio.sleep(rnd.random() * 0.005)

    job = draw(tmp_path / "first", sink_of(mode, target, make), mode)
    assert run_job(job, use=drain) is not None
    read = lengths_read(rows(target))
    assert len(killed) > 5
    outcomes = set()
    for directory, copied in rnd.sample(killed[:-1], min(len(killed) - 1, 4)) + killed[-1:]:
        result = run_job(draw(directory, sink_of(mode, copied, make), mode))
        assert result is not None
        assert result.outcome in ("finished", "already_finished")
        found = lengths_read(rows(copied))
        assert found in (read, LENGTHS)
        outcomes.add(found == read)
    assert True in outcomes


def test_drain_of_a_job_that_waits_to_restart_drains_the_next_attempt(tmp_path: Path) -> None:
    target = Outside()
    failed = False

    def check(row: Row) -> Row:
        nonlocal failed
        if not failed and row == ("tick", 20):
            failed = True
            raise ValueError("once")
        return row

    async def drain(handle: JobHandle) -> None:
        restarting = asyncio.Event()
        handle.events.subscribe(
            lambda event: restarting.set() if isinstance(event, events.JobRestarting) else None
        )
        await restarting.wait()
        assert (await handle.stop(drain=True)).outcome == "finished"

    result = run_job(draw(tmp_path, sink_of("adaptive", target), "adaptive", check), use=drain)
    assert result is not None
    assert result.attempts == 2
    assert sum(lengths_read(rows(target)).values()) < sum(LENGTHS.values())


def test_stop_during_a_drain_stops_and_a_later_run_ends_it(tmp_path: Path) -> None:
    target = Outside()

    async def drain_and_stop(handle: JobHandle) -> None:
        await asyncio.sleep(0.1)
        draining = asyncio.ensure_future(handle.stop(drain=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopped = await handle.stop()
        assert stopped.outcome == "stopped"
        assert await draining == stopped

    run_job(draw(tmp_path, sink_of("unaligned", target), "unaligned"), use=drain_and_stop)
    result = run_job(draw(tmp_path, sink_of("unaligned", target), "unaligned"))
    assert result is not None
    assert result.outcome == "finished"
    assert sum(lengths_read(rows(target)).values()) < sum(LENGTHS.values())


def test_drain_with_a_savepoint_is_refused_and_the_job_runs_on(tmp_path: Path) -> None:
    target = Outside()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(0.05)
        with pytest.raises(sc.SettingsError, match=r"drain=True.*savepoint\(\) first"):
            await handle.stop(savepoint=tmp_path, drain=True)

    assert run_job(draw(tmp_path, sink_of("aligned", target), "aligned"), use=use) is not None
    assert lengths_read(rows(target)) == LENGTHS
