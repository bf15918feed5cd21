"""Dividing records among receivers, partial batches, and room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.channel.channel import UNLIMITED, Channel
from streamcp.channel.output_gate import (
    BATCH_SIZE,
    BroadcastEdge,
    ForwardEdge,
    KeyedEdge,
    OutputEdge,
    OutputGate,
    RebalanceEdge,
    Routes,
)
from streamcp.elements import Batch, CheckpointBarrier
from streamcp.identifiers import ChannelId, SubtaskId


def new_channels(count: int, capacity: int = 100) -> list[Channel]:
    sender = SubtaskId("a", 0)
    return [Channel(ChannelId(sender, SubtaskId("b", i), "a"), capacity) for i in range(count)]


def drained(channel: Channel) -> list[Any]:
    found: list[Any] = []
    while len(channel):
        element = channel.take()
        if isinstance(element, Batch):
            found += element.values
            channel.release(len(element))
        else:
            found.append(element)
    return found


def edges_of(kind: str, channels: Sequence[Channel]) -> OutputEdge:
    match kind:
        case "forward":
            return ForwardEdge(channels[0])
        case "rebalance":
            return RebalanceEdge(channels, first=1)
        case "broadcast":
            return BroadcastEdge(channels)
        case _:
            return keyed_edge(channels, lambda record: record % 10)


def raise_it(record: object, error: Exception) -> None:
    raise error


def keyed_edge(channels: Sequence[Channel], key: Callable[[Any], Any]) -> KeyedEdge:
    return KeyedEdge(channels, key, Routes(lambda k: k % len(channels)), raise_it)


def test_short_lists_are_collected_until_they_are_flushed() -> None:
    (channel,) = new_channels(1)
    edge = ForwardEdge(channel)
    edge.push([1])
    edge.push([2])
    assert len(channel) == 0
    assert OutputGate([edge]).room == 98
    edge.flush()
    edge.flush()
    assert len(channel) == 1
    assert drained(channel) == [1, 2]


def test_long_list_is_handed_on_as_it_is_but_never_past_a_partial_batch() -> None:
    (channel,) = new_channels(1, 10_000)
    edge = ForwardEdge(channel)
    records = list(range(500))
    edge.push(records)
    head = channel.head()
    assert isinstance(head, Batch)
    assert head.values is records
    edge.push([-1])
    edge.push(records)
    edge.flush()
    assert drained(channel) == [*records, -1, *records]


@pytest.mark.parametrize("kind", ["forward", "rebalance", "keyed", "broadcast"])
def test_captured_batch_is_not_changed_by_later_pushes(kind: str) -> None:
    channels = new_channels(2)
    edge = edges_of(kind, channels)
    edge.push([0, 1])
    edge.flush()
    batches = [channel.head() for channel in channels]
    for batch in batches:
        if isinstance(batch, Batch):
            batch.captured = "by a snapshot"
    before = [list(batch.values) for batch in batches if isinstance(batch, Batch)]
    edge.push([2, 3, 4, 5])
    edge.flush()
    assert [list(batch.values) for batch in batches if isinstance(batch, Batch)] == before


def test_rebalance_deals_in_turn_across_pushes() -> None:
    channels = new_channels(3)
    edge = RebalanceEdge(channels, first=1)
    for record in range(7):
        edge.push([record])
    edge.flush()
    assert [drained(channel) for channel in channels] == [[2, 5], [0, 3, 6], [1, 4]]


@given(st.lists(st.lists(st.integers(), max_size=9), max_size=9), st.integers(1, 4))
def test_rebalance_divides_evenly_whatever_the_slices(slices: list[list[int]], count: int) -> None:
    channels = new_channels(count)
    edge = RebalanceEdge(channels)
    for records in slices:
        edge.push(records)
    edge.flush()
    sizes = [channel.occupied for channel in channels]
    assert max(sizes) - min(sizes) <= 1
    everything = sorted(record for channel in channels for record in drained(channel))
    assert everything == sorted(record for records in slices for record in records)


@given(st.lists(st.lists(st.integers(), max_size=9), max_size=9), st.integers(1, 4))
def test_broadcast_sends_everything_to_everyone_in_order(
    slices: list[list[int]], count: int
) -> None:
    channels = new_channels(count)
    edge = BroadcastEdge(channels)
    for records in slices:
        edge.push(records)
        edge.flush()
    everything = [record for records in slices for record in records]
    assert edge.pushed == len(everything)
    for channel in channels:
        assert drained(channel) == everything


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), max_size=9))
def test_keyed_edge_keeps_each_key_on_one_channel_in_order(slices: list[list[int]]) -> None:
    channels = new_channels(3)
    edge = edges_of("keyed", channels)
    for records in slices:
        edge.push(records)
        edge.flush()
    everything = [record for records in slices for record in records]
    for number, channel in enumerate(channels):
        expected = [record for record in everything if record % 10 % 3 == number]
        found = drained(channel)
        for key in range(10):
            assert [r for r in found if r % 10 == key] == [r for r in expected if r % 10 == key]
        assert len(found) == len(expected)


@pytest.mark.parametrize("kind", ["forward", "rebalance", "keyed", "broadcast"])
def test_full_batches_go_on_without_a_flush(kind: str) -> None:
    channels = new_channels(2, 100_000)
    edge = edges_of(kind, channels)
    for record in range(4 * BATCH_SIZE):
        edge.push([record])
    sent = sum(channel.pushed for channel in channels)
    assert sent >= 2 * BATCH_SIZE


@pytest.mark.parametrize("kind", ["forward", "rebalance", "keyed", "broadcast"])
def test_room_is_that_of_the_tightest_channel_and_counts_partial_batches(kind: str) -> None:
    channels = new_channels(2, 10)
    edge = edges_of(kind, channels)
    edge.push([0, 0, 0])
    assert OutputGate([edge]).room == 10 - (2 if kind == "rebalance" else 3)
    before = OutputGate([edge]).room
    edge.flush()
    assert OutputGate([edge]).room == before


def test_gate_sends_control_elements_behind_everything_emitted() -> None:
    channels = new_channels(3)
    gate = OutputGate([ForwardEdge(channels[0]), RebalanceEdge(channels[1:])])
    for edge in gate.edges:
        edge.push([1, 2])
    gate.send(CheckpointBarrier(1))
    assert [drained(channel) for channel in channels] == [
        [1, 2, CheckpointBarrier(1)],
        [1, CheckpointBarrier(1)],
        [2, CheckpointBarrier(1)],
    ]


def test_gate_without_outputs_is_always_writable() -> None:
    gate = OutputGate([])
    assert gate.writable
    assert gate.room > BATCH_SIZE


def test_gate_is_writable_again_when_its_sender_would_be_woken() -> None:
    """Else a sender could wait for ever: woken at one mark, writable only at another."""
    (channel,) = new_channels(1, 160)
    gate = OutputGate([ForwardEdge(channel)])
    woken: list[bool] = []
    channel.wake_sender = lambda: woken.append(gate.writable)
    channel.push(Batch(list(range(200))))
    for _ in range(200):
        channel.release(1)
    assert woken == [True]
    assert gate.writable


def test_cancelled_barrier_leaves_every_output() -> None:
    channels = new_channels(2)
    gate = OutputGate([RebalanceEdge(channels)])
    gate.send(CheckpointBarrier(1))
    gate.remove_barrier(1)
    assert [len(channel) for channel in channels] == [0, 0]


def test_unlimited_channel_never_counts_for_the_room_of_a_gate() -> None:
    (narrow,) = new_channels(1, capacity=32)
    (back,) = new_channels(1, capacity=UNLIMITED)
    back.push(Batch([0] * 1000))
    gate = OutputGate([ForwardEdge(narrow), ForwardEdge(back)])
    assert (gate.room, gate.enough, gate.writable) == (32, 2, True)


def test_gate_tells_whether_a_partial_batch_waits() -> None:
    first, second = new_channels(2)
    edges = [ForwardEdge(first), ForwardEdge(second)]
    gate = OutputGate(edges)
    assert not gate.has_partials
    edges[1].push([1])
    assert gate.has_partials
    gate.flush()
    assert not gate.has_partials
