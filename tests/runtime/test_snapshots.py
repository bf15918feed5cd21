"""From the cut to durable bytes: one file when all are frozen, and nothing of what has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.snapshot import Section, SectionHandle, SubtaskStatistics
from streamcp.errors import SerializationError
from streamcp.identifiers import SubtaskId
from streamcp.runtime.snapshots import CapturedSection, SnapshotWriter, SubtaskSnapshot
from streamcp.serialization.captured import Captured
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, settle, until

A, B = SubtaskId("a", 0), SubtaskId("b", 0)


class Slowly:
    """A section that is frozen in `steps`; `freezing` is called before each."""

    def __init__(self, steps: int = 1, kind: Any = "state", freezing: Any = None) -> None:
        self.error: SerializationError | None = None
        self.left = steps
        self.kind = kind
        self.dropped = False
        self.complete = False
        self.freezing = freezing

    def freeze_some(self) -> bool:
        if self.dropped or self.error is not None or not self.left:
            return False
        if self.freezing is not None:
            self.freezing()
        self.left -= 1
        return True

    def section(self) -> Section:
        return Section(self.kind, "step", (b"frame",), 3)

    def drop(self) -> None:
        self.dropped = True

    def written(self, handle: SectionHandle) -> tuple[SectionHandle, ...]:
        return (handle,)

    def completed(self) -> None:
        self.complete = True


class Bench:
    def __init__(self, *, durable: bool = True) -> None:
        job = sc.Job("job")
        job.source(sc.items([1]), name="source").for_each(print)
        self.engine = Engine(job, durable=durable)
        self.writer: SnapshotWriter = self.engine.snapshots
        self.upward = self.engine.upward
        self.disk = self.engine.disk

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.writer.run())
            yield
            task.cancel()

    def add(self, subtask: SubtaskId, checkpoint_id: int, *sections: Any) -> None:
        self.writer.add(
            SubtaskSnapshot(subtask, checkpoint_id, 0.0, 0.0, list(sections), SubtaskStatistics())
        )

    def acknowledged(self, checkpoint_id: int) -> list[SubtaskId]:
        return list(self.upward.acknowledged.get(checkpoint_id, {}))


async def test_one_file_is_written_when_all_have_added_and_each_gets_its_own_handles() -> None:
    bench = Bench()
    async with bench.running():
        bench.writer.expect(1, 2)
        bench.add(A, 1, Slowly(3), Slowly(2, kind="rest"))
        await settle()
        assert bench.disk.written == {}
        bench.add(B, 1, Slowly())
        await until(lambda: len(bench.acknowledged(1)) == 2)
    assert len(bench.disk.written[1]) == 3
    a, b = (bench.upward.acknowledged[1][one] for one in (A, B))
    assert [handle.offset for handle in a.sections] == [0, 1]
    assert [handle.offset for handle in b.sections] == [2]
    assert (a.statistics.state_bytes, a.statistics.in_flight_bytes) == (5, 5)
    assert (a.statistics.in_flight_records, b.statistics.in_flight_records) == (3, 0)


async def test_small_content_is_handed_over_and_acknowledged_without_a_thread() -> None:
    bench = Bench()
    bench.disk.small = True
    async with bench.running():
        bench.writer.expect(1, 2)
        bench.add(A, 1, Slowly())
        bench.add(B, 1, Slowly())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bench.acknowledged(1) == [A, B]
    assert [subtask for subtask, _ in bench.disk.deferred[1]] == [A, B]
    assert bench.disk.written == {}


async def test_coordinator_looks_at_once_when_all_have_acknowledged() -> None:
    """It need not wait for a turn of its own."""
    bench = Bench()
    bench.disk.small = True
    seen: list[list[SubtaskId]] = []
    bench.upward.on_look.append(lambda: seen.append(bench.acknowledged(1)))
    async with bench.running():
        bench.writer.expect(1, 2)
        bench.add(A, 1, Slowly())
        bench.add(B, 1, Slowly())
        await until(lambda: bench.upward.looks > 0)
    assert seen == [[A, B]]


async def test_small_content_that_is_refused_declines() -> None:
    bench = Bench()
    bench.disk.small = bench.disk.fail = True
    async with bench.running():
        bench.writer.expect(1, 1)
        bench.add(A, 1, Slowly())
        await until(lambda: bool(bench.upward.declined))
    assert bench.upward.declined[0][2] is FailureReason.STORAGE_ERROR
    assert bench.upward.acknowledged == {}


async def test_subtasks_without_content_acknowledge_too() -> None:
    bench = Bench()
    async with bench.running():
        bench.writer.expect(1, 3)
        bench.add(A, 1)
        bench.add(B, 1, Slowly())
        bench.add(SubtaskId("c", 0), 1)
        await until(lambda: len(bench.acknowledged(1)) == 3)


async def test_what_is_added_to_an_ended_checkpoint_is_dropped() -> None:
    bench = Bench()
    async with bench.running():
        bench.writer.expect(1, 2)
        first, second = Slowly(), Slowly()
        bench.add(A, 1, first)
        bench.writer.drop(1)
        bench.add(B, 1, second)
        await settle()
    assert first.dropped
    assert second.dropped
    assert bench.disk.written == {}
    assert bench.upward.acknowledged == {}


async def test_checkpoint_that_ends_while_it_is_frozen_is_not_written() -> None:
    bench = Bench()
    async with bench.running():
        bench.writer.expect(1, 1)
        section = Slowly(1000, freezing=lambda: bench.engine.clock.advance(0.001))  # type: ignore[attr-defined]
        bench.add(A, 1, section)
        await settle(5)
        assert 0 < section.left < 1000
        bench.writer.drop(1)
        await settle()
        # The next one is not held up.
        bench.writer.expect(2, 1)
        bench.add(A, 2, Slowly())
        await until(lambda: bench.acknowledged(2) == [A])
    assert list(bench.disk.written) == [2]


async def test_content_that_cannot_be_written_declines_and_drops_the_others() -> None:
    bench = Bench()
    async with bench.running():
        bench.writer.expect(1, 2)
        bad, other = Slowly(), Slowly()
        bad.error = SerializationError("step 'step': not declared")
        bench.add(A, 1, bad)
        bench.add(B, 1, other)
        await until(lambda: bool(bench.upward.declined))
        await settle()
    assert bench.upward.declined == [
        ("a[0]", 1, FailureReason.FREEZE_FAILED, "step 'step': not declared")
    ]
    assert other.dropped
    assert bench.disk.written == {}


async def test_full_disk_declines_and_the_next_checkpoint_is_written() -> None:
    bench = Bench()
    bench.disk.fail = True
    async with bench.running():
        bench.writer.expect(1, 1)
        bench.add(A, 1, Slowly())
        await until(lambda: bool(bench.upward.declined))
        assert bench.upward.declined[0][2] is FailureReason.STORAGE_ERROR
        bench.disk.fail = False
        bench.writer.expect(2, 1)
        bench.add(A, 2, Slowly())
        await until(lambda: bench.acknowledged(2) == [A])


async def test_checkpoint_that_ends_while_it_is_written_is_not_acknowledged() -> None:
    bench = Bench()
    write = bench.disk.write_data

    def write_and_end(checkpoint_id: int, sections: Any) -> Any:
        bench.writer.drop(checkpoint_id)
        return write(checkpoint_id, sections)

    bench.disk.write_data = write_and_end  # type: ignore[method-assign]
    async with bench.running():
        bench.writer.expect(1, 1)
        bench.add(A, 1, Slowly())
        await until(lambda: 1 in bench.disk.written)
        await settle()
    assert bench.upward.acknowledged == {}


async def test_without_storage_nothing_is_frozen_and_all_acknowledge() -> None:
    bench = Bench(durable=False)
    async with bench.running():
        bench.writer.expect(1, 1)
        section = Slowly()
        bench.add(A, 1, section)
        await until(lambda: bench.acknowledged(1) == [A])
    assert section.left == 1
    assert section.dropped


async def test_freezing_lets_others_run_and_looks_for_triggers() -> None:
    bench = Bench()
    bench.engine.context.look_at = 0.001
    turns: list[int] = []
    async with bench.running():
        bench.writer.expect(1, 1)
        section = Slowly(20, freezing=lambda: bench.engine.clock.advance(0.001))  # type: ignore[attr-defined]
        bench.add(A, 1, section)
        while not bench.acknowledged(1):
            turns.append(section.left)
            await asyncio.sleep(0)
    assert len(set(turns)) > 5
    assert bench.upward.looks == 2  # of which one is for the acknowledgements


async def test_many_small_snapshots_together_let_others_run_too() -> None:
    bench = Bench()
    clock = bench.engine.clock
    assert isinstance(clock, ManualClock)
    subtasks = [SubtaskId("small", number) for number in range(50)]
    longest = last = 0.0
    async with bench.running():
        bench.writer.expect(1, len(subtasks))
        for subtask in subtasks:
            bench.add(subtask, 1, Slowly(1, freezing=lambda: clock.advance(0.001)))
        while len(bench.acknowledged(1)) < len(subtasks):
            last = clock.now
            await asyncio.sleep(0)
            longest = max(longest, clock.now - last)
    assert longest < 0.0025


@pytest.mark.parametrize(
    ("others", "frozen"), [(0.0, 0.0005), (0.004, 0.0005), (0.006, 0.006), (0.2, 0.01)]
)
async def test_slices_of_freezing_are_short_while_there_is_time_and_half_of_a_busy_thread(
    others: float, frozen: float
) -> None:
    bench = Bench()
    clock = bench.engine.clock
    assert isinstance(clock, ManualClock)
    slices: list[float] = []
    async with bench.running():
        bench.writer.expect(1, 1)
        bench.add(A, 1, Slowly(450, freezing=lambda: clock.advance(0.0001)))
        while not bench.acknowledged(1):
            clock.advance(others)
            before = clock.now
            await asyncio.sleep(0)
            if clock.now - before >= 0.0001:  # else nothing was left to freeze
                slices.append(clock.now - before)
    # The last slice is what was left; the time of a step and of looking at the clock is extra.
    typical = sorted(slices)[len(slices) // 2]
    assert frozen <= typical <= frozen * 1.1 + 0.00015


def test_captured_section_freezes_value_by_value_and_stops_at_an_error() -> None:
    bench = Bench()
    serializer = bench.engine.serializer
    good = Captured([1, 2], serializer, step="step")
    section = CapturedSection("channel", "a -> b", [good, Captured([3], serializer, step="s")], 3)
    assert [section.freeze_some() for _ in range(3)] == [True, True, False]
    assert [serializer.loads(frame) for frame in section.section().frames] == [[1, 2], [3]]

    class Odd:
        pass

    bad = CapturedSection("channel", "a -> b", [Captured(Odd(), serializer, step="s"), good], 1)
    assert [bad.freeze_some(), bad.freeze_some()] == [True, False]
    assert bad.error is not None


class Busy:
    """A clock that other work moves on by `turn` whenever it gets the loop, and freezing by a
    millisecond per step; both are counted."""

    def __init__(self, turn: float) -> None:
        self.now = 0.0
        self.turn = turn
        self.worked = 0.0
        self.frozen = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)

    def freeze(self) -> None:
        self.now += 0.001
        self.frozen += 0.001

    async def work(self, steps: int) -> None:
        """Work until that many steps of freezing are done."""
        while self.frozen < (steps - 0.5) / 1000:
            self.now += self.turn
            self.worked += self.turn
            await asyncio.sleep(0)


async def frozen_beside_work(steps: int, turn: float) -> Busy:
    bench, busy = Bench(), Busy(turn)
    bench.writer._context.clock = busy
    async with bench.running():
        bench.writer.expect(1, 1)
        bench.add(A, 1, Slowly(steps, freezing=busy.freeze))
        await busy.work(steps)
        await until(lambda: bench.acknowledged(1) == [A])
    return busy


async def test_small_snapshot_gets_half_of_a_busy_thread() -> None:
    busy = await frozen_beside_work(40, turn=0.009)

    assert busy.frozen >= 0.7 * busy.worked


@pytest.mark.parametrize("turn", [0.0005, 0.003, 0.03])
async def test_large_snapshot_gets_a_tenth_of_a_busy_thread(turn: float) -> None:
    busy = await frozen_beside_work(2000, turn)

    assert 0.02 <= busy.frozen / (busy.worked + busy.frozen) <= 0.13


async def test_large_snapshot_waits_for_nobody_who_has_nothing_to_do() -> None:
    busy = await frozen_beside_work(2000, turn=0.00001)

    assert busy.frozen > 10 * busy.worked
