"""Reports about barriers, and what they leave in a checkpoint."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from tests.cases.small_jobs import numbers
from tests.recovery.world import run_job


@dataclass
class Rules:
    numbers: list[int] = field(default_factory=list)


def test_broadcast_state_is_the_same_everywhere_after_the_restore_of_an_escalated_checkpoint(
    tmp_path: Path,
) -> None:
    """FLINK-33693 = flink#23850, FLINK-22815 = flink#16066 (case 25): the alignment timeout passes
    while the subtasks have taken different numbers of rules."""
    written: list[Any] = []
    taken: list[CheckpointStatistics] = []
    blocked = True

    def on_record(record: int, rules: Rules) -> list[Any]:
        return []

    def on_rule(rule: int, rules: Rules) -> list[Any]:
        rules.numbers.append(rule)
        return [tuple(rules.numbers)]

    class Out:
        """One subtask writes nothing for long, so that its rules stay in their channel."""

        async def write(self, records: Sequence[Any], /) -> None:
            if blocked and not taken and len(opened) > 1 and self is opened[1]:
                await asyncio.sleep(1e5)
            written.extend(records)

    opened: list[Out] = []

    def open_out() -> Out:
        opened.append(Out())
        return opened[-1]

    def job() -> sc.Job:
        checkpoints = sc.Checkpoints(
            to=tmp_path, mode="adaptive", alignment_timeout="1s", predict=False
        )
        made = sc.Job("rules", checkpoints=checkpoints, channel_capacity=4)
        records = made.source(numbers(count=30, pause=0.1), name="records").rebalance()
        rules = made.source(numbers(count=30, pause=0.1), name="rules").broadcast()
        ruled = records.connect(rules).process(
            on_record, on_rule, broadcast_state=Rules, name="ruled", parallelism=3
        )
        ruled.sink(open_out, name="out", parallelism=3)
        return made

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(2)
        taken.append(await handle.checkpoint())
        raise asyncio.CancelledError

    assert run_job(job(), use=use) is None
    assert taken[0].escalated_after == pytest.approx(1, abs=0.1)
    assert taken[0].in_flight_records > 0
    opened.clear()
    blocked = False
    result = run_job(job())
    assert result is not None
    assert result.restored_from == 1
    rows = Counter(written)
    assert rows.keys() == {tuple(range(n + 1)) for n in range(30)}, "whole, and in order"
    assert set(rows.values()) <= {3, 6}, "once per subtask; twice where a sink was killed"


def test_barrier_behind_a_cancelled_one_leaves_no_odd_times(tmp_path: Path) -> None:
    """FLINK-23201 = flink#16361 (case 28): one input has delivered barrier 1, which is cancelled;
    barrier 2 comes while 1 is still in line on the other one."""

    async def slowly(number: int) -> int:
        await asyncio.sleep(2)
        return number

    job = sc.Job(
        "cancelled",
        checkpoints=sc.Checkpoints(to=tmp_path, mode="aligned", timeout="3s"),
        channel_capacity=10,
    )
    fast = job.source(numbers(count=100, pause=0.5), name="fast")
    slow = job.source(numbers(count=20), name="slow").map(slowly, name="slowly", concurrency=1)
    both = fast.union(slow.rebalance()).rebalance().map(lambda n: n, parallelism=2)
    both.rebalance().sink(sc.discard(), name="out")

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        with pytest.raises(sc.CheckpointFailed, match="timeout"):
            await handle.checkpoint()
        handle.set_mode("unaligned")
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job, use=use) is None
    manifest = LocalStorage(tmp_path, job="cancelled").load_manifest(2)
    for one in manifest.acknowledgements:
        times = (one.statistics.alignment, one.statistics.start_delay, one.statistics.barrier_delay)
        assert all(0 <= time < 1 for time in (*times, *one.statistics.blocked.values()))
        assert one.statistics.end_to_end < 1
