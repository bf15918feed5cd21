"""Which steps of a user's job go on under another parallelism."""

from __future__ import annotations

from typing import Any

import streamcp as sc
from streamcp.testing.simulation.user_parallelism import change_parallelism


def _drawn(job: sc.Job, most: int = 128) -> dict[str, set[int | None]]:
    """The parallelisms that each step got, by several seeds."""
    drawn: dict[str, set[int | None]] = {}
    for seed in range(30):
        change_parallelism(job.graph.nodes, most, seed)
        for node in job.graph.nodes:
            drawn.setdefault(node.label, set()).add(node.parallelism)
    return drawn


def _job() -> tuple[sc.Job, Any]:
    job = sc.Job("x")
    return job, job.source(sc.items(range(5)), name="numbers").map(abs, name="plain")


def test_steps_behind_an_exchange_change_together_along_forward_edges() -> None:
    job, numbers = _job()
    counted = numbers.key_by(abs).count(name="count").map(str, name="text")
    counted.sink(sc.discard, name="out")
    drawn = _drawn(job)
    assert drawn["numbers"] == {1}
    assert drawn["plain"] == {None}
    assert drawn["count"] == drawn["text"] == drawn["out"] == {1, 2, 3, 4}
    change_parallelism(job.graph.nodes, 128, 7)
    assert len({node.parallelism for node in job.graph.nodes[2:]}) == 1


def test_no_step_has_more_subtasks_than_there_are_key_groups() -> None:
    job, numbers = _job()
    numbers.key_by(abs).count(name="count").sink(sc.discard, name="out")
    assert _drawn(job, most=2)["count"] == {1, 2}


def test_step_with_a_broadcast_input_is_left_as_it_is() -> None:
    def read(number: int, shared: list[int]) -> list[int]:
        return [number]

    def learn(number: int, shared: list[int]) -> list[int]:
        return [number]

    job, numbers = _job()
    both = numbers.rebalance().connect(job.source(sc.items([1]), name="rules").broadcast())
    both.process(read, learn, broadcast_state=list, name="rated").sink(sc.discard, name="out")
    drawn = _drawn(job)
    assert drawn["rated"] == drawn["out"] == {None}
