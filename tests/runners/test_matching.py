"""Does a checkpoint fit the job as it is drawn now? Everything that does not is told together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.snapshot import (
    Acknowledgement,
    Manifest,
    SectionHandle,
    SectionKind,
    SubtaskStatistics,
)
from streamcp.errors import RestoreRefused
from streamcp.graph.physical import plan
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.runners.matching import check_fits, job_shape, plan_for, task_shapes
from streamcp.testing.storage_checks import example_manifest


async def write(records: Sequence[Any]) -> None:
    """Take everything."""


async def ask(record: Any) -> Any:
    return record


class Staged:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> None: ...
    async def commit(self, transaction: sc.Transaction, token: None) -> None: ...


class Direct(Staged):
    async def abort(self, transaction: sc.Transaction) -> None: ...


def job_of(
    *,
    count: str = "count",
    asks: bool = True,
    sink: Any = Staged,
    parallelism: int = 1,
    max_parallelism: int = 128,
) -> sc.Job:
    job = sc.Job("job", max_parallelism=max_parallelism)
    counted = (
        job.source(sc.items([1]), name="source")
        .key_by(lambda r: r)
        .count(name=count, parallelism=parallelism)
    )
    fn: Any = ask if asks else (lambda record: record)
    asked = counted.map(fn, name="ask", parallelism=parallelism)
    asked.rebalance().sink(sink, name="out", parallelism=1)
    return job


def handle(kind: SectionKind, name: str, records: int, frames: int = 1) -> SectionHandle:
    return SectionHandle(kind, name, records, "data", 0, (1,) * frames, "")


def manifest_of(job: sc.Job, *sections: tuple[str, SectionHandle]) -> Manifest:
    physical = plan(job.graph)
    acknowledgements = tuple(
        Acknowledgement(
            1,
            1,
            subtask,
            tuple(one for task, one in sections if task == str(subtask)),
            SubtaskStatistics(),
        )
        for subtask in physical.subtasks()
    )
    manifest = example_manifest("job", 1, 1)
    return replace(
        manifest,
        tasks=task_shapes(physical),
        acknowledgements=acknowledgements,
        max_parallelism=physical.max_parallelism,
    )


def everything(job: sc.Job) -> Manifest:
    return manifest_of(
        job,
        ("source[0]", handle("position", "source", 0)),
        ("source[0]", handle("state", "count", 3)),
        ("ask[0]", handle("pending", "ask", 4)),
        ("out[0]", handle("transactions", "out", 0, frames=2)),
    )


def test_same_job_fits() -> None:
    check_fits(plan(job_of().graph), everything(job_of()))


def test_other_parallelism_fits() -> None:
    check_fits(plan(job_of(parallelism=3).graph), everything(job_of()))


def test_everything_that_does_not_fit_is_told_together() -> None:
    job = job_of(count="tally", asks=False, sink=write, max_parallelism=64)
    with pytest.raises(RestoreRefused) as caught:
        check_fits(plan(job.graph), everything(job_of()))
    message = str(caught.value)
    for part in (
        "max_parallelism is 64 and was 128",
        "step 'count': state of 3 keys; now there is no such step",
        "step 'ask': 4 pending records; now map (",
        "step 'out': 2 transactions that were not committed; now sink (",
        "allow_unmatched_state=True (--allow-unmatched-state)",
        "--fresh",
    ):
        assert part in message


def test_unmatched_state_is_left_behind_with_a_warning_where_that_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a sink would have committed is never lost in silence."""
    job = job_of(count="tally", sink=write)
    with caplog.at_level(logging.WARNING):
        check_fits(plan(job.graph), everything(job_of()), allow_unmatched_state=True)
    assert "step 'count': state of 3 keys" in caplog.text
    assert "step 'out': 2 transactions that were not committed" in caplog.text


def test_other_max_parallelism_is_refused_whatever_is_allowed() -> None:
    job = job_of(max_parallelism=64)
    with pytest.raises(RestoreRefused, match="max_parallelism") as caught:
        check_fits(plan(job.graph), everything(job_of()), allow_unmatched_state=True)
    assert "allow_unmatched_state" not in str(caught.value)


def on_the_way(sender: str, receiver: str, edge: str, records: int) -> tuple[str, SectionHandle]:
    channel = ChannelId(SubtaskId(sender, 0), SubtaskId(receiver, 0), edge)
    return str(channel.receiver), handle("channel", str(channel), records)


def test_records_on_their_way_along_an_edge_that_is_gone_are_refused_whatever_is_allowed() -> None:
    job = sc.Job("job")
    job.source(sc.items([1]), name="source").sink(write, name="other")
    manifest = manifest_of(job_of(), on_the_way("ask", "out", "ask", 7))
    with pytest.raises(RestoreRefused) as caught:
        check_fits(plan(job.graph), manifest, allow_unmatched_state=True)
    message = str(caught.value)
    for part in ("7 records", "from step 'ask' to step 'out'", "aligned checkpoint or savepoint"):
        assert part in message


def test_step_with_records_on_their_way_is_not_fused() -> None:
    """Parallelism 2 to 1: without a channel these records would have no place."""
    then = job_of(parallelism=2)
    now = job_of(parallelism=1)
    idle = plan_for(now.graph, manifest_of(then))
    assert idle == plan(now.graph)
    assert [task.name for task in idle.tasks] == ["source", "ask", "out"]
    busy = manifest_of(then, on_the_way("source", "count", "source", 5))
    physical = plan_for(now.graph, busy)
    assert [task.name for task in physical.tasks] == ["source", "count", "ask", "out"]
    assert [edge.kind for edge in job_shape(physical).edges] == ["keyed", "forward", "rebalance"]
    check_fits(physical, busy)


def test_step_that_became_synchronous_keeps_its_channel_while_records_are_on_their_way() -> None:
    manifest = manifest_of(job_of(), on_the_way("source", "ask", "count", 5))
    physical = plan_for(job_of(asks=False).graph, manifest)
    assert "ask" in [task.name for task in physical.tasks]
    check_fits(physical, manifest)


@pytest.mark.parametrize(
    ("sink", "kinds"),
    [(Staged, {"transactions"}), (Direct, {"transactions", "pending"}), (write, {"pending"})],
)
def test_each_kind_of_sink_takes_its_sections_back(sink: Any, kinds: set[SectionKind]) -> None:
    assert job_shape(plan(job_of(sink=sink).graph)).places["out"] == kinds
