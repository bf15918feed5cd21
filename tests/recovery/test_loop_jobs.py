"""Jobs with loops from the outside: stopped, killed and taken from in the middle of their laps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.config import Mode
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from tests.recovery.world import Target, run_job, transactional

MODES = ("aligned", "unaligned", "adaptive", "at_least_once")
COUNT = 60
LAPS = 20
BACK = "walk[{0}] -> laps[{1}] (left.yes)"


@dataclass(frozen=True)
class Runner:
    name: int
    laps: int = 0


@sc.source
async def runners(position: int = 0) -> AsyncIterator[tuple[Runner, int]]:
    for name in range(position, COUNT):
        yield Runner(name), name + 1


async def walk(runner: Runner) -> Runner:
    await asyncio.sleep(0.1)
    return Runner(runner.name, runner.laps + 1)


def laps(loop: sc.Stream[Runner]) -> tuple[sc.Stream[Runner], sc.Stream[Runner]]:
    walked = loop.rebalance().map(walk, name="walk", concurrency=4)
    again, output = walked.branch(lambda runner: runner.laps < LAPS, name="left")
    return again.rebalance(), output


class Out:
    """Everything that the job has put out, in its mode."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.target = Target()
        self.written: list[Any] = []

    async def write(self, records: Any) -> None:
        self.written += records

    def rows(self) -> list[tuple[int, int]]:
        if self.mode == "at_least_once":
            return self.written
        return [(name, laps) for name, laps in self.target.records("out")]


def _job(directory: Path, out: Out, **settings: Any) -> sc.Job:
    checkpoints = sc.Checkpoints(to=directory, **{"mode": out.mode, "every": "1h", **settings})
    job = sc.Job("laps", checkpoints=checkpoints, channel_capacity=8, parallelism=2)
    output = job.source(runners(), name="runners").rebalance().iterate(laps, name="laps")
    rows = output.rebalance().map(lambda runner: (runner.name, runner.laps), parallelism=1)
    sink: Any = out.write if out.mode == "at_least_once" else transactional(out.target)
    rows.sink(sink, name="out", parallelism=1)
    return job


def _captured(directory: Path, checkpoint_id: int) -> dict[str, int]:
    manifest = LocalStorage(directory, job="laps").load_manifest(checkpoint_id)
    return {
        section.name: section.records
        for one in manifest.acknowledgements
        for section in one.sections
        if section.kind == "channel"
    }


@pytest.mark.parametrize("mode", MODES)
def test_stop_in_the_middle_of_the_laps_is_gone_on_from_with_every_record_in_its_lap(
    tmp_path: Path, mode: Mode
) -> None:
    out = Out(mode)

    async def stop(handle: JobHandle) -> None:
        await asyncio.sleep(5)
        await handle.stop()

    stopped = run_job(_job(tmp_path, out), use=stop)
    assert stopped is not None
    assert stopped.outcome == "stopped"
    captured = _captured(tmp_path, 1)
    assert sum(captured.values()) > 0
    if mode in ("aligned", "at_least_once"):
        back = {BACK.format(i, j) for i in range(2) for j in range(2)}
        assert captured.keys() <= back
    before = len(out.rows())
    assert before < COUNT
    result = run_job(_job(tmp_path, out))
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", 1)
    expected = Counter({(name, LAPS): 1 for name in range(COUNT)})
    found = Counter(out.rows())
    assert found == expected or (mode == "at_least_once" and found.keys() == expected.keys())


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_under_way_all_the_time_let_the_loop_end(tmp_path: Path, mode: Mode) -> None:
    out = Out(mode)
    result = run_job(_job(tmp_path, out, every="300ms", alignment_timeout="50ms"))
    assert result is not None
    assert result.outcome == "finished"
    assert result.failed_checkpoints == 0
    assert sorted(out.rows()) == [(name, LAPS) for name in range(COUNT)]


def test_take_from_a_loop_runs_the_whole_loop() -> None:
    async def main() -> list[int]:
        job = sc.Job("x")
        left = job.source(sc.items([4, 3]), name="numbers").iterate(
            lambda loop: loop.map(lambda n: n - 1).branch(bool)
        )
        return await left.take(2)

    assert asyncio.run(main()) == [0, 0]
