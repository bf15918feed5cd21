"""A job from its start to its end, through its handle: stopping, changing, draining, restarting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from tests.recovery.world import (
    Target,
    TransactionalTargetSink,
    happened,
    json_records,
    run_job,
    staged,
    transactional,
)

SINKS = [transactional, staged]


@sc.source
async def numbers(position: int = 0, *, count: int, pause: float = 0.1) -> AsyncIterator[Any]:
    for i in range(position, count):
        if pause:
            await asyncio.sleep(pause)
        yield i, i + 1


def _job(directory: Path, sink: Any, source: Any = None, **checkpoints: Any) -> sc.Job:
    job = sc.Job(
        "life",
        checkpoints=sc.Checkpoints(to=directory / "checkpoints", **checkpoints),
        channel_capacity=10,
        restart=sc.Restart.none(),
    )
    stream = job.source(source or numbers(count=100), name="numbers")
    stream.map(lambda n: [n]).rebalance().sink(sink, name="out")
    return job


def _numbers(target: Target) -> list[int]:
    return sorted(record[0] for record in target.records("out"))


def _kinds(handle: JobHandle) -> list[str]:
    return [e.kind for e in handle.events.events() if isinstance(e, events.CheckpointTriggered)]


# ---- the end of the input


@pytest.mark.parametrize("sink", SINKS)
def test_rows_after_the_last_periodic_checkpoint_are_committed_once_by_the_final_one(
    tmp_path: Path, sink: Any
) -> None:
    """FLINK-26403 = flink#18938, FLINK-38614 = flink#28476 (case 36)."""
    target, kinds = Target(), []

    async def use(handle: JobHandle) -> None:
        try:
            await handle.wait_finished()
        finally:
            kinds.extend(_kinds(handle))

    result = run_job(_job(tmp_path, sink(target), every="3s"), use=use)
    assert result is not None
    assert result.outcome == "finished"
    assert _numbers(target) == list(range(100))
    assert kinds[0] == "periodic"
    assert kinds.count("final") == 1

    again = run_job(_job(tmp_path, sink(target)))
    assert again is not None
    assert again.outcome == "already_finished"
    assert _numbers(target) == list(range(100))


def test_checkpoints_complete_while_a_long_drain_runs_behind_finished_sources(
    tmp_path: Path,
) -> None:
    """P7: sources that end at different times, and a slow step that works on for long."""
    target = Target()
    figures: list[tuple[int, bool]] = []

    async def slow(number: int) -> int:
        await asyncio.sleep(10)
        return number

    job = sc.Job("drain", checkpoints=sc.Checkpoints(to=tmp_path, every="5s"), channel_capacity=100)
    short = job.source(numbers(count=5, pause=0.0), name="short")
    long = job.source(numbers(count=60, pause=0.0), name="long")
    late = job.source(numbers(count=3, pause=20.0), name="late")
    stream = short.union(long, late).rebalance().map(lambda n: n, parallelism=2)
    stream.map(slow, name="slow", concurrency=1, parallelism=2).map(
        lambda n: [n], parallelism=2
    ).rebalance().sink(transactional(target), name="out")

    async def use(handle: JobHandle) -> None:
        while True:
            await asyncio.sleep(30)
            done = {task.name: task.finished for task in handle.view().tasks}
            figures.append((len(handle.view().checkpoints), done["late"]))

    result = run_job(job, use=use)
    assert result is not None
    assert result.failed_checkpoints == 0
    draining = [count for count, late_done in figures if late_done]
    assert len(draining) > 5
    assert draining == sorted(set(draining)), "each half minute some checkpoint completed"
    assert Counter(_numbers(target)) == Counter([*range(5), *range(60), *range(3)])


def test_finished_job_without_records_ends_with_a_final_checkpoint(tmp_path: Path) -> None:
    target = Target()
    result = run_job(_job(tmp_path, transactional(target), numbers(count=0)))
    assert result is not None
    assert (result.outcome, result.completed_checkpoints) == ("finished", 1)
    assert target.committed == {}


