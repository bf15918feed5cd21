"""The pending list: order, restore, and records kept as they came (P20 to P22)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamcp.runtime.pending import CapturedPending, Failed, PendingList, Status
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer


@dataclass
class Item:
    number: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Undeclared:
    value: int = 0


def new_serializer() -> Serializer:
    registry = TypeRegistry()
    registry.declare(Item, step="step")
    return Serializer(registry)


def new_list(*, ordered: bool = True, keep: bool = True, serializer: Any = None) -> PendingList:
    return PendingList(
        ordered=ordered, serializer=serializer or new_serializer(), step="step", keep=keep
    )


def started(pending: PendingList) -> list[Any]:
    tickets = []
    while pending.waiting:
        tickets.append(pending.start())
    return tickets


def test_ordered_results_wait_for_those_before_them() -> None:
    pending = new_list()
    pending.admit([1, 2])
    pending.admit([3])
    first, second, third = started(pending)
    pending.finish(third, "c")
    pending.finish(second, "b")
    assert pending.take_results(10) == []
    pending.finish(first, "a")
    assert pending.take_results(2) == ["a", "b"]
    assert pending.take_results(2) == ["c"]
    assert pending.count == 0


def test_unordered_results_are_taken_as_they_came() -> None:
    pending = new_list(ordered=False)
    pending.admit([1, 2, 3])
    first, second, third = started(pending)
    for ticket, result in ((third, "c"), (first, "a")):
        pending.finish(ticket, result)
    assert pending.take_results(1) == ["c"]
    assert pending.take_results(5) == ["a"]
    pending.finish(second, "b")
    assert pending.take_results(5) == ["b"]


def test_none_is_a_result_like_any_other() -> None:
    pending = new_list()
    pending.admit([1])
    pending.finish(started(pending)[0], None)
    assert pending.take_results(5) == [None]


def test_entries_are_in_order_of_arrival_without_what_was_emitted() -> None:
    pending = new_list(ordered=False)
    pending.admit([1, 2, 3, 4])
    tickets = started(pending)
    pending.finish(tickets[1], "b")
    pending.take_results(1)
    pending.finish(tickets[2], "c")
    pending.finish(tickets[3], Failed("failure"))
    assert pending.cut()() == [
        (Status.RECORD, 1),
        (Status.RESULT, "c"),
        (Status.FAILURE, "failure"),
    ]


def test_restored_results_keep_their_places_and_are_not_called_again() -> None:
    pending = new_list()
    pending.restore([(0, 1), (1, "b"), (0, 3), (2, None)])
    assert (pending.count, pending.waiting) == (4, 2)
    tickets = started(pending)
    assert [pending.record(ticket, 1) for ticket in tickets] == [1, 3]
    assert pending.waiting == 0
    pending.finish(tickets[0], "a")
    assert pending.take_results(9) == ["a", "b"]
    pending.finish(tickets[1], "c")
    taken = pending.take_results(9)
    assert taken[0] == "c"
    assert isinstance(taken[1], Failed)
    assert pending.count == 0


def test_restored_results_of_an_unordered_list_are_emitted_at_once() -> None:
    pending = new_list(ordered=False)
    pending.restore([(0, 1), (1, "b")])
    assert pending.take_results(9) == ["b"]


def test_mutable_record_is_given_again_as_it_came() -> None:
    pending = new_list()
    pending.admit([Item(1)])
    (ticket,) = started(pending)
    pending.record(ticket, 1).tags.append("touched")
    assert pending.record(ticket, 2) == Item(1)
    pending.record(ticket, 2).tags.append("again")
    assert pending.record(ticket, 3) == Item(1)


def test_mutable_record_is_captured_as_it_came_readable_by_another_process() -> None:
    registry = TypeRegistry()
    registry.declare(Item, step="step")
    serializer = Serializer(registry)
    pending = new_list(serializer=serializer)
    pending.admit([1, Item(1)])
    pending.record(started(pending)[1], 1).tags.append("touched")
    captured = CapturedPending(pending.cut(), serializer, step="step")
    captured.before_use()
    assert captured.frozen is not None
    reader = Deserializer(serializer.classes(), registry)
    assert reader.loads(captured.frozen) == [(0, 1), (0, Item(1))]


def test_record_that_cannot_be_written_is_an_error_of_the_capture_alone() -> None:
    serializer = new_serializer()
    pending = new_list(serializer=serializer)
    pending.admit([Undeclared(1)])
    captured = CapturedPending(pending.cut(), serializer, step="step")
    captured.freeze()
    assert captured.error is not None
    assert pending.record(started(pending)[0], 1) == Undeclared(1)


@given(st.booleans(), st.lists(st.integers(0, 5), max_size=40), st.data())
def test_any_use_emits_every_result_once_also_across_a_restore(
    ordered: bool, steps: list[int], data: st.DataObject
) -> None:
    pending = new_list(ordered=ordered)
    running: list[Any] = []
    admitted = 0
    emitted: list[int] = []
    for step in steps:
        match step:
            case 0 | 1:
                count = data.draw(st.integers(1, 4))
                pending.admit(list(range(admitted, admitted + count)))
                admitted += count
            case 2:
                if pending.waiting:
                    ticket = pending.start()
                    running.append((ticket, pending.record(ticket, 1)))
            case 3 if running:
                ticket, record = running.pop(data.draw(st.integers(0, len(running) - 1)))
                pending.finish(ticket, record)
            case 4:
                emitted += pending.take_results(data.draw(st.integers(1, 5)))
            case 5:
                entries = pending.cut()()
                assert len(entries) == pending.count == admitted - len(emitted)
                pending, running = new_list(ordered=ordered), []
                pending.restore(entries)
    for ticket, record in running:
        pending.finish(ticket, record)
    while pending.waiting:
        ticket = pending.start()
        pending.finish(ticket, pending.record(ticket, 1))
    emitted += pending.take_results(1000)
    assert (pending.count, pending.waiting) == (0, 0)
    assert sorted(emitted) == list(range(admitted))
    if ordered:
        assert emitted == list(range(admitted))
