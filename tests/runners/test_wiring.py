"""Subtasks and channels of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.wiring import receiver_by_key
from streamcp.runtime.async_subtask import AsyncSubtask
from streamcp.runtime.exactly_once_subtask import TransactionalSubtask
from streamcp.runtime.keyed_async_subtask import KeyedAsyncSubtask
from streamcp.runtime.sink_subtask import AtLeastOnceSubtask
from streamcp.runtime.source_subtask import SourceSubtask
from streamcp.runtime.staged_subtask import StagedSubtask
from streamcp.runtime.step_subtask import StepSubtask
from tests.runtime.engine import Engine


async def write(records: Sequence[Any]) -> None:
    """Take everything."""


class Staged:
    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> None: ...
    async def commit(self, transaction: sc.Transaction, token: None) -> None: ...


class Direct(Staged):
    async def abort(self, transaction: sc.Transaction) -> None: ...


class State:
    """Of a keyed step."""


async def call(record: int) -> int:
    return record


async def keyed_call(record: int, state: State, ctx: sc.KeyContext[int]) -> None: ...


def test_every_step_gets_the_task_of_its_kind() -> None:
    job = sc.Job("job")
    source = job.source(sc.items([1]), name="source")
    source.map(call, name="async").sink(Staged(), name="staged")
    source.key_by(lambda r: r).process(keyed_call, state=State, name="keyed").sink(write, name="p")
    source.rebalance().map(lambda r: r, name="step").sink(Direct(), name="direct")
    engine = Engine(job)
    kinds = {subtask.id.task: type(subtask) for subtask in engine.subtasks}
    assert kinds == {
        "source": SourceSubtask,
        "async": AsyncSubtask,
        "staged": StagedSubtask,
        "keyed": KeyedAsyncSubtask,
        "p": AtLeastOnceSubtask,
        "step": StepSubtask,
        "direct": TransactionalSubtask,
    }


def test_forward_edges_link_equal_indices_and_exchanges_link_all() -> None:
    job = sc.Job("job", parallelism=3)
    step = job.source(sc.items([1]), name="source").rebalance().map(call, name="step")
    step.sink(write, name="out", parallelism=3)
    engine = Engine(job)
    for index in range(3):
        (channel,) = engine[f"out[{index}]"].gate.channels
        assert channel.id.sender.index == index
        assert [c.id.sender.index for c in engine[f"step[{index}]"].gate.channels] == [0]


def test_senders_come_before_their_receivers() -> None:
    job = sc.Job("job")
    left = job.source(sc.items([1]), name="left").map(call, name="a")
    job.source(sc.items([1]), name="right").union(left).map(call, name="b").sink(write, name="out")
    engine = Engine(job)
    places = {subtask.id: place for place, subtask in enumerate(engine.subtasks)}
    for subtask in engine.subtasks:
        for channel in subtask.gate.channels:
            assert places[channel.id.sender] < places[subtask.id]


def test_splits_are_dealt_in_turn() -> None:
    @sc.source(splits=lambda: ["a", "b", "c", "d", "e"])
    async def read(split: str, position: int = 0) -> Any:
        yield split, 1

    job = sc.Job("job")
    job.source(read(), name="source", parallelism=2).sink(write, name="out", parallelism=2)
    engine = Engine(job)
    dealt = [[r.split for r in engine[f"source[{index}]"].readers] for index in range(2)]
    assert dealt == [["a", "c", "e"], ["b", "d"]]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 128])
def test_equal_keys_have_one_receiver_and_all_receivers_are_used(parallelism: int) -> None:
    receiver = receiver_by_key(parallelism, 128)
    assert receiver(1) == receiver(1.0) == receiver(True)
    assert {receiver(key) for key in range(20_000)} == set(range(parallelism))
