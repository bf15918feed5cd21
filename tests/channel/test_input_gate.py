"""Taking in turn, blocking, and the hand that a snapshot always finds (P15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.channel.channel import Channel
from streamcp.channel.input_gate import InputGate
from streamcp.elements import Batch, CheckpointBarrier, Element, EndOfInput, Watermark
from streamcp.identifiers import ChannelId, SubtaskId


def new_gate(channels: int = 2) -> InputGate:
    receiver = SubtaskId("b", 0)
    return InputGate(
        [Channel(ChannelId(SubtaskId("a", i), receiver, "a"), 100) for i in range(channels)]
    )


def no_handle(batch: Batch) -> None:
    """What is captured here is never used."""


def captured(gate: InputGate, number: int, before: int | None = None) -> list[list[Any]]:
    elements = gate.capture(number, no_handle, before_barrier=before)
    return [element.values for element in elements if isinstance(element, Batch)]


class Marker:
    """Stands for the handle of a snapshot."""

    def __init__(self) -> None:
        self.used = 0

    def before_use(self) -> None:
        self.used += 1


def test_channels_are_taken_from_in_turn() -> None:
    gate = new_gate(3)
    for _ in range(2):
        for number in (0, 2):
            gate.channels[number].push(Batch([number]))
    taken = []
    while (found := gate.take()) is not None:
        taken.append(found[0])
        gate.hand = None
    assert taken == [0, 2, 0, 2]


def test_blocked_channel_is_left_out_until_it_is_resumed() -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1]))
    gate.blocked.add(0)
    assert gate.take() is None
    assert gate.take_control() is None
    gate.resume([0])
    assert gate.take() is not None


def test_control_elements_are_taken_without_room_only_where_they_stand_first() -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1]))
    gate.channels[0].push(CheckpointBarrier(1))
    gate.channels[1].push(EndOfInput())
    assert gate.take_control() == (1, EndOfInput())
    assert gate.take_control() is None


def test_slices_move_through_the_hand_and_the_last_one_empties_it() -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1, 2, 3, 4, 5]))
    gate.take()
    assert [gate.slice(2), gate.slice(2)] == [[1, 2], [3, 4]]
    assert gate.hand is not None
    assert gate.slice(2) == [5]
    assert gate.hand is None


def test_captured_batch_is_frozen_before_its_records_are_used() -> None:
    gate = new_gate()
    batch, marker = Batch([1, 2]), Marker()
    batch.captured = marker
    gate.channels[0].push(batch)
    gate.take()
    assert marker.used == 0
    gate.slice(1)
    assert marker.used == 1


def test_capture_begins_with_the_rest_of_the_hand_and_only_on_its_channel() -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1, 2, 3]))
    gate.channels[0].push(Batch([4]))
    gate.channels[1].push(Batch([5]))
    gate.take()
    gate.slice(1)
    assert captured(gate, 0) == [[2, 3], [4]]
    assert captured(gate, 1) == [[5]]


def test_handle_of_a_half_used_batch_is_not_that_of_its_rest() -> None:
    gate = new_gate()
    batch = Batch([1, 2, 3])
    batch.captured = Marker()  # of an earlier checkpoint, for all three records
    gate.channels[0].push(batch)
    gate.take()
    gate.slice(1)
    (rest,) = gate.capture(0, no_handle, before_barrier=None)
    assert isinstance(rest, Batch)
    assert rest.values == [2, 3]
    assert rest.captured is None


def test_worked_off_hand_is_not_captured_although_it_occupies_room() -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1]))
    gate.take()
    gate.slice(5)
    assert captured(gate, 0) == []
    assert gate.queued_records == 1
    gate.release(0, 1)
    assert gate.queued_records == 0


def test_capture_up_to_a_barrier_takes_it_out_of_the_line() -> None:
    gate = new_gate()
    for element in (Batch([1]), Batch([2]), CheckpointBarrier(3), Batch([4])):
        gate.channels[0].push(element)
    gate.take()
    assert gate.with_barrier(3) == {0}
    assert captured(gate, 0, before=3) == [[1], [2]]
    assert gate.with_barrier(3) == frozenset()


def test_cancelled_barrier_leaves_every_channel() -> None:
    gate = new_gate()
    for channel in gate.channels:
        channel.push(CheckpointBarrier(1))
    gate.remove_barrier(1)
    assert gate.take() is None


def test_all_ended_once_every_channel_has_ended() -> None:
    gate = new_gate()
    gate.ended.add(0)
    assert not gate.all_ended
    gate.ended.add(1)
    assert gate.all_ended
    assert new_gate(0).all_ended


@given(
    st.lists(st.lists(st.integers(), min_size=1, max_size=6), max_size=8),
    st.lists(st.integers(1, 4), max_size=40),
    st.integers(0, 40),
)
def test_a_capture_after_any_slices_and_what_was_used_before_make_all_records(
    batches: list[list[int]], slices: list[int], cut: int
) -> None:
    gate = new_gate(1)
    for batch in batches:
        gate.channels[0].push(Batch(batch))
    used: list[int] = []
    for limit in slices[:cut]:
        if gate.hand is None and gate.take() is None:
            break
        used += gate.slice(limit)
    rest = [record for batch in captured(gate, 0) for record in batch]
    assert used + rest == [record for batch in batches for record in batch]


def test_whole_batches_are_taken_in_turn_as_long_as_they_fit() -> None:
    gate = new_gate(4)
    marker = Marker()
    for number in range(4):
        gate.channels[number].push(Batch([number] * (number + 1)))
    captured_one = gate.channels[1].head()
    assert isinstance(captured_one, Batch)
    captured_one.captured = marker
    gate.blocked.add(2)
    gate.take()
    assert gate.slice(9) == [0]
    assert gate.take_whole(3) == [1, 1]
    assert (gate.hand_channel, gate.hand, marker.used) == (1, None, 1)
    assert gate.take_whole(3) is None
    assert gate.take_whole(4) == [3] * 4
    assert gate.take_whole(100) is None
    assert [channel.occupied for channel in gate.channels] == [1, 2, 3, 4]


@pytest.mark.parametrize("mark", [CheckpointBarrier(1), EndOfInput(), Watermark(7)])
def test_nothing_whole_is_taken_past_what_is_no_batch(mark: Element) -> None:
    gate = new_gate()
    gate.channels[0].push(Batch([1]))
    gate.channels[1].push(mark)
    gate.channels[1].push(Batch([2]))
    gate.channels[0].push(Batch([3]))
    gate.take()
    gate.slice(1)
    assert gate.take_whole(9) is None
    assert gate.take() == (1, mark)


def test_nothing_whole_is_taken_of_another_input() -> None:
    one, other = new_gate().channels
    gate = InputGate([one, other], ports=(0, 1))
    one.push(Batch([1]))
    other.push(Batch([2]))
    gate.take()
    gate.slice(1)
    assert gate.take_whole(9) is None
