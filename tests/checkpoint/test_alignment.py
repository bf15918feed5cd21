"""One subtask's decisions, event by event (P8 to P10, P13, P14, P26)."""

from __future__ import annotations

import pytest

from streamcp.checkpoint.alignment import (
    Abandon,
    Acknowledge,
    Alignment,
    Block,
    CloseCapture,
    Count,
    Decision,
    Forward,
    Phase,
    Resume,
    TakeSnapshot,
)


def aligned(n: int, *resumed: int) -> list[Decision]:
    """The decisions when the last barrier in line has come."""
    resume: list[Decision] = [Resume(frozenset(resumed))] if resumed else []
    return [TakeSnapshot(n), Forward(n, overtaking=False), *resume, Acknowledge(n)]


# ---- aligned


def test_source_snapshots_and_acknowledges_at_the_trigger() -> None:
    assert Alignment(0).trigger(1, unaligned=False) == aligned(1)


def test_single_input_snapshots_at_its_barrier_without_blocking() -> None:
    assert Alignment(1).barrier_in_line(1, 0) == aligned(1)


def test_channels_block_until_the_last_barrier() -> None:
    alignment = Alignment(3)
    assert alignment.barrier_in_line(1, 2) == [Block(2)]
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.barrier_in_line(1, 1) == aligned(1, 0, 2)
    assert alignment.phase is Phase.IDLE


def test_ended_channel_counts_as_delivered() -> None:
    alignment = Alignment(2)
    assert alignment.end_of_input(0) == []
    assert alignment.barrier_in_line(1, 1) == aligned(1)


def test_end_of_input_during_alignment_may_be_the_last_delivery() -> None:
    alignment = Alignment(2)
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.end_of_input(1) == aligned(1, 0)


def test_triggered_subtask_waits_for_the_ends_of_finished_senders() -> None:
    alignment = Alignment(2)
    assert alignment.trigger(1, unaligned=False, finished={0, 1}) == []
    assert alignment.end_of_input(0) == []
    assert alignment.end_of_input(1) == aligned(1)


# ---- one after another


def test_newer_barrier_abandons_the_older_alignment() -> None:
    alignment = Alignment(3)
    alignment.barrier_in_line(1, 0)
    assert alignment.barrier_in_line(2, 1) == [Abandon(1), Resume(frozenset({0})), Block(1)]
    assert alignment.barrier_in_line(1, 2) == []
    assert alignment.barrier_in_line(2, 0) == [Block(0)]
    assert alignment.barrier_in_line(2, 2) == aligned(2, 0, 1)


def test_newer_overtaking_barrier_abandons_an_open_capture() -> None:
    alignment = Alignment(2)
    alignment.barrier_overtaking(1, 0)
    assert alignment.barrier_overtaking(2, 0) == [
        Abandon(1),
        TakeSnapshot(2, {0: "all", 1: "all"}, frozenset({1})),
        Forward(2, overtaking=True),
    ]
    assert alignment.barrier_overtaking(2, 1) == [CloseCapture(1), Acknowledge(2)]


@pytest.mark.parametrize("older", [1, 2])
def test_barrier_not_newer_than_the_last_snapshot_is_dropped(older: int) -> None:
    alignment = Alignment(1)
    alignment.barrier_in_line(2, 0)
    assert alignment.barrier_in_line(older, 0) == []
    assert alignment.barrier_overtaking(older, 0) == []
    assert alignment.trigger(older, unaligned=False) == []
    assert alignment.escalate(older, in_line={0}) == []


# ---- cancelled


def test_cancelling_resumes_blocked_channels_and_later_barriers_are_dropped() -> None:
    alignment = Alignment(2)
    alignment.barrier_in_line(1, 0)
    assert alignment.cancel(1) == [Abandon(1), Resume(frozenset({0}))]
    assert alignment.barrier_in_line(1, 1) == []
    assert alignment.barrier_in_line(2, 0) == [Block(0)]