@pytest.mark.parametrize("sink", [*SINKS, sc.files.json_lines])
@pytest.mark.parametrize("durable", [True, False])
def test_job_whose_sink_diverts_its_errors_ends_without_periodic_checkpoints(
    tmp_path: Path, sink: Any, durable: bool
) -> None:
    """Who reads the errors waits for the end of the sink, and that one for a checkpoint."""
    failures = sc.collect()
    where: Any = tmp_path / "out" if sink is sc.files.json_lines else Target()
    checkpoints = sc.Checkpoints(to=tmp_path / "checkpoints") if durable else None
    job = sc.Job("diverting", checkpoints=checkpoints)
    stream = job.source(numbers(count=20), name="numbers").map(lambda n: [n])
    written = stream.sink(sink(where), name="out", on_error="divert")
    written.errors.sink(failures, name="failures")
    result = run_job(job)
    assert result is not None
    assert result.outcome == "finished"
    found = json_records(where) if sink is sc.files.json_lines else where.records("out")
    assert sorted(found) == [[n] for n in range(20)]


# ---- stopping


@pytest.mark.parametrize("sink", SINKS)
def test_stop_commits_everything_and_the_next_run_repeats_nothing(
    tmp_path: Path, sink: Any
) -> None:
    """quix#638 (case 42)."""
    target, before = Target(), []

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(3)
        await handle.stop()

    for _ in range(3):
        result = run_job(_job(tmp_path, sink(target)), use=use)
        assert result is not None
        assert result.outcome == "stopped"
        before.append(_numbers(target))
        assert before[-1] == list(range(len(before[-1])))
    assert len(before[0]) < len(before[1]) < len(before[2]) < 100
    result = run_job(_job(tmp_path, sink(target)))
    assert result is not None
    assert result.outcome == "finished"
    assert _numbers(target) == list(range(100))


@pytest.mark.parametrize("sink", SINKS)
def test_job_goes_on_after_a_stop_whose_checkpoint_failed(tmp_path: Path, sink: Any) -> None:
    """P33: everything holds still until the outcome is known, then nothing is lost."""
    target = Target()
    blocked = tmp_path / "checkpoints" / "life"

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(2)
        await handle.checkpoint()
        held = [child for child in blocked.iterdir() if child.is_dir()]
        assert held
        with _no_data_files(), pytest.raises(sc.CheckpointFailed, match="disk full"):
            await handle.stop()
        await handle.checkpoint()

    result = run_job(_job(tmp_path, sink(target)), use=use)
    assert result is not None
    assert (result.outcome, result.failed_checkpoints) == ("finished", 1)
    assert _numbers(target) == list(range(100))


def _no_data_files() -> Any:
    import errno
    from unittest import mock

    from streamcp.durable_files import LOCAL_FILES, explain

    error = explain("written", Path("data"), OSError(errno.ENOSPC, ""))
    return mock.patch.object(LOCAL_FILES, "_create", side_effect=error)


def test_stop_while_the_job_is_starting_stops_it_when_it_runs(tmp_path: Path) -> None:
    """csp 3f98441, faust#501 (case 51), without the signal."""
    opening: asyncio.Event
    target = Target()

    @asynccontextmanager
    async def slow_to_open() -> AsyncIterator[None]:
        opening.set()
        await asyncio.sleep(5)
        yield None

    def row(number: int, service: None) -> list[int]:
        return [number]

    def job() -> sc.Job:
        made = sc.Job("starting", checkpoints=sc.Checkpoints(to=tmp_path))
        stream = made.source(numbers(count=100), name="numbers")
        stream.map(row, uses=slow_to_open).sink(transactional(target), name="out")
        return made

    async def use(handle: JobHandle) -> None:
        nonlocal opening
        opening = asyncio.Event()
        await opening.wait()
        await handle.stop()

    for _ in range(2):  # the second time it is also restoring
        result = run_job(job(), use=use)
        assert result is not None
        assert result.outcome == "stopped"
    result = run_job(job())
    assert result is not None
    assert _numbers(target) == list(range(100))


