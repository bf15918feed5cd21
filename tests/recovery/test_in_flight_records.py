"""Records that are on their way when an unaligned barrier passes (P13 to P18, P26)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import streamcp as sc
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.durable_files import LOCAL_FILES, explain
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, TransactionalTargetSink, run_job, transactional


@sc.source
async def numbers(position: int = 0, *, count: int, pause: float = 0.0) -> AsyncIterator[Any]:
    for i in range(position, count):
        if pause:
            await asyncio.sleep(pause)
        yield i, i + 1


@sc.source
async def silent(position: int = 0) -> AsyncIterator[Any]:
    await asyncio.sleep(500)
    yield -1, 1


class Gate:
    """A sink at least once that writes nothing until it is open."""

    def __init__(self) -> None:
        self.open = False
        self.written: list[Any] = []

    async def write(self, records: Sequence[Any], /) -> None:
        await asyncio.sleep(0 if self.open else 1e6)
        self.written.extend(records)


async def _taken(handle: JobHandle) -> CheckpointStatistics:
    await asyncio.sleep(5)
    return await handle.checkpoint()


@pytest.mark.parametrize("mode", ["unaligned", "adaptive"])
@pytest.mark.parametrize("exchange", ["rebalance", "key_by"])
def test_records_of_every_input_are_captured_although_only_the_second_one_has_any(
    tmp_path: Path, mode: Any, exchange: str
) -> None:
    """FLINK-18139 = flink#12493 (case 23), FLINK-27251 = flink#19723 (case 27): the producers are
    blocked, and the barrier passes their output queues too."""
    gate = Gate()
    taken: list[CheckpointStatistics] = []

    def job() -> sc.Job:
        made = sc.Job(
            "gates",
            checkpoints=sc.Checkpoints(
                to=tmp_path, mode=mode, alignment_timeout="2s", predict=False
            ),
            channel_capacity=4,
        )
        first, second = (
            made.source(silent(), name="silent"),
            made.source(numbers(count=60), name="numbers"),
        )
        both: Any = first.union(second)
        both = both.rebalance() if exchange == "rebalance" else both.key_by(lambda n: n % 5)
        both.map(lambda n: n, parallelism=3).rebalance().sink(gate, name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        taken.append(await _taken(handle))
        raise asyncio.CancelledError

    assert run_job(job(), use=until_killed) is None
    assert taken[0].in_flight_records >= 8
    assert taken[0].barrier_delay < 3
    assert (taken[0].escalated_after is not None) == (mode == "adaptive")
    assert gate.written == []

    gate.open = True
    result = run_job(job())
    assert result is not None
    assert result.restored_from == 1
    assert Counter(gate.written) == Counter([-1, *range(60)])


@pytest.mark.parametrize("ending", ["fails", "is killed"])
def test_record_written_after_the_snapshot_of_a_checkpoint_that_failed_is_there_once(
    tmp_path: Path, ending: str
) -> None:
    """apache/iceberg#15846 (case 35): it belongs to the next transaction, and to no other."""
    target = Target()
    slow = True

    class Slow(TransactionalTargetSink):
        async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
            if slow:
                await asyncio.sleep(1.5)
            await super().write(records, transaction)

    def job(fn: Any) -> sc.Job:
        made = sc.Job(
            "iceberg",
            checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"),
            channel_capacity=5,
            restart=sc.Restart.fixed_delay(attempts=1, delay="1s"),
        )
        stream = made.source(numbers(count=100, pause=0.1), name="numbers").map(fn)
        stream.rebalance().sink(lambda: Slow(target, lambda: None), name="out")
        return made

    failed = False

    def fail_once(number: int) -> list[int]:
        nonlocal failed
        if number == 60 and not failed and ending == "fails":
            failed = True
            raise ValueError("now")
        return [number]

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(2)
        await handle.checkpoint()
        await asyncio.sleep(2.2)
        error = explain("written", Path("data"), OSError(28, ""))
        full = mock.patch.object(LOCAL_FILES, "_create", side_effect=error)
        with full, pytest.raises(sc.CheckpointFailed, match="disk full"):
            await handle.checkpoint()
        await asyncio.sleep(2)
        if ending == "is killed":
            raise asyncio.CancelledError

    result = run_job(job(fail_once), use=use)
    if ending == "is killed":
        assert result is None
        slow = False
        result = run_job(job(fail_once))
    assert result is not None
    assert Counter(r[0] for r in target.records("out")) == Counter(range(100))


@pytest.mark.parametrize("capacity", [2, 20, 200])
def test_barrier_delay_of_unaligned_checkpoints_does_not_depend_on_the_queues(
    tmp_path: Path, capacity: int
) -> None:
    """I5, in virtual time: nobody works while the barrier passes."""
    target = Target()
    delays: list[float] = []

    async def use(handle: JobHandle) -> None:
        for _ in range(5):
            statistics = await _taken(handle)
            delays.append(statistics.barrier_delay)
        raise asyncio.CancelledError

    job = sc.Job(
        "delay",
        checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"),
        channel_capacity=capacity,
    )
    stream: Any = job.source(numbers(count=10_000), name="numbers").rebalance()
    stream = stream.map(lambda n: n, parallelism=3).key_by(lambda n: n)
    stream = stream.map(lambda n: [n], parallelism=3).rebalance()

    class Slow(TransactionalTargetSink):
        async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
            await asyncio.sleep(0.01 * len(records))
            await super().write(records, transaction)

    stream.sink(lambda: Slow(target, lambda: None), name="out", parallelism=2)
    assert run_job(job, use=use) is None
    assert len(delays) == 5
    assert max(delays) < 0.02


def test_transactional_sink_that_diverts_failed_writes_loses_none_at_a_barrier(
    tmp_path: Path,
) -> None:
    """P24: a write that was under way at the barrier succeeded, or is in the snapshot."""
    target, failures = Target(), Target()
    down = True

    class Fails(TransactionalTargetSink):
        async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
            await asyncio.sleep(1)
            if down and any(record[0] % 3 == 0 for record in records):
                raise ConnectionError("refused")
            await super().write(records, transaction)

    def row(failure: sc.Failure[list[int]]) -> list[int]:
        return failure.record

    def job() -> sc.Job:
        made = sc.Job(
            "divert",
            checkpoints=sc.Checkpoints(to=tmp_path, every="700ms", mode="unaligned"),
            channel_capacity=1,
        )
        stream = made.source(numbers(count=60, pause=0.3), name="numbers").map(lambda n: [n])
        written = stream.sink(
            lambda: Fails(target, lambda: None), name="out", on_error="divert", parallelism=1
        )
        written.errors.map(row).sink(transactional(failures), name="failures")
        return made

    for seed in range(20):

        async def until_killed(handle: JobHandle, seed: int = seed) -> None:
            await asyncio.sleep(1.3 + seed * 0.17)
            raise asyncio.CancelledError

        if run_job(job(), use=until_killed, seed=seed) is not None:
            break
    else:
        run_job(job())
    everywhere = [*target.records("out"), *failures.records("failures")]
    assert Counter(record[0] for record in everywhere) == Counter(range(60))
    assert failures.records("failures")
