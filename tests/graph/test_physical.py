"""From steps to tasks: what is fused, and who is behind whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamcp as sc
from streamcp.graph.physical import plan


async def write(records: Sequence[Any]) -> None:
    """Take everything, in a task of its own."""


def _job() -> sc.Job:
    job = sc.Job("words")
    words = job.source(sc.items(["to be"]), name="lines").flat_map(str.split, name="split")
    counted = words.key_by(str).count(name="n").map(str)
    counted.union(words).rebalance().sink(write, name="out")
    job.source(sc.items([1]), name="other").sink(write, name="elsewhere")
    return job


def test_steps_set_apart_start_a_task_with_the_exchange_they_would_have() -> None:
    fused, apart = plan(_job().graph), plan(_job().graph, {"n", "lines", "nobody"})
    assert [task.name for task in fused.tasks] == ["lines", "out", "other", "elsewhere"]
    assert [task.name for task in apart.tasks] == ["lines", "n", "out", "other", "elsewhere"]
    assert ("split", "lines", "n") in [(e.name, e.sender, e.receiver) for e in apart.edges]


def test_downstream_names_all_tasks_that_records_can_reach() -> None:
    downstream = plan(_job().graph, {"n"}).downstream()
    assert downstream == {
        "lines": {"n", "out"},
        "n": {"out"},
        "out": set(),
        "other": {"elsewhere"},
        "elsewhere": set(),
    }
