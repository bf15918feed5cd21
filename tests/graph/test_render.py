"""The same graph gives the same picture, with and without its tasks."""

from __future__ import annotations

from typing import Any

import streamcp as sc
from streamcp.graph.physical import plan
from streamcp.graph.render import render_mermaid, render_text


async def slow(record: Any) -> Any:
    return record


def _job() -> sc.Job:
    job = sc.Job("words", parallelism=2)
    words = job.source(sc.items(["to be"]), name="lines").rebalance().flat_map(str.split)
    words.key_by(str).count(name="n").for_each(print)
    looked_up = words.map(slow, name="look-up", on_error="divert")
    looked_up.errors.union(looked_up).rebalance().sink(sc.discard(), name="out")
    return job


def test_text_lists_steps_and_what_they_read() -> None:
    assert render_text(_job().graph) == (
        "job words\n"
        "  lines       source     ×1\n"
        "  flat_map-1  flat_map   ×2  ← lines (rebalance)\n"
        "  n           count      ×2  ← flat_map-1 (by key)\n"
        "  for_each-3  for_each   ×2  ← n\n"
        "  look-up     async map  ×2  ← flat_map-1\n"
        "  out         sink       ×1  ← look-up.errors (rebalance), look-up (rebalance)\n"
    )


def test_text_with_a_plan_groups_steps_by_task() -> None:
    graph = _job().graph
    text = render_text(graph, plan(graph))
    assert "  task n ×2\n    n           count" in text
    assert "    for_each-3  for_each   ×2  ← n\n  task look-up ×2\n" in text


def _keep(record: Any, state: dict[str, int], ctx: Any) -> None: ...
def _note(record: Any, shared: dict[str, int]) -> None: ...


def _job_of_two_inputs() -> sc.Job:
    job = sc.Job("two", parallelism=2)
    records, rules = job.source(sc.items([1]), name="a"), job.source(sc.items([2]), name="b")
    both = records.key_by(str).connect(rules.key_by(str)).process(_keep, _keep, state=dict)
    told = both.connect(rules.broadcast()).process(_note, _note, broadcast_state=dict, name="told")
    told.for_each(print)
    return job


def test_text_tells_which_input_is_the_second() -> None:
    graph = _job_of_two_inputs().graph
    assert render_text(graph).splitlines()[3:5] == [
        "  process-2   process   ×2  ← a (by key), b (by key, input 2)",
        "  told        process   ×2  ← process-2, b (broadcast, input 2)",
    ]
    assert '  n1 -->|"broadcast, input 2"| n3' in render_mermaid(graph).splitlines()


def test_step_with_two_inputs_starts_a_task_and_its_edges_tell_the_input() -> None:
    graph = _job_of_two_inputs().graph
    physical = plan(graph)
    assert [task.name for task in physical.tasks] == ["a", "b", "process-2", "told"]
    assert [(edge.name, edge.connection.port) for edge in physical.edges] == [
        ("a", 0),
        ("b, input 2", 1),
        ("process-2", 0),
        ("b, input 2", 1),
    ]


def test_mermaid_draws_steps_and_arrows() -> None:
    lines = render_mermaid(_job().graph).splitlines()
    assert lines[:2] == ["flowchart LR", '  n0(["lines<br/>source ×1"])']
    assert '  n5[["out<br/>sink ×1"]]' in lines
    assert '  n0 -->|"rebalance"| n1' in lines
    assert '  n1 -->|"by key"| n2' in lines
    assert "  n2 --> n3" in lines
    assert '  n4 -->|"errors, rebalance"| n5' in lines


def test_mermaid_with_a_plan_draws_tasks_as_boxes() -> None:
    graph = _job().graph
    lines = render_mermaid(graph, plan(graph)).splitlines()
    start = lines.index('  subgraph t2["n ×2"]')
    assert lines[start + 1 : start + 4] == [
        '    n2["n<br/>count ×2"]',
        '    n3[["for_each-3<br/>for_each ×2"]]',
        "  end",
    ]


def test_back_edge_of_a_loop_is_told_in_words_and_drawn_with_dots() -> None:
    job = sc.Job("loop")
    numbers = job.source(sc.items([3]), name="numbers")
    numbers.iterate(
        lambda loop: loop.map(lambda n: n - 1, name="less").branch(bool, name="left"), name="down"
    ).for_each(print)
    assert "  down        iterate   ×1  ← numbers, left.yes (back)\n" in render_text(job.graph)
    lines = render_mermaid(job.graph).splitlines()
    assert '  n3 -.->|"yes, back"| n1' in lines
    assert "  n0 --> n1" in lines


def test_names_cannot_break_out_of_the_picture() -> None:
    job = sc.Job("x")
    job.source(sc.items([1]), name='a"]<b>&').for_each(print)
    assert '  n0(["a&quot;]&lt;b>&amp;<br/>source ×1"])' in render_mermaid(job.graph)


def test_empty_job_has_a_picture() -> None:
    graph = sc.Job("x").graph
    assert render_text(graph) == "job x\n"
    assert render_mermaid(graph) == "flowchart LR\n"
