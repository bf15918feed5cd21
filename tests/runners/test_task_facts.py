"""What the coordinator is told of tasks, for the prediction of the alignment time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import streamcp as sc
from streamcp.checkpoint.mode_policy import TaskFacts
from streamcp.runners.tasks import LocalTasks
from streamcp.runtime.replay import Replay
from tests.runtime.engine import Engine, until


async def test_broadcast_record_counts_once_for_its_sender_and_whole_for_every_receiver() -> None:
    out: list[int] = []

    async def write(records: Sequence[int]) -> None:
        out.extend(records)

    def read(record: int, rules: list[int]) -> list[int]:
        return [record]

    def learn(rule: int, rules: list[int]) -> None:
        rules.append(rule)

    job = sc.Job("job", parallelism=3)
    rules = job.source(sc.items(range(40)), name="rules").filter(lambda rule: rule % 2 == 0)
    numbers = job.source(sc.items(range(7)), name="numbers").rebalance()
    told = rules.map(lambda rule: rule, parallelism=1, name="told").broadcast()
    step = numbers.connect(told).process(read, learn, broadcast_state=list, name="step")
    step.rebalance().sink(write, name="out", parallelism=1)
    engine = Engine(job)
    async with engine.running():
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    facts = {one.name: one for one in _facts(engine)}
    assert facts["step"].broadcast_from == {"rules"}
    assert facts["rules"].selectivity == pytest.approx(0.5)
    assert facts["out"].broadcast_from == frozenset()
    assert set(facts["step"].upstream) == {"rules", "numbers"}


def _facts(engine: Engine) -> list[TaskFacts]:
    replay = Replay(engine.subtasks, engine.plan.downstream())
    tasks = LocalTasks(engine.plan, engine.subtasks, engine.work_list, engine.context, replay)
    return tasks.facts()
