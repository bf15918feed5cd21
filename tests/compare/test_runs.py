"""What a child told is kept, and a kill comes when it is due."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streamcp.compare.messages import (
    Checkpoint,
    Ended,
    Failed,
    FirstCommit,
    FirstOutput,
    Running,
    Sample,
)
from streamcp.compare.runs import KillPlan, Life, as_dict, measured_order


def checkpoint(number: int, outcome: str = "completed", kind: str = "periodic") -> Checkpoint:
    values: dict[str, Any] = {"checkpoint_id": number, "outcome": outcome, "kind": kind}
    return Checkpoint(float(number), values)


def life_with(*messages: Any) -> Life:
    life = Life()
    for age, message in enumerate(messages):
        life.add(float(age), message)
    return life


def test_modes_are_measured_there_and_back() -> None:
    assert measured_order(("aligned", "adaptive")) == ("aligned", "adaptive", "adaptive", "aligned")


def test_life_keeps_what_was_told_and_when() -> None:
    life = life_with(
        Running(4, 0.5, 10), FirstOutput(0.1), FirstCommit(0.9), Sample(1.0, 8, 7, 1), Failed("x")
    )

    assert (life.started, life.first_output_age) == (0.0, 1.0)
    assert (life.first_output, life.first_commit, life.error) == (0.1, 0.9, "x")
    assert life.records == 8


def test_records_of_an_ended_run_are_those_of_all_readers() -> None:
    assert life_with(Sample(1.0, 5, 5, 0), Ended(2.0, {"a": 6, "b": 4})).records == 10


def test_last_checkpoint_of_a_job_is_not_among_the_statistics() -> None:
    life = life_with(checkpoint(1), checkpoint(2, "failed"), checkpoint(3, kind="final"))

    assert [one.checkpoint_id for one in life.statistics] == [1, 2]
    assert life.completed == 2


@pytest.mark.parametrize(
    ("messages", "due"),
    [
        ((), False),
        ((Sample(3.9, 0, 0, 0), checkpoint(1)), False),
        ((Sample(4.0, 0, 0, 0),), False),
        ((Sample(4.0, 0, 0, 0), checkpoint(1, "failed")), False),
        ((Sample(4.0, 0, 0, 0), checkpoint(1)), True),
        ((Sample(8.0, 0, 0, 0),), True),
    ],
)
def test_kill_waits_for_a_checkpoint_but_not_for_ever(messages: tuple[Any, ...], due: bool) -> None:
    assert KillPlan(earliest=4.0, latest=8.0, later=0.5).is_due(life_with(*messages)) is due


def test_life_is_plain_json() -> None:
    life = life_with(
        Running(None, 0.5, 0), Sample(1.0, 2, 1, 1), checkpoint(1), Ended(2.0, {"rows": 2})
    )

    plain = orjson.loads(orjson.dumps(as_dict(life)))

    assert plain["seconds"] == 2.0
    assert plain["read"] == {"rows": 2}
    assert plain["checkpoints"][0]["checkpoint_id"] == 1
    assert plain["samples"] == [{"at": 1.0, "read": 2, "written": 1, "queued": 1, "waiting": 0}]
