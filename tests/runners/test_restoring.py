"""Choosing a checkpoint, and what a job gets back that has not changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import streamcp as sc
from streamcp.elements import EndOfInput
from streamcp.errors import CheckpointDamaged, RestoreRefused
from streamcp.graph.physical import PhysicalPlan, plan
from streamcp.runners.matching import task_shapes
from streamcp.runners.restoring import choose
from streamcp.storage.contract import CompletedCheckpoint
from streamcp.testing.storage_checks import example_manifest
from tests.runtime.engine import Engine, settle


async def write(records: Sequence[Any]) -> None:
    """Take everything."""


class Direct:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> None: ...
    async def commit(self, transaction: sc.Transaction, token: None) -> None: ...
    async def abort(self, transaction: sc.Transaction) -> None: ...


def plan_of(sink: Any = write, *, step: str = "step", parallelism: int = 1) -> PhysicalPlan:
    job = sc.Job("job")
    source = job.source(sc.items([1]), name="source").rebalance()
    source.map(lambda r: r, name=step, parallelism=parallelism).rebalance().sink(sink, name="out")
    return plan(job.graph)


class Shelf:
    """A storage with some damaged checkpoints."""

    def __init__(self, physical: PhysicalPlan, *damaged: int) -> None:
        self.physical = physical
        self.damaged = damaged

    def load_manifest(self, checkpoint_id: int) -> Any:
        if checkpoint_id in self.damaged:
            raise CheckpointDamaged(f"file {checkpoint_id} is short")
        manifest = example_manifest("job", checkpoint_id, 1)
        return replace(manifest, tasks=task_shapes(self.physical), acknowledgements=())


def chosen(physical: PhysicalPlan, damaged: Sequence[int], **options: Any) -> int | None:
    completed = [CompletedCheckpoint(n, n, 1) for n in (1, 2, 3)]
    shelf: Any = Shelf(physical, *damaged)
    found = choose(shelf, completed, physical, accept_duplicates=options.get("accept", False))
    return None if found is None else found.manifest.checkpoint_id


def test_newest_complete_checkpoint_is_chosen() -> None:
    assert chosen(plan_of(), []) == 3


def test_nothing_complete_means_a_fresh_start() -> None:
    assert choose(Shelf(plan_of()), [], plan_of(), accept_duplicates=False) is None  # type: ignore[arg-type]


def test_damaged_checkpoint_is_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen(plan_of(), [3]) == 2
    assert "file 3 is short" in caplog.text


def test_older_checkpoint_is_refused_where_output_would_be_doubled() -> None:
    with pytest.raises(RestoreRefused, match="accept_duplicates") as caught:
        chosen(plan_of(Direct()), [3])
    assert "'out'" in str(caught.value)
    assert chosen(plan_of(Direct()), [3], accept=True) == 2


def test_all_damaged_raises_the_newest_damage() -> None:
    with pytest.raises(CheckpointDamaged, match="file 3"):
        chosen(plan_of(), [1, 2, 3])


async def test_finished_senders_end_their_outputs_behind_captured_data() -> None:
    job = sc.Job("job")
    job.source(sc.items([1, 2]), name="source").sink(write, name="out")
    engine = Engine(job)
    source = engine["source"]
    await source.run()
    assert source.finished
    engine.trigger(1)
    await _write(engine)
    again = engine.restored(1)
    (channel,) = again["out"].gate.channels
    elements = [channel.take() for _ in range(len(channel))]
    assert [getattr(element, "values", element) for element in elements] == [
        [1, 2],
        EndOfInput(),
    ]


async def _write(engine: Engine) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.snapshots.run())
        await engine.until_acknowledged(1)
        task.cancel()
    await settle(1)


async def test_state_of_a_step_that_was_renamed_is_refused() -> None:
    def build(name: str) -> sc.Job:
        job = sc.Job("job")
        (
            job.source(sc.items([1, 2]), name="source")
            .key_by(lambda r: r)
            .count(name=name)
            .sink(write, name="out")
        )
        return job

    engine = Engine(build("count"))
    await engine["source"].run()
    engine.trigger(1)
    await _write(engine)
    with pytest.raises(RestoreRefused, match="step 'count': state of 2 keys"):
        engine.restored(1, build("tally"))


def test_only_sinks_that_commit_are_recorded_as_exactly_once() -> None:
    recorded = {
        kind: [name for task in task_shapes(plan_of(kind)) for name in task.exactly_once]
        for kind in (write, sc.discard, Direct)
    }
    assert recorded == {write: [], sc.discard: [], Direct: ["out"]}
