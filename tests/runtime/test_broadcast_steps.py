"""Steps with a broadcast input: the same state on every subtask, whatever the cut (P17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Gate, Outputs, settle, until


@dataclass
class Rule:
    number: int
    limit: int = 0


@dataclass
class Rules:
    numbers: list[int] = field(default_factory=list)


@dataclass
class Seen:
    records: list[int] = field(default_factory=list)


def keep(record: int, rules: Rules) -> list[str]:
    return [f"record {record}"]


def learn(rule: Rule, rules: Rules) -> list[str]:
    rules.numbers.append(rule.number)
    return [f"rule {rule.number}"]


def keep_keyed(record: int, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> list[str]:
    seen.records.append(record)
    return [f"record {record}"]


def learn_keyed(rule: Rule, rules: Rules, ctx: sc.BroadcastContext[int, Seen]) -> list[str]:
    return learn(rule, rules)


class Bench(Outputs):
    """Numbers, divided among the subtasks, beside rules that reach all of them."""

    def __init__(
        self,
        records: int,
        rules: int | sc.Source[Rule],
        *,
        keyed: bool = False,
        on_record: Callable[..., Any] | None = None,
        on_rule: Callable[..., Any] | None = None,
        parallelism: int = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        self.job = sc.Job("job", types=[Rule, Rules, Seen], parallelism=parallelism)
        numbers = self.job.source(sc.items(range(records)), name="numbers")
        if isinstance(rules, int):
            rules = sc.items([Rule(i) for i in range(rules)])
        all_rules = self.job.source(rules, name="rules").broadcast()
        options |= {"broadcast_state": Rules, "name": "step"}
        step: sc.Step[Any, str]
        if keyed:
            connected = numbers.key_by(lambda number: number % 7).connect(all_rules)
            step = connected.process(
                on_record or keep_keyed, on_rule or learn_keyed, state=Seen, **options
            )
        else:
            dealt = numbers.rebalance().connect(all_rules)
            step = dealt.process(on_record or keep, on_rule or learn, **options)
        self.collect(step, diverts=options.get("on_error") == "divert")


def expected(records: int, rules: int, parallelism: int) -> list[str]:
    """What comes out: each record once, each rule once per subtask."""
    told = [f"rule {i}" for i in range(rules)] * parallelism
    return sorted([*(f"record {i}" for i in range(records)), *told])


def broadcast_states(engine: Engine, checkpoint_id: int) -> list[list[int]]:
    return [
        rules.numbers
        for (_, kind), frames in engine.contents(checkpoint_id).items()
        if kind == "broadcast"
        for rules in frames
    ]


async def finish(engine: Engine) -> list[list[int]]:
    """Run to the end, and read the broadcast states from a last checkpoint."""
    async with engine.running():
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
        engine.trigger(9)
        await engine.until_acknowledged(9)
    return broadcast_states(engine, 9)


async def failure_of(bench: Bench, **options: Any) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        await finish(Engine(bench.job, **options))
    (error,) = caught.value.exceptions
    assert isinstance(error, StepFailed)
    return str(error)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("sizes", [(0, 0), (20, 0), (0, 20), (50, 30)])
async def test_every_rule_reaches_every_subtask_and_every_record_one(
    keyed: bool, parallelism: int, sizes: tuple[int, int]
) -> None:
    bench = Bench(*sizes, keyed=keyed, parallelism=parallelism)
    states = await finish(Engine(bench.job, capacity=8))
    assert states == [list(range(sizes[1]))] * parallelism
    assert sorted(bench.out) == expected(*sizes, parallelism)


@pytest.mark.parametrize("keyed", [False, True])
async def test_records_read_the_rules_that_came_before_them(keyed: bool) -> None:
    def tell(record: int, *others: Any) -> list[str]:
        return [f"{record}: {others[1 if keyed else 0].numbers}"]

    bench = Bench(1, 2, keyed=keyed, on_record=tell)
    engine = Engine(bench.job)
    step = engine["step"]
    step.gate.blocked.add(0)
    async with engine.running():
        await until(lambda: len(bench.out) == 2)
        step.gate.resume([0])
        step.wakeup.set()
        await until(lambda: len(bench.out) == 3)
    assert bench.out == ["rule 0", "rule 1", "0: [0, 1]"]


async def in_flight(engine: Engine, *, unaligned: bool) -> set[str]:
    """Trigger while the sink takes nothing, and name the captured edges of the step."""
    async with engine.running():
        await settle(300)
        engine.trigger(1, unaligned=unaligned)
        if not unaligned:
            engine.work_list.escalate(1)
        await engine.until_acknowledged(1)
    return {
        section.name.partition(" (")[2]
        for subtask, section in engine.disk.written[1]
        if section.kind == "channel" and subtask.task == "step"
    }


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "escalated"])
async def test_broadcast_state_is_equal_on_all_subtasks_after_a_restore(
    keyed: bool, parallelism: int, unaligned: bool
) -> None:
    """FLINK-33693, FLINK-22815: a broadcast edge in a job whose alignment timeout elapses."""
    bench = Bench(60, 60, keyed=keyed, parallelism=parallelism)
    bench.gate = Gate()
    engine = Engine(bench.job, capacity=4)
    assert "rules, input 2)" in await in_flight(engine, unaligned=unaligned)
    bench.gate = None
    bench.out.clear()
    assert await finish(engine.restored(1)) == [list(range(60))] * parallelism
    assert sorted(bench.out) == expected(60, 60, parallelism)


@pytest.mark.parametrize("turns", range(0, 60, 9))
@pytest.mark.parametrize("unaligned", [True, False])
async def test_cut_at_any_moment_is_exact(turns: int, unaligned: bool) -> None:
    bench = Bench(50, 50, keyed=True, parallelism=2)
    engine = Engine(bench.job, capacity=5)
    async with engine.running():
        for _ in range(turns):
            await asyncio.sleep(0)
        engine.trigger(1, unaligned=unaligned)
        await engine.until_acknowledged(1)
    again = engine.restored(1)
    assert await finish(again) == [list(range(50))] * 2
    seen = [
        number
        for (_, kind), frames in again.contents(9).items()
        if kind == "state"
        for rows in frames
        for _, state, _ in rows
        for number in state.records
    ]
    assert sorted(seen) == list(range(50))


async def test_state_that_rests_is_not_frozen_again() -> None:
    gate = Gate()

    @sc.source
    async def rules(position: int = 0) -> AsyncIterator[tuple[Rule, int]]:
        for number in range(position, 2):
            yield Rule(number), number + 1
            await gate.pass_("rule")

    bench = Bench(1, rules())
    engine = Engine(bench.job)
    frozen = []
    async with engine.running():
        await until(lambda: len(bench.out) == 2)
        for checkpoint_id in (1, 2, 3):
            if checkpoint_id == 3:
                gate.open()
                await until(lambda: len(bench.out) == 3)
            engine.trigger(checkpoint_id)
            await engine.until_acknowledged(checkpoint_id)
            sections = [section for _, section in engine.disk.written[checkpoint_id]]
            frozen += [section.frames[0] for section in sections if section.kind == "broadcast"]
        gate.open()
    assert frozen[0] is frozen[1]
    assert frozen[2] != frozen[1]


# ---- who may change what


@pytest.mark.parametrize("keyed", [False, True])
async def test_record_that_changes_the_broadcast_state_fails_the_job(keyed: bool) -> None:
    def change(record: int, *others: Any) -> None:
        others[1 if keyed else 0].numbers.append(record)

    told = await failure_of(Bench(3, 0, keyed=keyed, on_record=change))
    assert "step 'step'" in told
    assert "changed the broadcast state" in told
    assert "only the function of the broadcast input may change it" in told


async def test_change_in_a_slice_that_is_not_looked_at_is_found_in_a_later_one() -> None:
    def change(record: int, rules: Rules) -> None:
        if record == 2:
            rules.numbers.append(record)

    told = await failure_of(Bench(40, 0, on_record=change), capacity=1)
    assert "failed at record 3: BroadcastStateChanged" in told


@pytest.mark.parametrize("side", ["record", "rule"])
@pytest.mark.parametrize("keyed", [False, True])
async def test_broadcast_state_itself_cannot_be_emitted(side: str, keyed: bool) -> None:
    def emit_on_record(record: int, *others: Any) -> list[Any]:
        return [others[1 if keyed else 0]]

    def emit_on_rule(rule: Rule, rules: Rules, *others: Any) -> list[Any]:
        return [rules]

    functions = {"on_record": emit_on_record} if side == "record" else {"on_rule": emit_on_rule}
    told = await failure_of(Bench(1, 1, keyed=keyed, **functions))
    assert "it returned its state object itself" in told


async def test_state_of_a_key_cannot_be_emitted_either() -> None:
    def emit(record: int, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> list[Any]:
        return [seen]

    told = await failure_of(Bench(1, 0, keyed=True, on_record=emit))
    assert "it returned its state object itself" in told


async def test_rule_reads_copies_of_the_states_of_its_subtask() -> None:
    gate = Gate()

    @sc.source
    async def rules(position: int = 0) -> AsyncIterator[tuple[Rule, int]]:
        await gate.pass_("rule")
        yield Rule(1), 1

    def meddle(rule: Rule, rules: Rules, ctx: sc.BroadcastContext[int, Seen]) -> list[str]:
        rules.numbers.append(rule.number)
        found = dict(ctx.states())
        for state in found.values():
            state.records.clear()
        return [f"{sorted(found)}"]

    bench = Bench(3, rules(), keyed=True, on_rule=meddle)
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: len(bench.out) == 3)
        gate.open("rule")
        await until(lambda: len(bench.out) == 4)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    assert bench.out[-1] == "[0, 1, 2]"
    rows = [row for frame in engine.contents(1)[("step[0]", "state")] for row in frame]
    assert {key: state.records for key, state, _ in rows} == {0: [0], 1: [1], 2: [2]}


@pytest.mark.parametrize("keyed", [False, True])
async def test_failed_rule_is_diverted_by_every_subtask_and_leaves_no_trace(keyed: bool) -> None:
    def fail(rule: Rule, rules: Rules, *others: Any) -> None:
        rules.numbers.append(rule.number)
        if rule.number == 1:
            raise ValueError("no such rule")

    bench = Bench(0, 3, keyed=keyed, on_rule=fail, parallelism=2, on_error="divert")
    assert await finish(Engine(bench.job)) == [[0, 2]] * 2
    assert [failure.record for failure in bench.errors] == [Rule(1)] * 2


async def test_failed_record_is_diverted_and_leaves_no_trace_in_its_state() -> None:
    def fail(record: int, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> None:
        seen.records.append(record)
        if record == 1:
            raise ValueError("not this one")

    bench = Bench(3, 1, keyed=True, on_record=fail, on_error="divert")
    engine = Engine(bench.job)
    await finish(engine)
    assert [failure.record for failure in bench.errors] == [1]
    rows = [row for frame in engine.contents(9)[("step[0]", "state")] for row in frame]
    assert {key: state.records for key, state, _ in rows} == {0: [0], 1: [], 2: [2]}


async def test_failure_of_a_rule_names_step_and_rule() -> None:
    def fail(rule: Rule, rules: Rules) -> None:
        raise ValueError("no such rule")

    told = await failure_of(Bench(0, 1, on_rule=fail))
    assert "step 'step'" in told
    assert "record Rule(number=0, limit=0): ValueError: no such rule" in told


async def test_timer_reads_the_rules() -> None:
    gate = Gate()

    @sc.source
    async def rules(position: int = 0) -> AsyncIterator[tuple[Rule, int]]:
        yield Rule(5), 1
        await gate.pass_("end")

    def start(record: int, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="1h")

    def fire(timestamp: int, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> list[str]:
        return [f"{ctx.key}: {rules.numbers}"]

    bench = Bench(2, rules(), keyed=True, on_record=start, on_timer=fire)
    clock = ManualClock(tick=1e-6)
    engine = Engine(bench.job, clock=clock)
    async with engine.running():
        await until(lambda: engine["step"].meter.records_in == 3)
        clock.advance(3600)
        engine["step"].wakeup.set()
        await until(lambda: len(bench.out) == 3)
        gate.open("end")
    assert sorted(bench.out) == ["0: [5]", "1: [5]", "rule 5"]
