"""Loops in both graphs: back edges, the tasks that a loop is made of, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.physical import PhysicalPlan, plan
from streamcp.graph.validation import find_problems, validate
from streamcp.identifiers import SubtaskId


async def slow(n: int) -> int:
    return n


def less(n: int) -> int:
    return n - 1


def positive(n: int) -> bool:
    return n > 0


async def write(records: Any) -> None: ...


def down(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
    return loop.map(less, name="less").branch(positive, name="left")


def slowly_down(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
    return loop.map(slow, name="slow").map(less).branch(positive, name="left")


def numbers(job: sc.Job) -> sc.Stream[int]:
    return job.source(sc.items([1, 2, 3]), name="numbers")


def problems(job: sc.Job, *, checkpoints: bool = False) -> list[str]:
    return list(find_problems(job.graph, checkpoints=checkpoints))


def senders(physical: PhysicalPlan, task: str) -> set[str]:
    return {one.task for one in physical.senders()[SubtaskId(task, 0)]}


# ---- the physical graph


def test_loop_of_synchronous_steps_is_one_task_with_an_edge_to_itself() -> None:
    job = sc.Job("x")
    numbers(job).iterate(down, name="loop").sink(write, name="out")
    physical = plan(job.graph)
    assert [task.name for task in physical.tasks] == ["numbers", "loop", "out"]
    assert physical.loops() == [{"loop"}]
    assert [(e.sender, e.receiver) for e in physical.edges if e.is_back] == [("loop", "loop")]


def test_senders_of_a_loop_head_are_those_outside() -> None:
    job = sc.Job("x")
    numbers(job).iterate(slowly_down, name="loop").sink(write, name="out")
    physical = plan(job.graph)
    assert senders(physical, "loop") == {"numbers"}
    assert senders(physical, "slow") == {"loop"}
    assert physical.loops() == [{"loop", "slow"}]


def test_loops_one_behind_another_are_two() -> None:
    job = sc.Job("x")
    first = numbers(job).iterate(slowly_down, name="first")
    first.map(abs).iterate(down_again, name="second").sink(write, name="out")
    assert plan(job.graph).loops() == [{"first", "slow"}, {"second"}]


def down_again(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
    return loop.map(less).branch(positive)


def test_step_that_only_reads_the_loop_is_not_part_of_it() -> None:
    job = sc.Job("x")

    def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        loop.map(slow, name="beside").sink(write, name="seen")
        return slowly_down(loop)

    numbers(job).iterate(body, name="loop").sink(write, name="out")
    assert plan(job.graph).loops() == [{"loop", "slow"}]


# ---- what is refused


def test_good_loop_has_no_problem() -> None:
    job = sc.Job("x", parallelism=2)
    numbers(job).rebalance().iterate(slowly_down, name="loop").rebalance().sink(write, name="out")
    assert problems(job, checkpoints=True) == []


def test_loop_without_a_name_is_told_one_when_checkpoints_are_on() -> None:
    job = sc.Job("x")
    numbers(job).iterate(down).sink(write, name="out")
    (problem,) = problems(job, checkpoints=True)
    assert 'what goes round in it is found by name in a checkpoint: write iterate(…, name="' in (
        problem
    )


def test_feedback_that_does_not_come_from_the_loop_is_refused() -> None:
    job = sc.Job("x")
    stream = numbers(job)
    other = stream.map(abs, name="other")
    stream.iterate(lambda loop: (other, loop.map(less)), name="loop").sink(write, name="out")
    (problem,) = problems(job)
    assert "iterate 'loop'" in problem
    assert "feeds back map 'other'" in problem
    assert "which does not read the loop's stream" in problem


def test_feedback_of_the_loop_itself_would_go_round_for_ever() -> None:
    job = sc.Job("x")
    numbers(job).iterate(lambda loop: (loop, loop), name="loop").sink(write, name="out")
    (problem,) = problems(job)
    assert "every record would go round for ever" in problem


def test_feedback_of_another_job_is_refused() -> None:
    job, other = sc.Job("x"), sc.Job("other")
    foreign = numbers(other)
    numbers(job).iterate(lambda loop: (foreign, loop.map(less)), name="loop").sink(write)
    assert any("belongs to another job" in problem for problem in problems(job))


def test_loop_whose_output_nobody_reads_is_refused() -> None:
    job = sc.Job("x")
    stream = numbers(job)
    stream.iterate(down, name="loop")
    stream.for_each(print)
    (problem,) = problems(job)
    assert "iterate 'loop'" in problem
    assert "nothing that leaves the loop is read" in problem


def test_feedback_of_another_parallelism_needs_an_exchange() -> None:
    job = sc.Job("x")

    def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        return loop.rebalance().map(less, parallelism=3).branch(positive, parallelism=3)

    numbers(job).iterate(body, name="loop").rebalance().sink(write, name="out")
    (problem,) = problems(job)
    assert "iterate 'loop'" in problem
    assert "its feedback branch" in problem
    assert ".rebalance() or .key_by(...)" in problem


def test_loop_in_a_loop_is_refused_naming_both() -> None:
    job = sc.Job("x")

    def body(outer: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        return outer.iterate(down, name="inner").branch(positive)

    numbers(job).iterate(body, name="outer").sink(write, name="out")
    (problem,) = problems(job)
    assert "iterate 'inner'" in problem
    assert "is a loop inside the loop iterate 'outer'" in problem


def test_loop_behind_a_loop_that_is_inside_the_body_but_leaves_it_is_allowed() -> None:
    job = sc.Job("x")

    def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        again, output = down(loop)
        return again, output.iterate(down_again, name="second")

    numbers(job).iterate(body, name="first").sink(write, name="out")
    assert problems(job) == []


def test_errors_of_a_sink_cannot_be_fed_back() -> None:
    job = sc.Job("x")

    def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        failed = loop.sink(write, name="target", on_error="divert").errors
        return failed.map(lambda failure: failure.record), loop.map(less)

    numbers(job).iterate(body, name="loop").sink(write, name="out")
    (problem,) = problems(job)
    assert "feeds back the errors of sink 'target'" in problem


def test_loop_and_overlapping_checkpoints_are_refused_together() -> None:
    job = sc.Job("x")
    numbers(job).iterate(down, name="loop").sink(write, name="out")
    with pytest.raises(sc.BuildError, match=r"iterate 'loop' .*max_concurrent=\) at 1"):
        validate(job.graph, checkpoints=True, overlapping=True)
    validate(job.graph, checkpoints=True)


def test_overlapping_checkpoints_of_a_job_with_a_loop_are_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    job = sc.Job("x", checkpoints=sc.Checkpoints(to=tmp_path, mode="aligned", max_concurrent=2))
    numbers(job).iterate(down, name="loop").sink(write, name="out")
    with pytest.raises(sc.BuildError, match="max_concurrent"):
        job.start()