def test_cancelling_ends_an_open_capture() -> None:
    alignment = Alignment(2)
    alignment.barrier_overtaking(1, 0)
    assert alignment.cancel(1) == [Abandon(1)]
    assert alignment.barrier_overtaking(1, 1) == []


def test_cancelling_before_the_first_barrier_drops_it_when_it_comes() -> None:
    alignment = Alignment(2)
    assert alignment.cancel(1) == []
    assert alignment.barrier_in_line(1, 0) == []
    assert alignment.barrier_overtaking(1, 0) == []


def test_cancelling_after_the_acknowledgement_changes_nothing() -> None:
    alignment = Alignment(1)
    alignment.barrier_in_line(1, 0)
    assert alignment.cancel(1) == []


def test_cancelling_an_older_checkpoint_leaves_the_current_one() -> None:
    alignment = Alignment(2)
    alignment.barrier_in_line(2, 0)
    assert alignment.cancel(1) == []
    assert alignment.barrier_in_line(2, 1) == aligned(2, 0)


# ---- unaligned


def test_first_overtaking_barrier_snapshots_captures_and_forwards_at_once() -> None:
    alignment = Alignment(3)
    assert alignment.barrier_overtaking(1, 1) == [
        TakeSnapshot(1, {0: "all", 1: "all", 2: "all"}, frozenset({0, 2})),
        Forward(1, overtaking=True),
    ]
    assert alignment.phase is Phase.CAPTURING
    assert alignment.barrier_overtaking(1, 0) == [CloseCapture(0)]
    assert alignment.end_of_input(2) == [CloseCapture(2), Acknowledge(1)]


