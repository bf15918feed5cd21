"""Sinks: pending writes, transactions that decide late, staged records (P24, P30, P31, P33)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.operators.steps import SinkStep
from tests.runtime.engine import Engine, Gate, settle, until


class Plain:
    """At least once; each write waits at `gate`, if there is one."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self.records: list[Any] = []
        self.failing: set[Any] = set()

    async def write(self, records: Sequence[Any]) -> None:
        if self.gate is not None:
            await self.gate.pass_("write")
        if self.failing.intersection(records):
            raise ValueError("refused")
        self.records += records


class Target:
    """Transactional. `log` has every call; calls named in `gated` wait at `gate`."""

    def __init__(self, gated: Sequence[str] = ()) -> None:
        self.gate = Gate()
        self.gated = set(gated)
        self.log: list[tuple[str, str]] = []
        self.open: dict[str, list[Any]] = {}
        self.committed: dict[str, list[Any]] = {}
        self.failing: set[str] = set()
        self.refused: set[Any] = set()

    async def _step(self, call: str, name: str) -> None:
        self.log.append((call, name.rsplit(".", 2)[-1]))
        if call in self.gated:
            await self.gate.pass_(call)
        if call in self.failing:
            raise ConnectionError(f"{call} failed")

    async def write(self, records: Sequence[Any], transaction: sc.Transaction) -> None:
        assert transaction.id not in self.committed
        await self._step("write", transaction.id)
        if self.refused.intersection(records):
            raise ValueError("refused")
        self.open.setdefault(transaction.id, []).extend(records)

    async def prepare(self, transaction: sc.Transaction) -> str:
        await self._step("prepare", transaction.id)
        return transaction.id

    async def commit(self, transaction: sc.Transaction, token: str) -> None:
        assert token == transaction.id
        await self._step("commit", transaction.id)
        if transaction.id not in self.committed:
            self.committed[transaction.id] = self.open.pop(transaction.id, [])

    @property
    def visible(self) -> list[Any]:
        return [record for records in self.committed.values() for record in records]


class Direct(Target):
    async def abort(self, transaction: sc.Transaction) -> None:
        self.log.append(("abort", transaction.id))


def parts(gate: Gate, *batches: Sequence[Any]) -> Any:
    """A source whose batches wait for `gate` to let their number pass, and an end that waits."""

    @sc.source
    async def source(position: int = 0) -> Any:
        count = 0
        for number, batch in enumerate([*batches, ()]):
            if count >= position:
                await gate.pass_(number)
            for value in batch:
                count += 1
                if count > position:
                    yield value, count

    return source()


def job_of(source: Any, sink: Any, errors: Plain | None = None, **options: Any) -> sc.Job:
    job = sc.Job("job")
    step = job.source(source, name="source").sink(sink, name="out", **options)
    if errors is not None:
        step.errors.sink(errors, name="errors")
    return job


async def finish(engine: Engine, gate: Gate | None = None) -> None:
    async with engine.running():

        def ended() -> bool:
            if gate is not None:
                gate.open()
            return all(subtask.ended for subtask in engine.subtasks)

        await until(ended)


# ---- at least once


@pytest.mark.parametrize("unaligned", [True, False])
async def test_write_in_progress_is_pending_in_the_snapshot(unaligned: bool) -> None:
    source, writes = Gate(), Gate()
    sink = Plain(writes)
    engine = Engine(job_of(parts(source, [1, 2], [3]), sink))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: "write" in writes.waiting)
        engine.trigger(1, unaligned=unaligned)
        if not unaligned:
            await settle()
            writes.open()
        await engine.until_acknowledged(1)
    found = engine.contents(1)
    if unaligned:
        assert found[("out[0]", "pending")] == [[1, 2]]
    else:
        assert ("out[0]", "pending") not in found
        assert sink.records == [1, 2]


async def test_pending_write_is_repeated_after_restore_and_nothing_is_lost() -> None:
    source, writes = Gate(), Gate()
    sink = Plain(writes)
    engine = Engine(job_of(parts(source, [1, 2], [3]), sink))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: "write" in writes.waiting)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1)
    async with again.running():
        await until(lambda: "write" in writes.waiting)
        # It is still pending: a checkpoint now holds it again.
        again.trigger(2)
        await again.until_acknowledged(2)
        assert again.contents(2)[("out[0]", "pending")] == [[1, 2]]
    sink.gate = None
    await finish(again.restored(2), source)
    assert sink.records == [1, 2, 3]