def test_stop_during_a_checkpoint_and_a_call_ends_after_both(tmp_path: Path) -> None:
    target = Target()

    async def call(number: int) -> list[int]:
        await asyncio.sleep(1)
        return [number]

    job = sc.Job("both", checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"))
    stream = job.source(numbers(count=100), name="numbers")
    stream.map(call, name="call").sink(staged(target), name="out")

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(2.5)
        checkpoint = asyncio.ensure_future(handle.checkpoint())
        await happened(handle, events.CheckpointTriggered)
        await handle.stop()
        await checkpoint

    result = run_job(job, use=use)
    assert result is not None
    assert (result.outcome, result.completed_checkpoints) == ("stopped", 2)


# ---- asking for checkpoints, and changing how they are taken


def test_request_while_a_checkpoint_runs_gets_the_next_one(tmp_path: Path) -> None:
    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        first = asyncio.ensure_future(handle.checkpoint())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(handle.checkpoint()) for _ in range(3)]
        ids = [(await request).checkpoint_id for request in (first, *others)]
        assert ids == [1, 2, 2, 2]

    assert run_job(_job(tmp_path, transactional(Target())), use=use) is not None


def test_mode_interval_and_timeout_can_be_changed_while_the_job_runs(tmp_path: Path) -> None:
    """P28; FLINK-27251 = flink#19723 (case 27): barriers stuck in output queues are escalated."""
    written: list[Any] = []
    modes: list[tuple[str, bool]] = []

    async def slow(records: Sequence[Any]) -> None:
        await asyncio.sleep(3)
        written.extend(records)

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(5)
        for mode in ("unaligned", "adaptive", "aligned"):
            handle.set_mode(mode)
            handle.set_alignment_timeout("500ms")
            statistics = await handle.checkpoint()
            modes.append((statistics.mode, statistics.escalated_after is not None))
            if mode != "aligned":
                assert statistics.barrier_delay < 1
        count = len(handle.view().checkpoints)
        handle.set_interval("1s")
        await asyncio.sleep(20)
        assert len(handle.view().checkpoints) > count + 1
        handle.set_interval(None)
        await asyncio.sleep(10)
        count = len(handle.view().checkpoints)
        await asyncio.sleep(20)
        assert len(handle.view().checkpoints) == count

    job = _job(tmp_path, slow, numbers(count=400, pause=0.0), mode="aligned", predict=False)
    assert run_job(job, use=use) is not None
    assert modes == [("unaligned", False), ("aligned", True), ("aligned", False)]
    assert sorted(record[0] for record in written) == list(range(400))


def test_settings_can_be_changed_when_the_job_has_failed_before_it_ran() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise ValueError("no connection")
        yield

    def plus(number: int, service: None) -> int:
        return number

    job = sc.Job("broken")
    job.source(sc.items([1]), name="one").map(plus, uses=broken).sink(sc.discard(), name="out")

    async def use(handle: JobHandle) -> None:
        with pytest.raises(sc.JobFailed, match="no connection"):
            await handle.wait_finished()
        handle.set_mode("aligned")
        handle.set_interval("1s")
        handle.set_alignment_timeout("1s")
        handle.set_timeout("1s")
        with pytest.raises(sc.StreamcpError):
            await handle.checkpoint()

    with pytest.raises(sc.JobFailed, match="no connection"):
        run_job(job, use=use)


def test_checkpoints_that_all_expire_complete_once_they_are_given_more_time(
    tmp_path: Path,
) -> None:
    async def slow(record: int) -> int:
        await asyncio.sleep(1)
        return record

    to = sc.Checkpoints(to=tmp_path, mode="aligned", timeout="100ms")
    job = sc.Job("hasty", channel_capacity=20, checkpoints=to)
    stream: Any = job.source(numbers(count=50, pause=0.0), name="numbers").rebalance()
    slowed = stream.map(slow, name="slow", concurrency=1)
    slowed.sink(sc.discard(), name="out")

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        with pytest.raises(sc.CheckpointFailed, match=r"within 0\.1 s"):
            await handle.checkpoint()
        handle.set_timeout("1m")
        await handle.checkpoint()

    run_job(job, use=use)


