"""A barrier crosses all subtasks by plain calls, first in, first out (P12, P13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamcp as sc
from streamcp.elements import Batch
from tests.runtime.engine import Engine


async def write(records: Sequence[Any]) -> None:
    """Take everything."""


def diamond() -> Engine:
    job = sc.Job("job")
    source = job.source(sc.items([1]), name="source")
    yes, no = source.branch(lambda record: record > 0)
    left = yes.map(_async, name="left")
    right = no.map(_async, name="right")
    left.union(right).map(_async, name="joined").sink(write, name="out")
    return Engine(job)


async def _async(record: int) -> int:
    return record


def test_every_subtask_has_acted_when_the_trigger_returns() -> None:
    engine = diamond()
    acted: list[str] = []
    for subtask in engine.subtasks:
        take = subtask.own_sections

        def noting(subtask: Any = subtask, take: Any = take) -> Any:
            acted.append(str(subtask.id))
            return take()

        subtask.own_sections = noting  # type: ignore[method-assign]
    engine.trigger(1)
    assert acted == ["source[0]", "left[0]", "right[0]", "joined[0]", "out[0]"]


def test_partial_batches_are_handed_on_before_the_first_snapshot() -> None:
    engine = diamond()
    engine["left"].output.edges[0].push(["partial"])
    engine.trigger(1)
    joined = engine["joined"]
    [batch] = joined.gate.channels[0].capture(lambda batch: None)
    assert isinstance(batch, Batch)
    assert batch.values == ["partial"]
    assert len(engine.snapshots._added[1]) == len(engine.subtasks)
    kinds = {
        str(one.subtask): [section.section().kind for section in one.sections]
        for one in engine.snapshots._added[1]
    }
    assert kinds["joined[0]"] == ["channel"]


def test_barrier_in_line_goes_only_as_far_as_the_first_queues() -> None:
    engine = diamond()
    engine.trigger(1, unaligned=False)
    assert engine["left"].gate.with_barrier(1) == {0}
    assert [str(one.subtask) for one in engine.snapshots._added[1]] == ["source[0]"]


def test_escalation_takes_barriers_out_of_the_line_everywhere() -> None:
    engine = diamond()
    engine.trigger(1, unaligned=False)
    engine.work_list.escalate(1)
    assert len(engine.snapshots._added[1]) == len(engine.subtasks)
    assert not any(subtask.gate.with_barrier(1) for subtask in engine.subtasks)


def test_cancelled_checkpoint_is_dropped_everywhere() -> None:
    engine = diamond()
    engine.trigger(1, unaligned=False)
    engine.work_list.cancel(1)
    assert not any(subtask.gate.with_barrier(1) for subtask in engine.subtasks)
    assert engine.snapshots._added == {}
    engine.trigger(2)
    assert len(engine.snapshots._added[2]) == len(engine.subtasks)


def test_failing_handler_declines_and_the_others_act() -> None:
    engine = diamond()

    def fail() -> Any:
        raise MemoryError("too much")

    engine["left"].own_sections = fail
    engine.trigger(1)
    assert [one[:2] for one in engine.upward.declined] == [("left[0]", 1)]
    assert "source[0]" in {str(one.subtask) for one in engine.snapshots._added[1]}