async def test_written_records_are_not_pending_in_a_checkpoint_that_the_write_lets_in() -> None:
    source = Gate()
    errors = Plain()
    sink = Plain()
    sink.failing = {1}
    engine = Engine(job_of(parts(source, [1, 2]), sink, errors, on_error="divert"))
    async with engine.running():
        await settle()
        engine.context.look_at = 0.0  # something is due at the end of the next slice
        engine["source"].context.look_at = float("inf")
        engine.upward.on_look.append(lambda: None)
        source.open(0)
        await until(lambda: len(errors.records) == 2)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    assert ("out[0]", "pending") not in engine.contents(1)


async def test_steps_that_read_errors_of_a_sink_do_not_run_in_its_task() -> None:
    job = sc.Job("job")
    step = job.source(sc.items([1]), name="source").sink(Plain(), name="out", on_error="divert")
    step.errors.key_by(lambda failure: failure.step).count().sink(Plain(), name="errors")
    assert len(Engine(job)["out"].chain.meters) == 1


async def test_failed_write_is_retried_and_then_fails_the_job() -> None:
    source = Gate()
    sink = Plain()
    sink.failing = {1}
    engine = Engine(job_of(parts(source, [1]), sink, retry=sc.Retry(attempts=3, backoff="0s")))
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True):
        await finish(engine, source)
    assert engine["out"]._step_meter.retries == 2


# ---- transactional