def test_channel_of_a_finished_sender_is_captured_and_not_waited_for() -> None:
    assert Alignment(2).barrier_overtaking(1, 0, finished={1}) == [
        TakeSnapshot(1, {0: "all", 1: "all"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


def test_channel_that_has_ended_is_not_captured() -> None:
    alignment = Alignment(2)
    alignment.end_of_input(1)
    assert alignment.barrier_overtaking(1, 0, finished={1}) == [
        TakeSnapshot(1, {0: "all"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


def test_subtask_triggered_unaligned_behind_finished_senders_acknowledges_at_once() -> None:
    assert Alignment(1).trigger(1, unaligned=True, finished={0}) == [
        TakeSnapshot(1, {0: "all"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


def test_barrier_in_line_ends_the_capture_of_its_channel_and_blocks_nothing() -> None:
    alignment = Alignment(2)
    alignment.barrier_overtaking(1, 0)
    assert alignment.barrier_in_line(1, 1) == [CloseCapture(1), Acknowledge(1)]


def test_second_barrier_of_one_channel_closes_nothing_more() -> None:
    alignment = Alignment(3)
    alignment.barrier_overtaking(1, 0)
    assert alignment.barrier_overtaking(1, 0) == []
    assert alignment.barrier_in_line(1, 0) == []
    assert alignment.end_of_input(0) == []


# ---- escalated


def test_escalation_resumes_what_had_delivered_and_captures_the_rest() -> None:
    alignment = Alignment(3)
    alignment.barrier_in_line(1, 0)
    assert alignment.escalate(1, in_line={1}) == [
        Resume(frozenset({0})),
        TakeSnapshot(1, {1: "before_barrier", 2: "all"}, frozenset({2})),
        Forward(1, overtaking=True),
    ]
    assert alignment.barrier_in_line(1, 2) == [CloseCapture(2), Acknowledge(1)]


def test_escalation_finds_a_barrier_in_line_before_the_first_was_taken() -> None:
    assert Alignment(1).escalate(1, in_line={0}) == [
        TakeSnapshot(1, {0: "before_barrier"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


def test_escalation_of_a_subtask_that_no_barrier_has_reached_waits_for_it() -> None:
    alignment = Alignment(2)
    assert alignment.escalate(1) == []
    assert alignment.barrier_overtaking(1, 0, in_line={1}) == [
        TakeSnapshot(1, {0: "all", 1: "before_barrier"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


def test_escalating_twice_or_after_the_acknowledgement_does_nothing() -> None:
    alignment = Alignment(2)
    alignment.barrier_in_line(1, 0)
    alignment.escalate(1)
    assert alignment.escalate(1) == []
    alignment.barrier_in_line(1, 1)
    assert alignment.escalate(1) == []


def test_escalation_counts_finished_senders_as_delivered() -> None:
    alignment = Alignment(2)
    alignment.trigger(1, unaligned=False, finished={0, 1})
    assert alignment.escalate(1, finished={0, 1}) == [
        TakeSnapshot(1, {0: "all", 1: "all"}, frozenset()),
        Forward(1, overtaking=True),
        Acknowledge(1),
    ]


# ---- at least once


def test_at_least_once_counts_barriers_blocks_nothing_and_snapshots_at_the_last() -> None:
    alignment = Alignment(3, at_least_once=True)
    assert alignment.barrier_in_line(1, 2) == [Count(2)]
    assert alignment.barrier_in_line(1, 0) == [Count(0)]
    assert alignment.barrier_in_line(1, 1) == aligned(1)
    assert alignment.phase is Phase.IDLE


def test_at_least_once_counts_an_ended_channel() -> None:
    alignment = Alignment(2, at_least_once=True)
    assert alignment.barrier_in_line(1, 0) == [Count(0)]
    assert alignment.end_of_input(1) == aligned(1)


def test_at_least_once_cancellation_drops_what_was_counted() -> None:
    alignment = Alignment(2, at_least_once=True)
    alignment.barrier_in_line(1, 0)
    assert alignment.cancel(1) == [Abandon(1)]
    assert alignment.barrier_in_line(1, 1) == []
    assert alignment.barrier_in_line(2, 1) == [Count(1)]
    assert alignment.barrier_in_line(2, 0) == aligned(2)


# ---- several aligned checkpoints at a time


def test_next_checkpoint_is_aligned_when_the_one_before_it_is_done() -> None:
    alignment = Alignment(2)
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.barrier_in_line(1, 1) == aligned(1, 0)
    assert alignment.barrier_in_line(2, 1) == [Block(1)]
    assert alignment.barrier_in_line(2, 0) == aligned(2, 1)


def test_trigger_waits_for_the_older_barrier_that_is_still_in_line() -> None:
    """Its sender finished between the triggers: 1 comes in line, 2 as a call that comes first."""
    alignment = Alignment(1)
    assert alignment.trigger(2, unaligned=False, finished={0}) == []
    assert alignment.barrier_in_line(1, 0) == aligned(1)
    assert alignment.end_of_input(0) == aligned(2)


def test_triggers_that_waited_are_worked_off_in_order_behind_the_alignment() -> None:
    alignment = Alignment(2)
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.trigger(2, unaligned=False, finished={0, 1}) == []
    assert alignment.trigger(3, unaligned=False, finished={0, 1}) == []
    assert alignment.barrier_in_line(1, 1) == aligned(1, 0)
    assert alignment.end_of_input(1) == []
    assert alignment.end_of_input(0) == [*aligned(2), *aligned(3)]


@pytest.mark.parametrize("cancelled", [2, 3])
def test_trigger_that_waits_can_be_cancelled_and_the_others_go_on(cancelled: int) -> None:
    alignment = Alignment(1)
    alignment.trigger(2, unaligned=False, finished={0})
    alignment.trigger(3, unaligned=False, finished={0})
    assert alignment.cancel(cancelled) == []
    assert alignment.end_of_input(0) == aligned(5 - cancelled)


def test_cancelling_a_newer_checkpoint_leaves_the_barrier_of_the_older_one() -> None:
    alignment = Alignment(2)
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.cancel(2) == []
    assert alignment.barrier_in_line(1, 1) == aligned(1, 0)
    assert alignment.barrier_in_line(2, 0) == []
    assert alignment.barrier_in_line(3, 0) == [Block(0)]


def test_cancelling_a_newer_checkpoint_leaves_an_older_one_that_has_not_come_yet() -> None:
    alignment = Alignment(1)
    assert alignment.cancel(2) == []
    assert alignment.barrier_in_line(1, 0) == aligned(1)
    assert alignment.barrier_in_line(2, 0) == []


# ---- loops (P19): channel 0 comes from outside, channel 1 is a back edge


def test_loop_head_snapshots_without_its_back_edge_and_captures_it_until_the_barrier_is_round() -> (
    None
):
    alignment = Alignment(2, back={1})
    assert alignment.barrier_in_line(1, 0) == [
        TakeSnapshot(1, {1: "all"}, frozenset({1})),
        Forward(1, overtaking=False),
    ]
    assert alignment.barrier_in_line(1, 1) == [CloseCapture(1), Acknowledge(1)]
    assert alignment.phase is Phase.IDLE


def test_loop_head_with_two_outer_inputs_waits_for_both_and_resumes_before_it_forwards() -> None:
    alignment = Alignment(3, back={2})
    assert alignment.barrier_in_line(1, 0) == [Block(0)]
    assert alignment.barrier_in_line(1, 1) == [
        Resume(frozenset({0})),
        TakeSnapshot(1, {2: "all"}, frozenset({2})),
        Forward(1, overtaking=False),
    ]


def test_loop_head_that_is_triggered_captures_its_back_edge_too() -> None:
    alignment = Alignment(2, back={1})
    alignment.end_of_input(0)
    assert alignment.trigger(1, unaligned=False, finished={0}) == [
        TakeSnapshot(1, {1: "all"}, frozenset({1})),
        Forward(1, overtaking=False),
    ]


def test_overtaking_barrier_of_a_loop_captures_back_edges_as_any_other_channel() -> None:
    alignment = Alignment(2, back={1})
    assert alignment.barrier_overtaking(1, 0) == [
        TakeSnapshot(1, {0: "all", 1: "all"}, frozenset({1})),
        Forward(1, overtaking=True),
    ]
    assert alignment.barrier_overtaking(1, 1) == [CloseCapture(1), Acknowledge(1)]


def test_escalated_barrier_that_comes_round_ends_the_capture_of_an_aligned_snapshot() -> None:
    alignment = Alignment(2, back={1})
    alignment.barrier_in_line(1, 0)
    assert alignment.escalate(1) == []
    assert alignment.barrier_overtaking(1, 1) == [CloseCapture(1), Acknowledge(1)]


def test_cancellation_while_the_barrier_goes_round_drops_what_was_captured() -> None:
    alignment = Alignment(2, back={1})
    alignment.barrier_in_line(1, 0)
    assert alignment.cancel(1) == [Abandon(1)]
    assert alignment.barrier_in_line(1, 1) == []


def test_loop_that_ends_while_the_barrier_goes_round_ends_the_capture() -> None:
    alignment = Alignment(2, back={1})
    alignment.barrier_in_line(1, 0)
    assert alignment.end_of_input(1) == [CloseCapture(1), Acknowledge(1)]
    assert alignment.barrier_in_line(1, 1) == []
    assert alignment.end_of_input(1) == []


def test_head_of_an_ended_loop_drops_the_barrier_of_a_subtask_that_ends_later() -> None:
    alignment = Alignment(2, back={1})
    alignment.end_of_input(0)
    alignment.end_of_input(1)
    assert alignment.barrier_in_line(1, 1) == []
    assert alignment.barrier_overtaking(1, 1) == []
    assert alignment.phase is Phase.IDLE


def test_head_of_an_ended_loop_takes_part_in_checkpoints_as_any_other_subtask() -> None:
    alignment = Alignment(2, back={1})
    alignment.end_of_input(1)
    assert alignment.barrier_in_line(1, 0) == aligned(1)
