"""The gate of a loop head: outer records wait while the loop is full (P19)."""

from __future__ import annotations

from typing import Any

from streamcp.channel.channel import UNLIMITED, Channel
from streamcp.channel.loop_gate import LoopGate
from streamcp.elements import Batch, CheckpointBarrier, EndOfInput
from streamcp.identifiers import ChannelId, SubtaskId

OUTER, BACK, OTHER_BACK = 0, 1, 2


def new_gate(limit: int = 4) -> LoopGate:
    head = SubtaskId("loop", 0)
    capacities = {"outer": 100, "body": UNLIMITED, "other": UNLIMITED}
    channels = [
        Channel(ChannelId(SubtaskId(sender, 0), head, sender), capacity)
        for sender, capacity in capacities.items()
    ]
    return LoopGate(channels, frozenset({BACK, OTHER_BACK}), limit)


def taken(gate: LoopGate) -> list[tuple[int, Any]]:
    """Take all that can be taken, and work it off."""
    found: list[tuple[int, Any]] = []
    while (one := gate.take()) is not None:
        number, element = one
        if isinstance(element, Batch):
            gate.hand = None
            gate.release(number, len(element))
            found.append((number, element.values))
        else:
            found.append((number, element))
    return found


def test_loop_that_is_not_full_takes_from_outside_and_inside_in_turn() -> None:
    gate = new_gate(limit=4)
    for number in (OUTER, BACK):
        gate.channels[number].push(Batch([number]))
        gate.channels[number].push(Batch([number]))
    assert [number for number, _ in taken(gate)] == [OUTER, BACK, OUTER, BACK]


def test_full_loop_takes_from_its_back_edges_alone_until_it_is_not_full() -> None:
    gate = new_gate(limit=4)
    gate.channels[OUTER].push(Batch(["outer"]))
    for number in (BACK, OTHER_BACK):
        gate.channels[number].push(Batch([number, number]))
        gate.channels[number].push(Batch([number]))
    assert taken(gate) == [
        (BACK, [1, 1]),
        (OTHER_BACK, [2, 2]),
        (OUTER, ["outer"]),
        (BACK, [1]),
        (OTHER_BACK, [2]),
    ]


def test_records_in_hand_count_as_in_the_loop() -> None:
    gate = new_gate(limit=2)
    gate.channels[OUTER].push(Batch(["outer"]))
    gate.channels[BACK].push(Batch([1, 2]))
    assert gate.take() is not None
    gate.slice(1)
    gate.hand = None
    assert gate.take() is None
    gate.release(BACK, 1)
    assert gate.take() is not None


def test_barrier_and_end_from_outside_need_no_room_in_the_loop() -> None:
    gate = new_gate(limit=1)
    gate.channels[BACK].push(Batch([1, 2]))
    gate.channels[OUTER].push(CheckpointBarrier(1))
    gate.channels[OUTER].push(EndOfInput())
    assert taken(gate)[:2] == [(OUTER, CheckpointBarrier(1)), (OUTER, EndOfInput())]


def test_full_loop_leaves_blocked_back_edges_out() -> None:
    gate = new_gate(limit=1)
    gate.channels[BACK].push(Batch([1, 2]))
    gate.blocked.add(BACK)
    assert gate.take() is None


def test_no_second_batch_is_taken_before_the_first_shows_on_the_back_edges() -> None:
    gate = new_gate()
    for _ in range(2):
        gate.channels[OUTER].push(Batch([1]))
    gate.take()
    gate.slice(9)
    assert gate.take_whole(9) is None
    assert len(gate.channels[OUTER]) == 1
