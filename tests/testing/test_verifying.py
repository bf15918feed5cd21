"""The verification finds what is wrong with a step, and says where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.assignment import Assignment
from streamcp.identifiers import SubtaskId
from streamcp.runtime.async_subtask import AsyncSubtask
from streamcp.runtime.keyed_steps import Effects
from streamcp.state.keyed import KeyedState
from streamcp.testing import Advance, At, EndOfInput, IdleStatus, On, Watermark, verify_operator
from streamcp.testing.verifying import differ


@dataclass
class Sum:
    total: int = 0
    seen: list[int] = field(default_factory=list)


def add(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
    state.total += number
    return [state.total]


def summed(stream: sc.Stream[int]) -> sc.Stream[int]:
    return stream.key_by(lambda n: 0).process(add, state=Sum, name="add")


def reported(
    step: Callable[..., sc.Stream[Any]], given: list[Any], expected: list[Any], **options: Any
) -> str:
    with pytest.raises(AssertionError) as caught:
        verify_operator(step, given, expected, **options)
    return str(caught.value)


# ---- planted faults of a user's step


def test_step_that_keeps_something_beside_its_state_is_found_at_the_first_restore() -> None:
    def counting() -> Callable[[sc.Stream[int]], sc.Stream[int]]:
        """Every drawing of the step counts from one on: the first one alone is honest."""

        def draw(stream: sc.Stream[int]) -> sc.Stream[int]:
            seen: list[int] = []

            def count(number: int) -> int:
                seen.append(number)
                return len(seen)

            return stream.map(count, name="count")

        return draw

    report = reported(counting(), [7, 7, 7], [1, 2, 3])
    assert "count (" in report
    assert "run restored from a snapshot before every element, which came again" in report
    assert "first behind element 0, 7\n  plainly: [1]\n  here:    [2]" in report


def test_step_that_answers_once_more_when_it_is_called_again_is_found() -> None:
    def hears_twice() -> Callable[[sc.Stream[int]], sc.Stream[int]]:
        def draw(stream: sc.Stream[int]) -> sc.Stream[int]:
            heard: set[int] = set()

            def hear(number: int) -> list[int]:
                repeated = number in heard
                heard.add(number)
                return [number, number] if repeated else [number]

            return stream.flat_map(hear, name="hear")

        return draw

    report = reported(hears_twice(), [1, 2], [1, 2])
    assert "too many: [1, 2]" in report


def test_wrong_expectation_is_told_plainly() -> None:
    report = reported(lambda s: s.map(abs, name="absolute"), [-1, 2], [1, 3])
    assert report.startswith("absolute (")
    assert "run plainly:\n  expected: [1, 3]\n  got:      [1, 2]\n" in report
    assert "missing:  [3]\n  too many: [2]" in report


def test_other_order_is_told() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(number)
        return number

    def unordered(stream: sc.Stream[int]) -> sc.Stream[int]:
        return stream.map(slowly, ordered=False, name="slowly")

    assert "the order is another one" in reported(unordered, [2, 1], [2, 1])
    verify_operator(unordered, [2, 1], [2, 1], order="any", seeds=(0,))


def test_failing_step_is_told_with_the_element() -> None:
    report = reported(lambda s: s.map(lambda n: 1 // n, name="divide"), [1, 0], [1, 0])
    assert "run plainly at element 1, 0: " in report
    assert "ZeroDivisionError" in report


def test_step_that_never_ends_is_told_so() -> None:
    async def hang(number: int) -> int:
        await asyncio.Event().wait()
        return number

    report = reported(lambda s: s.map(hang, name="hang"), [1], [1])
    assert "run plainly at the end of all input: no callback is ready" in report


# ---- planted faults of built-in steps


def test_state_that_is_not_restored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyedState, "restore", lambda self, rows, **options: None)
    report = reported(summed, [1, 2], [1, 3])
    assert "run restored from a snapshot behind every element:" in report
    assert "first behind element 1, 2\n  plainly: [1, 3]\n  here:    [1, 2]" in report


def test_timer_that_is_lost_by_a_restore_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
        state.seen.append(number)
        ctx.set_timer(after="10s")

    def tell(timestamp: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        return state.seen[:]

    def step(stream: sc.Stream[int]) -> sc.Stream[int]:
        keyed = stream.key_by(lambda n: n)
        return keyed.process(remember, state=Sum, on_timer=tell, name="remember")

    verify_operator(step, [1, Advance("10s")], [1])
    restored = KeyedState.restore

    def without_timers(self: KeyedState, rows: Any, **options: Any) -> None:
        restored(self, [(*row[:2], ()) for row in rows])

    monkeypatch.setattr(KeyedState, "restore", without_timers)
    report = reported(step, [1, Advance("10s")], [1])
    assert "first behind element 1, Advance" in report
    assert "missing:  [1]" in report


def test_state_that_goes_to_the_wrong_subtask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Assignment.owner

    def next_one(self: Assignment, step: str, group: int) -> SubtaskId:
        own, parallelism = owner(self, step, group), self._task_of[step].parallelism
        return SubtaskId(own.task, (own.index + 1) % parallelism)

    monkeypatch.setattr(Assignment, "owner", next_one)
    report = reported(summed, [1, 2, 3, 4], [1, 3, 6, 10])
    assert "run restored under another parallelism behind every element:" in report


def test_result_that_is_emitted_again_because_there_is_no_room_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def echo(number: int) -> int:
        return number

    emit_results = AsyncSubtask.emit_results

    def emit_again(self: AsyncSubtask) -> bool:
        emitted = emit_results(self)
        if emitted and not self.output.writable:
            self._emit([0])
        return emitted

    monkeypatch.setattr(AsyncSubtask, "emit_results", emit_again)
    report = reported(lambda s: s.map(echo, name="echo"), [1, 2], [1, 2])
    assert "run with a full output queue:" in report


def test_side_effect_that_is_dropped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tag = sc.Tag[int]("aside")

    def aside(number: int, state: Sum, ctx: sc.KeyContext[int]) -> None:
        state.total += 1
        ctx.emit_to(tag, state.total)

    def step(stream: sc.Stream[int]) -> sc.Stream[int]:
        return stream.key_by(lambda n: 0).process(aside, state=Sum, name="aside").side(tag)

    verify_operator(step, [5, 6], [1, 2])
    monkeypatch.setattr(Effects, "emit", lambda self, output, value: None)
    assert "missing:  [1, 2]" in reported(step, [5, 6], [1, 2])


# ---- what is given


def test_each_kind_of_element_reaches_the_step() -> None:
    late: list[Any] = [At(1, "a"), Watermark(10), At(2, "b"), At(11, "c")]

    def counted(stream: sc.Stream[str]) -> sc.Stream[Any]:
        windowed = stream.key_by(lambda word: 0).window(sc.Tumbling("10ms"), name="count")
        return windowed.count().map(lambda result: (result.start, result.value))

    verify_operator(counted, late, [(0, 1), (10, 1)])


def test_idle_and_ended_inputs_no_longer_hold_event_time_back() -> None:
    def counted(left: sc.Stream[str], right: sc.Stream[str]) -> sc.Stream[Any]:
        keyed = left.union(right).key_by(lambda word: 0)
        windowed = keyed.window(sc.Tumbling("10ms"), emit=sc.early(every="1ms"), name="count")
        return windowed.count().map(lambda result: result.value)

    given = [At(1, "a"), On(1, At(1, "b")), Watermark(20)]
    for end in (IdleStatus(True), EndOfInput()):
        verify_operator(counted, [*given, On(1, end), At(25, "c")], [2, 2, 1, 1], inputs=2)


def test_what_cannot_be_given_is_refused() -> None:
    def step(stream: sc.Stream[Any]) -> sc.Stream[Any]:
        return stream.map(str)

    with pytest.raises(sc.DefinitionError, match=r"the step has 1 inputs.*inputs=2"):
        verify_operator(step, [On(1, "x")], [])
    with pytest.raises(sc.DefinitionError, match=r"write At\(timestamp, 7\)"):
        verify_operator(step, [Watermark(5), 7], [])
    with pytest.raises(sc.DefinitionError, match="active again by its records"):
        verify_operator(step, [IdleStatus(False)], [])
    with pytest.raises(sc.SettingsError, match="not a duration"):
        verify_operator(step, [Advance(5)], [])  # type: ignore[arg-type]


def test_sink_alone_has_no_output() -> None:
    with pytest.raises(sc.DefinitionError, match=r"has to return the stream .* \.errors of a sink"):
        verify_operator(lambda s: s.sink(sc.discard()), [1], [])


# ---- comparing


@pytest.mark.parametrize(
    ("expected", "got", "order", "difference"),
    [
        ([1, 2], [1, 2], "kept", ""),
        ([1, 2], [2, 1], "kept", "order"),
        ([1, 2], [2, 1], "any", ""),
        ([1, 3, 2], [2, 1, 3], lambda n: n % 2, ""),
        ([1, 3, 2], [2, 3, 1], lambda n: n % 2, "within a key"),
        ([1, 1], [1], "any", "missing:  [1]"),
        ([[1]], [[1], [1]], "any", "too many: [[1]]"),
    ],
)
def test_outputs_are_compared_as_far_as_the_order_counts(
    expected: list[Any], got: list[Any], order: Any, difference: str
) -> None:
    found = differ(expected, got, order)
    assert difference in found
    assert bool(found) == bool(difference)


def doubled(number: int) -> Iterator[int]:
    yield from (number, number)


def test_full_output_queue_gets_each_record_of_a_call_once() -> None:
    verify_operator(lambda s: s.flat_map(doubled), [1, 2], [1, 1, 2, 2])
