"""Reports about what a restarted job begins with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.cases.small_jobs import first_values, killed_after, numbers
from tests.recovery.world import Target, run_job, staged, transactional


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_record_whose_call_was_outstanding_when_the_job_was_killed_is_called_with_again(
    tmp_path: Path, checkpoints: int, ordered: bool
) -> None:
    """faust#606 (case 1): record 1 takes long, 2 to 5 are done, then the process is killed. What
    a checkpoint has of 2 to 5 is not done again; without one everything is."""
    calls: list[int] = []
    target = Target()

    async def call(number: int) -> list[int]:
        calls.append(number)
        await asyncio.sleep(100 if number == 1 else 1)
        return [number]

    def job() -> sc.Job:
        made = sc.Job("calls", checkpoints=sc.Checkpoints(to=tmp_path))
        stream = made.source(sc.items([1, 2, 3, 4, 5]), name="numbers")
        called = stream.map(call, name="call", concurrency=2, ordered=ordered)
        called.sink(staged(target), name="out")
        return made

    assert run_job(job(), use=killed_after(10, checkpoints=checkpoints)) is None
    assert calls == [1, 2, 3, 4, 5]
    calls.clear()
    run_job(job())
    assert calls == ([1] if checkpoints else [1, 2, 3, 4, 5])
    assert first_values(target) == [1, 2, 3, 4, 5]


class Broken:
    """What no snapshot can hold."""


@dataclass
class State:
    value: Any = 0


def test_job_of_which_one_subtask_died_before_its_first_snapshot_begins_anew_with_both(
    tmp_path: Path,
) -> None:
    """bytewax#181 (case 5), with two subtasks in place of two workers: the snapshot of one alone
    is no checkpoint, and nobody goes on with half of the state."""
    written: list[tuple[int, int]] = []
    dies = True

    @sc.source(splits=lambda: [0, 1])
    async def halves(split: int, position: int = 0) -> AsyncIterator[tuple[Any, int]]:
        for i in range(position, 10):
            yield (split, i), i + 1
        await asyncio.sleep(100)

    def note(record: Any, state: State, ctx: sc.KeyContext[int]) -> list[Any]:
        state.value = Broken() if dies and record[0] == 1 else record[1]
        return [record]

    async def write(records: Any) -> None:
        written.extend(records)

    def job() -> sc.Job:
        checkpoints = sc.Checkpoints(to=tmp_path)
        # Strict, it would fail before a checkpoint does.
        made = sc.Job("halves", checkpoints=checkpoints, parallelism=2, strict=False)
        noted = made.source(halves(), name="halves").key_by(lambda record: record[0])
        noted.process(note, state=State, name="note").rebalance().sink(write, name="out")
        return made

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        with pytest.raises(sc.CheckpointFailed, match="Broken"):
            await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(), use=use) is None
    assert len(written) == 20
    dies = False
    written.clear()
    result = run_job(job())
    assert result is not None
    assert result.restored_from is None
    assert Counter(written) == Counter((split, i) for split in (0, 1) for i in range(10))


@dataclass(frozen=True)
class Command:
    verb: str
    value: int = 0


def _apply(command: Command, state: State, ctx: sc.KeyContext[str]) -> list[list[Any]]:
    if command.verb == "set":
        state.value = command.value
    elif command.verb == "delete":
        ctx.clear_state()
    return [[command.verb, state.value]] if command.verb == "get" else []


def test_state_of_exactly_one_key_is_restored_and_a_deleted_one_is_not_found(
    tmp_path: Path,
) -> None:
    """quix#769, #269 (case 45). There is no changelog: state is in the snapshots. One entry, and a
    key that is deleted and read again within one checkpoint and one batch."""
    target = Target()

    @sc.source(batches=True)
    async def commands(position: int = 0) -> AsyncIterator[tuple[list[Command], int]]:
        batches = [
            [Command("set", 7)],
            [Command("get"), Command("delete"), Command("get")],
            [Command("get")],
        ]
        for number, batch in enumerate(batches[position:], position):
            yield batch, number + 1
            await asyncio.sleep(10)

    def job() -> sc.Job:
        made = sc.Job("one key", checkpoints=sc.Checkpoints(to=tmp_path), types=[Command])
        keyed = made.source(commands(), name="commands").key_by(lambda command: "only")
        keyed.process(_apply, state=State, name="apply").sink(staged(target), name="out")
        return made

    for _ in range(3):
        assert run_job(job(), use=killed_after(1)) is None
    run_job(job())
    assert target.records("out") == [["get", 7], ["get", 0], ["get", 0]]


@pytest.mark.parametrize("ending", ["killed", "stopped"])
@pytest.mark.parametrize("make", [staged, transactional])
def test_job_that_ended_in_the_middle_of_a_restore_is_restored_from_the_same_place(
    tmp_path: Path, make: Any, ending: str
) -> None:
    """apache/kafka#15044 (KAFKA-16017), #5421 (KAFKA-7192) (case 47): a restore that was not
    finished says nothing of how far the job is. There is no local state that could be dirty."""
    target = Target()
    opens_slowly = False

    @asynccontextmanager
    async def service() -> AsyncIterator[None]:
        await asyncio.sleep(50 if opens_slowly else 0)
        yield None

    async def call(number: int, _: None) -> list[int]:
        await asyncio.sleep(1)
        return [number]

    def job() -> sc.Job:
        made = sc.Job("restored", checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"))
        stream = made.source(numbers(count=20, pause=0.2), name="numbers").rebalance()
        called = stream.map(call, uses=service, name="call", concurrency=2)
        called.rebalance().sink(make(target), name="out")
        return made

    async def end(handle: JobHandle) -> None:
        await asyncio.sleep(20)
        if ending == "killed":
            raise asyncio.CancelledError
        await handle.stop()

    assert run_job(job(), use=killed_after(3)) is None
    opens_slowly, newest = True, 1
    for _ in range(2):
        ended = run_job(job(), use=end)
        assert (ended is None) == (ending == "killed")
        if ended is not None:
            assert (ended.outcome, ended.restored_from) == ("stopped", newest)
            newest = ended.last_checkpoint or 0
    opens_slowly = False
    result = run_job(job())
    assert result is not None
    assert result.restored_from == newest
    assert first_values(target) == list(range(20))
