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


def test_names_cannot_break_out_of_the_picture() -> None:
    job = sc.Job("x")
    job.source(sc.items([1]), name='a"]<b>&').for_each(print)
    assert '  n0(["a&quot;]&lt;b>&amp;<br/>source ×1"])' in render_mermaid(job.graph)


def test_empty_job_has_a_picture() -> None:
    graph = sc.Job("x").graph
    assert render_text(graph) == "job x\n"
    assert render_mermaid(graph) == "flowchart LR\n"