async def test_transactions_are_committed_only_after_their_checkpoint() -> None:
    source = Gate()
    target = Direct()
    engine = Engine(job_of(parts(source, [1, 2], [3]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1)
        await engine.until_acknowledged(1)
        await settle()
        assert target.visible == []
        source.open(1)
        await until(lambda: ("write", "2") in target.log)
        engine.work_list.notify_complete(1)
        await until(lambda: target.visible == [1, 2])
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: target.visible == [1, 2])


async def test_write_in_progress_at_the_barrier_belongs_to_its_transaction() -> None:
    source = Gate()
    target = Direct(gated=["write"])
    engine = Engine(job_of(parts(source, [1, 2], [3]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: "write" in target.gate.waiting)
        engine.trigger(1)
        source.open(1)
        await settle()
        assert not engine.whole(1)
        target.gate.open()
        await until(lambda: ("write", "2") in target.log)
        assert target.log == [("write", "1"), ("prepare", "1"), ("write", "2")]
        await engine.until_acknowledged(1)
        found = engine.contents(1)
        assert [name.rsplit(".", 1)[-1] for name, _ in found[("out[0]", "transactions")]] == ["1"]
        assert ("out[0]", "pending") not in found


async def test_preparation_that_outlives_its_checkpoint_is_not_made_twice() -> None:
    source = Gate()
    target = Direct(gated=["prepare"])
    engine = Engine(job_of(parts(source, [1]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1)
        await until(lambda: "prepare" in target.gate.waiting)
        engine.work_list.cancel(1)
        engine.trigger(2)
        await settle()
        target.gate.open()
        await engine.until_whole(2)
        await until(lambda: target.visible == [1])
    assert target.log == [("write", "1"), ("prepare", "1"), ("commit", "1")]


async def test_failed_preparation_declines_and_the_next_checkpoint_makes_it() -> None:
    source = Gate()
    target = Direct()
    target.failing = {"prepare"}
    engine = Engine(job_of(parts(source, [1], [2]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1)
        await until(lambda: bool(engine.upward.declined))
        assert "prepare failed" in engine.upward.declined[0][3]
        engine.work_list.cancel(1)
        target.failing = set()
        source.open(1)
        await until(lambda: ("write", "2") in target.log)
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: target.visible == [1, 2])


async def test_finished_transactional_sink_takes_part_in_later_checkpoints() -> None:
    source = Gate()
    target = Direct()
    engine = Engine(job_of(parts(source, [1]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1)
        await engine.until_whole(1)
        await until(lambda: target.visible == [1])
        source.open(1)
        await until(lambda: engine["out"].finished)
        engine.trigger(2)
        await engine.until_acknowledged(2)
        assert all(one.finished for one in engine.upward.acknowledged[2].values())


async def test_restored_transactions_are_committed_first() -> None:
    source = Gate()
    target = Direct()
    engine = Engine(job_of(parts(source, [1], [2]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    target.log.clear()
    again = engine.restored(1)
    assert len(again["out"].kept_transactions()) == 1
    async with again.running():
        await until(lambda: target.visible == [1])
        source.open(1)
        await until(lambda: ("write", "1") in target.log)
        again.trigger(2)
        await again.until_whole(2)
        await until(lambda: target.visible == [1, 2])
    assert target.log[0] == ("commit", "1")


async def test_failed_commit_fails_the_job_and_is_made_after_the_restore() -> None:
    source = Gate()
    target = Direct()
    engine = Engine(job_of(parts(source, [1]), target))
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True):
        async with engine.running():
            await settle()
            source.open(0)
            await until(lambda: ("write", "1") in target.log)
            engine.trigger(1)
            target.failing = {"commit"}
            await engine.until_whole(1)
            await settle(1000)
    target.failing = set()
    again = engine.restored(1)
    async with again.running():
        await until(lambda: target.visible == [1])


async def test_diverted_write_that_was_under_way_at_the_barrier_is_not_lost_by_a_restore() -> None:
    source = Gate()
    target = Direct(gated=["write"])
    target.refused = {1}
    errors = Plain()
    engine = Engine(job_of(parts(source, [1], [2]), target, errors, on_error="divert"))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: "write" in target.gate.waiting)
        engine.trigger(1)
        target.gate.open()
        await engine.until_acknowledged(1)
    errors.records.clear()
    target.gated = set()
    again = engine.restored(1)
    async with again.running():
        await until(lambda: [one.record for one in errors.records] == [1])
        again.trigger(2)
        await again.until_whole(2)


# ---- staged


async def test_staged_records_are_delivered_after_completion_only() -> None:
    source = Gate()
    target = Target()
    engine = Engine(job_of(parts(source, [1, 2], [3]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine["out"]._staged == 2)
        engine.trigger(1)
        await engine.until_acknowledged(1)
        assert target.log == []
        ((_, records),) = engine.contents(1)[("out[0]", "transactions")]
        assert records == [1, 2]
        engine.work_list.notify_complete(1)
        await until(lambda: target.visible == [1, 2])
        assert engine["out"]._staged == 0
        source.open(1)
        await until(lambda: engine["out"]._staged == 1)
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: target.visible == [1, 2])


async def test_staged_records_of_a_failed_checkpoint_belong_to_the_next() -> None:
    source = Gate()
    target = Target()
    engine = Engine(job_of(parts(source, [1], [2]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine["out"]._staged == 1)
        engine.trigger(1)
        engine.work_list.cancel(1)
        source.open(1)
        await until(lambda: engine["out"]._staged == 2)
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: target.visible == [1, 2])
    assert len(target.committed) == 2


async def test_full_staged_sink_asks_again_when_its_checkpoint_failed() -> None:
    source = Gate()
    target = Target()
    engine = Engine(job_of(parts(source, range(10)), target), capacity=4, staged_capacity=4)
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine.upward.requests == 1)
        engine.trigger(1)
        await settle()
        engine.work_list.cancel(1)
        await until(lambda: engine.upward.requests == 2)
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: len(target.visible) >= 4)
        checkpoint_id = 3
        while len(target.visible) < 10:
            await settle()
            engine.trigger(checkpoint_id)
            await engine.until_whole(checkpoint_id)
            checkpoint_id += 1
    assert target.visible == list(range(10))


async def test_full_staged_sink_behind_finished_inputs_takes_what_is_left_at_a_checkpoint() -> None:
    source = Gate()
    target = Target()
    engine = Engine(job_of(parts(source, [1], [2]), target), capacity=4, staged_capacity=1)
    async with engine.running():
        while not engine["source"].finished:
            source.open()
            await settle(5)
        assert engine["out"].gate.queued_records > 0
        engine.trigger(1, unaligned=False)
        await engine.until_whole(1)
        await until(lambda: target.visible == [1, 2])


async def test_staged_sink_asks_once_while_it_is_full() -> None:
    source, errors = Gate(), Gate()
    del errors
    target = Target()
    engine = Engine(job_of(parts(source, range(10)), target), capacity=4, staged_capacity=4)
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine.upward.requests == 1)
        for _ in range(5):
            engine["out"].wakeup.set()
            await settle(5)
    assert engine.upward.requests == 1


async def test_restored_staged_transaction_is_delivered_and_named_until_it_is() -> None:
    source = Gate()
    target = Target()
    engine = Engine(job_of(parts(source, [1, 2]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine["out"]._staged == 2)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    target.gated = {"write"}
    again = engine.restored(1)
    async with again.running():
        await until(lambda: "write" in target.gate.waiting)
        again.trigger(2)
        await again.until_acknowledged(2)
        ((_, records),) = again.contents(2)[("out[0]", "transactions")]
        assert records == [1, 2]
        target.gate.open()
        await until(lambda: target.visible == [1, 2])
        again.work_list.notify_complete(2)
        again.trigger(3)
        await again.until_acknowledged(3)
        assert ("out[0]", "transactions") not in again.contents(3)


async def test_failure_of_a_delivery_is_diverted_once_for_every_checkpoint_restored() -> None:
    """Diverted with the commit, in one step: a checkpoint holds the transaction or the failure."""
    source = Gate()
    target = Target(gated=["commit"])
    target.refused = {1}
    errors = Plain()
    engine = Engine(job_of(parts(source, [1]), target, errors, on_error="divert"))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: engine["out"]._staged == 1)
        engine.trigger(1)
        await engine.until_whole(1)
        await until(lambda: "commit" in target.gate.waiting)
        engine.trigger(2)
        await engine.until_acknowledged(2)
        assert errors.records == []
        assert ("out[0]", "transactions") in engine.contents(2)
        target.gate.open()
        await until(lambda: [one.record for one in errors.records] == [1])
        engine.work_list.notify_complete(2)
        engine.trigger(3)
        await engine.until_acknowledged(3)
        assert ("out[0]", "transactions") not in engine.contents(3)


# ---- stop


@pytest.mark.parametrize("kind", [Plain, Direct, Target])
async def test_held_sink_takes_nothing_and_goes_on_when_the_stop_failed(kind: Any) -> None:
    source = Gate()
    sink = kind()
    engine = Engine(job_of(parts(source, [1], [2]), sink))

    def written() -> list[Any]:
        if isinstance(sink, Plain):
            return sink.records
        return [*sink.visible, *(record for records in sink.open.values() for record in records)]

    async with engine.running():
        await settle()
        engine.trigger(1, stopping=True)
        assert engine["out"].held
        source.open(0)
        await settle()
        assert written() == []
        engine.work_list.cancel(1)
        await settle()
        source.open(1)
        await settle(300)
        engine.trigger(2)
        await engine.until_whole(2)
        await until(lambda: written() == [1, 2])


async def test_stopping_transactional_sink_commits_while_it_is_held() -> None:
    source = Gate()
    target = Direct()
    engine = Engine(job_of(parts(source, [1]), target))
    async with engine.running():
        await settle()
        source.open(0)
        await until(lambda: ("write", "1") in target.log)
        engine.trigger(1, stopping=True)
        await engine.until_whole(1)
        assert engine["out"].commits_outstanding
        await until(lambda: target.visible == [1])
        assert not engine["out"].commits_outstanding
        assert engine.upward.commits == ["out[0]"]


async def test_cancelled_error_of_a_sink_fails_the_job() -> None:
    class Odd:
        async def write(self, records: Sequence[Any]) -> None:
            raise asyncio.CancelledError

    source = Gate()
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True):
        await finish(Engine(job_of(parts(source, [1]), Odd())), source)


@pytest.mark.parametrize(
    ("timestamps", "expected"), [(True, [(3, 3000), (4, 4000)]), (False, [3, 4])]
)
async def test_sink_gets_timestamps_only_where_its_step_says_so(
    timestamps: bool, expected: list[Any]
) -> None:
    sink = Plain()
    job = sc.Job("job")
    timed = job.source(
        sc.items([3, 4]), name="in", watermarks=sc.Watermarks[int](lambda n: 1000 * n)
    )
    timed.sink(sink, name="out")
    node = job.graph.nodes[-1]
    assert isinstance(node.spec, SinkStep)
    node.spec = replace(node.spec, timestamps=timestamps)

    async with job.start() as running:
        await running.wait_finished()

    assert sink.records == expected
