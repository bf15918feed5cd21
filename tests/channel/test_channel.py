"""The queue of one edge: order, room, capture, and barriers taken out of the line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.channel.channel import JOINED_LENGTH, UNLIMITED, Channel
from streamcp.elements import Batch, CheckpointBarrier, Element, EndOfInput, InFlight
from streamcp.identifiers import ChannelId, SubtaskId


def new_channel(capacity: int = 100) -> Channel:
    return Channel(ChannelId(SubtaskId("a", 0), SubtaskId("b", 0), "a"), capacity)


class Capture:
    """An open capture that ends at the barrier of one checkpoint."""

    def __init__(self, checkpoint_id: int) -> None:
        self.elements: list[InFlight] = []
        self._checkpoint_id = checkpoint_id

    def add(self, element: InFlight) -> None:
        self.elements.append(element)

    def ends_at(self, checkpoint_id: int) -> bool:
        return checkpoint_id == self._checkpoint_id


def no_handle(batch: Batch) -> None:
    """What is captured here is never used."""


def values(elements: Sequence[InFlight]) -> list[list[int]]:
    return [element.values for element in elements if isinstance(element, Batch)]


def test_elements_come_out_in_order() -> None:
    channel = new_channel()
    elements: list[Element] = [Batch([1]), CheckpointBarrier(1), Batch([2]), EndOfInput()]
    for element in elements:
        channel.push(element)
    assert [channel.take() for _ in range(4)] == elements
    assert channel.head() is None


def test_records_occupy_room_until_they_are_worked_off() -> None:
    channel = new_channel(capacity=5)
    channel.push(Batch([1, 2, 3]))
    channel.take()
    assert (channel.occupied, channel.room) == (3, 2)
    channel.release(2)
    assert (channel.occupied, channel.room) == (1, 4)


def test_push_beyond_capacity_is_taken_and_shows_as_negative_room() -> None:
    channel = new_channel(capacity=2)
    channel.push(Batch([1, 2, 3]))
    assert channel.room == -1


def test_control_elements_need_no_room() -> None:
    channel = new_channel(capacity=1)
    channel.push(CheckpointBarrier(1))
    channel.push(EndOfInput())
    assert channel.room == 1


def test_receiver_is_woken_by_every_push_and_sender_once_there_is_room_to_go_on() -> None:
    channel = new_channel(capacity=160)
    woken: list[str] = []
    channel.wake_receiver = lambda: woken.append("receiver")
    channel.wake_sender = lambda: woken.append("sender")
    channel.push(Batch(list(range(160))))
    channel.push(CheckpointBarrier(1))
    assert woken == ["receiver", "receiver"]
    for _ in range(channel.room_to_go_on - 1):
        channel.release(1)
    assert woken == ["receiver", "receiver"]
    channel.release(1)
    channel.release(1)
    assert woken == ["receiver", "receiver", "sender"]


def test_batches_before_a_barrier_takes_the_barrier_out_of_the_line() -> None:
    channel = new_channel()
    for element in (Batch([1]), CheckpointBarrier(7), Batch([2])):
        channel.push(element)
    assert channel.has_barrier(7)
    assert values(channel.capture(no_handle, before_barrier=7)) == [[1]]
    assert not channel.has_barrier(7)
    assert values(channel.capture(no_handle)) == [[1], [2]]


def test_removing_a_barrier_that_is_not_there_does_nothing() -> None:
    channel = new_channel()
    channel.push(CheckpointBarrier(2))
    channel.remove_barrier(1)
    assert channel.take() == CheckpointBarrier(2)


def test_open_capture_gets_what_is_pushed_and_not_control_elements() -> None:
    channel = new_channel()
    channel.push(Batch([1]))
    channel.capturing = capture = Capture(2)
    channel.push(Batch([2]))
    channel.push(CheckpointBarrier(1))
    channel.push(EndOfInput())
    channel.capturing = None
    channel.push(Batch([3]))
    assert values(capture.elements) == [[2]]
    assert len(channel) == 5


def test_barrier_that_ends_an_open_capture_does_not_queue() -> None:
    channel = new_channel()
    channel.capturing = Capture(1)
    channel.push(CheckpointBarrier(1))
    assert len(channel) == 0
    assert not channel.has_barrier(1)


def test_unlimited_channel_is_always_writable_and_asks_for_no_room_to_go_on() -> None:
    channel = new_channel(capacity=UNLIMITED)
    woken: list[str] = []
    channel.wake_sender = lambda: woken.append("sender")
    channel.push(Batch([0] * 100_000))
    channel.take()
    channel.release(100_000)
    assert channel.room_to_go_on == 1
    assert channel.room == UNLIMITED
    assert not woken


def test_refilled_batches_stand_first_to_last_and_occupy_room() -> None:
    channel = new_channel(capacity=1)
    channel.refill(Batch([1, 2]))
    channel.refill(Batch([3]))
    channel.push(EndOfInput())
    assert channel.occupied == 3
    assert [type(channel.take()) for _ in range(3)] == [Batch, Batch, EndOfInput]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 5)),
        st.tuples(st.just("barrier"), st.integers(1, 3)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("remove"), st.integers(1, 3)),
        st.tuples(st.just("capture"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(STEPS)
def test_any_use_keeps_order_and_accounts_for_every_record(steps: list[tuple[str, int]]) -> None:
    channel = new_channel()
    model: list[list[int] | int] = []  # a batch, or the number of a barrier
    pushed = worked = 0
    for step, number in steps:
        match step:
            case "push":
                batch = list(range(pushed, pushed + number))
                pushed += number
                channel.push(Batch(batch))
                model.append(batch)
            case "barrier" if number not in model:
                channel.push(CheckpointBarrier(number))
                model.append(number)
            case "take" if model:
                element, expected = channel.take(), model.pop(0)
                if isinstance(element, Batch):
                    assert element.values == expected
                    channel.release(len(element))
                    worked += len(element)
                else:
                    assert element == CheckpointBarrier(expected)  # type: ignore[arg-type]
            case "remove":
                channel.remove_barrier(number)
                if number in model:
                    model.remove(number)
            case "capture":
                before = number if number in model else None
                ahead = model[: model.index(number)] if before is not None else model
                found = values(channel.capture(no_handle, before_barrier=before))
                assert found == [one for one in ahead if isinstance(one, list)]
                if before is not None:
                    model.remove(before)
    assert channel.occupied == pushed - worked
    assert channel.pushed == pushed
    assert len(channel) == len(model)


def test_short_batches_that_wait_are_joined_up_to_a_share_of_the_capacity() -> None:
    channel = new_channel(capacity=32)
    for record in range(6):
        channel.push_records([record])
    assert values(channel.capture(no_handle)) == [[0, 1, 2, 3], [4, 5]]
    assert (channel.occupied, channel.pushed) == (6, 6)


def test_batch_of_a_snapshot_is_not_joined() -> None:
    channel = new_channel(capacity=1000)
    channel.push_records([1])
    channel.capture(no_handle)
    channel.push_records([2])
    assert values(channel.capture(no_handle)) == [[1], [2]]


@pytest.mark.parametrize("before_barrier", [None, 7])
def test_captured_batches_get_their_handles_when_they_are_taken_and_later_ones_none(
    before_barrier: int | None,
) -> None:
    handled: list[list[int]] = []
    channel = new_channel(capacity=1000)
    for record in (1, 2):
        channel.push(Batch([record]))
    if before_barrier is not None:
        channel.push(CheckpointBarrier(before_barrier))
        channel.push(Batch([3]))
    assert values(
        channel.capture(lambda b: handled.append(b.values), before_barrier=before_barrier)
    )
    assert handled == []
    channel.push(Batch([4]))
    while len(channel):
        channel.take()
    assert handled == [[1], [2]]


def test_batches_pushed_during_a_capture_are_captured_one_by_one() -> None:
    channel = new_channel(capacity=1000)
    channel.push_records([1])
    channel.capturing = capture = Capture(1)
    channel.push_records([2])
    channel.push_records([3])
    assert values(capture.elements) == [[2], [3]]


def test_list_that_may_be_shared_does_not_grow() -> None:
    channel = new_channel(capacity=10_000)
    shared = list(range(JOINED_LENGTH + 1))
    channel.push_records(shared)
    channel.push_records([-1])
    assert len(shared) == JOINED_LENGTH + 1