def test_nothing_is_dropped_where_every_queue_is_full(tmp_path: Path) -> None:
    """faust#89, pathway's NATS report (case 50)."""
    target = Target()
    job = sc.Job("full", channel_capacity=1, checkpoints=sc.Checkpoints(to=tmp_path, every="100ms"))
    stream: Any = job.source(numbers(count=50, pause=0.0), name="numbers").rebalance()
    for name in ("a", "b", "c"):
        stream = stream.map(lambda n: n, name=name, parallelism=2).rebalance()
    stream.flat_map(lambda n: [[n]] * 3, parallelism=2).rebalance().sink(
        staged(target, turns=2), name="out"
    )
    result = run_job(job)
    assert result is not None
    assert Counter(_numbers(target)) == Counter(dict.fromkeys(range(50), 3))


# ---- failing and restarting


class CommitFailsOnce(TransactionalTargetSink):
    """The target is away for one call."""

    failed: list[str] = []  # noqa: RUF012 - one list for all attempts

    async def commit(self, transaction: sc.Transaction, token: str, /) -> None:
        if not self.failed:
            self.failed.append(transaction.id)
            raise ConnectionError("away")
        await super().commit(transaction, token)


@pytest.mark.parametrize("how", ["periodic", "stop", "final"])
def test_commit_that_raises_once_is_made_again_with_the_same_transaction(
    tmp_path: Path, how: str
) -> None:
    """faust#316 / PR #692 (case 4)."""
    target = Target()
    CommitFailsOnce.failed.clear()

    def sink() -> CommitFailsOnce:
        return CommitFailsOnce(target, lambda: None)

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(2)
        if how == "stop":
            result = await handle.stop()
            assert result.outcome == "stopped"

    restart = sc.Restart.fixed_delay(attempts=1, delay="1s")
    every = "1s" if how == "periodic" else None
    job = _job(tmp_path, sink, every=every)
    result = run_job(job, use=use, restart=restart)
    assert result is not None
    assert how == "stop" or result.attempts == 2
    if how == "stop":
        assert (result.attempts, _numbers(target)) == (1, [])
        result = run_job(_job(tmp_path, sink))
        assert result is not None
    assert CommitFailsOnce.failed[0] in target.committed
    assert _numbers(target) == list(range(100))


def test_restart_strategy_counts_failures_and_then_gives_up(tmp_path: Path) -> None:
    calls: list[int] = []
    target = Target()

    def fail(number: int) -> int:
        calls.append(number)
        if number == 10:
            raise ValueError("never")
        return number

    job = sc.Job("giving up", checkpoints=sc.Checkpoints(to=tmp_path, every="500ms"))
    stream = job.source(numbers(count=100), name="numbers").map(fail, name="fail")
    stream.map(lambda n: [n]).sink(transactional(target), name="out")
    with pytest.raises(sc.JobFailed, match=r"'fail'.*record 10: ValueError: never") as caught:
        run_job(job, restart=sc.Restart.fixed_delay(attempts=2, delay="1s"))
    assert "2 restarts are used up" in str(caught.value)
    assert isinstance(caught.value.__cause__, sc.StepFailed)
    assert calls.count(10) == 3
    assert calls.count(0) == 1, "each restart goes on at a checkpoint"
    assert _numbers(target) == list(range(len(_numbers(target))))


def test_json_lines_of_a_job_that_crashes_again_and_again_hold_each_record_once(
    tmp_path: Path,
) -> None:
    count = 0

    def fail(number: int) -> int:
        nonlocal count
        count += 1
        if count % 30 == 0:
            raise ValueError("now and then")
        return number

    job = sc.Job("lines", checkpoints=sc.Checkpoints(to=tmp_path / "c", every="700ms"))
    stream = job.source(numbers(count=100), name="numbers").map(fail).rebalance()
    stream.map(lambda n: [n], parallelism=2).sink(
        sc.files.json_lines(tmp_path / "out"), name="out", parallelism=2
    )
    result = run_job(job, restart=sc.Restart.fixed_delay(attempts=None, delay="100ms"))
    assert result is not None
    assert result.attempts > 3
    assert sorted(row[0] for row in json_records(tmp_path / "out")) == list(range(100))
    assert not [*(tmp_path / "out").glob(".*")], "no file is left without an owner"
