from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Write = Callable[..., Path]

JOB = """
async def ask(x: int) -> int:
    return x
@sc.job
def drawn(width: int, text: str = "t") -> sc.Job:
    job = sc.Job("drawn")
    (job.source(sc.items([1]), name="in").map(lambda x: x, name="fused")
        .rebalance().map(ask, name="ask", parallelism=width)
        .key_by(lambda x: x).sink(sc.discard(), name="out"))
    return job
"""


@pytest.fixture
def drawn(write: Write) -> None:
    write(JOB)


def test_text_shows_tasks_and_channels(cli: Cli, drawn: None) -> None:
    ran = cli("graph", "my_job.py", "--width", "2")
    assert ran.code == 0, ran.err
    assert "task in ×1" in ran.out
    assert "in -> ask: 2" in ran.out
    assert "ask -> out: 2" in ran.out


def test_mermaid_draws_a_flowchart(cli: Cli, drawn: None) -> None:
    ran = cli("graph", "my_job.py", "--width", "2", "--mermaid")
    assert ran.out.startswith("flowchart LR\n")


def test_json_holds_steps_tasks_and_channels(cli: Cli, drawn: None) -> None:
    ran = cli("graph", "--json", "my_job.py", "--width", "2")
    document = json.loads(ran.out)
    assert [step["name"] for step in document["steps"]] == ["in", "fused", "ask", "out"]
    assert document["tasks"][0] == {"name": "in", "parallelism": 1, "steps": ["in", "fused"]}
    assert [one["exchange"] for one in document["channels"]] == [
        "rebalance",
        "rebalance",
        "by_key",
        "by_key",
    ]
    assert document["channels"][1]["receiver"] == "ask[1]"


def test_json_tells_the_input_and_that_an_exchange_is_a_broadcast(cli: Cli, write: Write) -> None:
    write(
        "def note(record, shared): ...\n"
        "job = sc.Job('x')\n"
        "a, b = job.source(sc.items([1]), name='a'), job.source(sc.items([1]), name='b')\n"
        "step = a.connect(b.broadcast()).process(note, note, broadcast_state=dict, name='both')\n"
        "step.for_each(print)\n"
    )
    document = json.loads(cli("graph", "--json", "my_job.py").out)
    both = next(step for step in document["steps"] if step["name"] == "both")
    assert [(one["step"], one["exchange"], one["input"]) for one in both["inputs"]] == [
        ("a", "forward", 1),
        ("b", "broadcast", 2),
    ]


def test_option_of_the_job_wins_over_one_of_the_command(cli: Cli, drawn: None) -> None:
    assert cli("graph", "my_job.py", "--width", "1", "--text", "mine").code == 0
    assert cli("graph", "--text", "my_job.py", "--width", "1").code == 0


def test_job_that_cannot_be_built_is_wrong_use(cli: Cli, write: Write) -> None:
    write("job = sc.Job('x')\njob.source(sc.items([1]))\n")
    ran = cli("graph", "my_job.py")
    assert ran.code == 2
    assert "cannot be built" in ran.err
