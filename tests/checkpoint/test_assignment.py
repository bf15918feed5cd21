"""Who gets what of a checkpoint when the job has changed (rules P7, P17, P38 and P41)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.checkpoint.assignment import (
    Assignment,
    ByKey,
    Copies,
    EdgeKind,
    EdgeShape,
    JobShape,
    Whole,
)
from streamcp.checkpoint.key_groups import receiver_of_group
from streamcp.checkpoint.snapshot import (
    Acknowledgement,
    Manifest,
    SectionHandle,
    SectionKind,
    SubtaskStatistics,
    TaskShape,
)
from streamcp.identifiers import ChannelId, SubtaskId

GROUPS = 128
PLACES: Mapping[str, frozenset[SectionKind]] = {
    "read": frozenset({"position", "rest"}),
    "count": frozenset({"state"}),
    "ask": frozenset({"pending"}),
    "keyed": frozenset({"state", "pending"}),
    "exact": frozenset({"transactions", "pending"}),
}
parallelisms = st.integers(1, 6)


def handle(kind: SectionKind, name: str, records: int = 1) -> SectionHandle:
    return SectionHandle(kind, name, records, "data", 0, (1,), "")


def manifest(
    tasks: Sequence[TaskShape],
    sections: Mapping[SubtaskId, Sequence[SectionHandle]] | None = None,
    finished: Sequence[SubtaskId] = (),
    **more: Any,
) -> Manifest:
    sections = sections or {}
    acknowledgements = [
        Acknowledgement(
            1, 1, one, tuple(sections.get(one, ())), SubtaskStatistics(), one in finished
        )
        for task in tasks
        for one in (SubtaskId(task.name, index) for index in range(task.parallelism))
    ]
    return Manifest(
        "job", 1, 1, "unaligned", 0, 0, GROUPS, tuple(tasks), tuple(acknowledgements), (), **more
    )


def job(tasks: Sequence[TaskShape], *edges: EdgeShape) -> JobShape:
    return JobShape(tuple(tasks), edges, PLACES, GROUPS)


def two_tasks(senders: int, receivers: int, head: str = "count") -> list[TaskShape]:
    return [TaskShape("read", senders, ("read",)), TaskShape(head, receivers, (head, "map-3"))]


def channel(i: int, j: int, receiver: str = "count") -> str:
    return str(ChannelId(SubtaskId("read", i), SubtaskId(receiver, j), "read"))


def edge(kind: EdgeKind, receiver: str = "count") -> EdgeShape:
    return EdgeShape("read", "read", receiver, kind)


@settings(deadline=None)
@given(parallelisms, parallelisms)
def test_each_key_group_has_one_owner_whatever_the_parallelism_was(p: int, q: int) -> None:
    """P38: the owner of a group is who gets the records of its keys."""
    assignment = Assignment(manifest(two_tasks(1, p)), job(two_tasks(1, q), edge("keyed")))
    owners = [assignment.owner("count", group) for group in range(GROUPS)]
    assert owners == [SubtaskId("count", receiver_of_group(g, q, GROUPS)) for g in range(GROUPS)]
    assert {owner.index for owner in owners} == set(range(q))
    behind = [assignment.owner_behind(edge("keyed"), group) for group in range(GROUPS)]
    assert behind == owners


def all_channels(senders: int, receivers: int, kind: EdgeKind) -> list[tuple[int, int]]:
    if kind == "forward":
        return [(i, i) for i in range(senders)]
    return [(i, j) for i in range(senders) for j in range(receivers)]


@settings(deadline=None)
@given(
    st.sampled_from(["forward", "rebalance", "keyed"]),
    parallelisms,
    parallelisms,
    parallelisms,
    parallelisms,
)
def test_every_old_channel_goes_to_one_sender_and_to_channels_that_are_there(
    kind: EdgeKind, p1: int, p2: int, q1: int, q2: int
) -> None:
    if kind == "forward":
        p2, q2 = p1, q1
    assignment = Assignment(manifest(two_tasks(p1, p2)), job(two_tasks(q1, q2), edge(kind)))
    there = {
        ChannelId(SubtaskId("read", i), SubtaskId("count", j), "read")
        for i, j in all_channels(q1, q2, kind)
    }
    owners = {assignment.owner_behind(edge(kind), group) for group in range(GROUPS)}
    for i, j in all_channels(p1, p2, kind):
        target = assignment.channel(channel(i, j), SubtaskId("count", j))
        if isinstance(target, Whole):
            assert target.channel in there
        else:
            assert kind == "keyed"
            assert isinstance(target, ByKey)
            assert {target.channel(owner) for owner in owners} <= there
            if (p1, p2) == (q1, q2):
                assert target.sender.index == i


@settings(deadline=None)
@given(st.sampled_from(["forward", "rebalance", "keyed"]), parallelisms, parallelisms)
def test_unchanged_job_gets_everything_where_it_was(kind: EdgeKind, p1: int, p2: int) -> None:
    p2 = p1 if kind == "forward" else p2
    tasks = two_tasks(p1, p2, "keyed")
    assignment = Assignment(manifest(tasks), job(tasks, edge(kind, "keyed")))
    assert not assignment.staged
    assert not assignment.divided_by_key(handle("pending", "keyed"))
    for i, j in all_channels(p1, p2, kind):
        old = SubtaskId("keyed", j)
        target = assignment.channel(channel(i, j, "keyed"), old)
        if isinstance(target, ByKey):
            assert target.channel(old) == ChannelId(SubtaskId("read", i), old, "read")
        else:
            assert target == Whole(ChannelId(SubtaskId("read", i), old, "read"))
        assert assignment.heir("keyed", old) == old


@settings(deadline=None)
@given(parallelisms, parallelisms)
def test_what_a_subtask_held_goes_to_the_same_index_as_the_data_on_its_way_there(
    p: int, q: int
) -> None:
    """P17: pending lists and forward edges; P41: behind a pending list, any channel."""
    tasks = two_tasks(p, p, "ask")
    for kind, pending in (("forward", False), ("forward", True), ("rebalance", True)):
        held = {
            one: [handle("pending", "ask")]
            for one in (SubtaskId("ask", i) for i in range(p))
            if pending
        }
        now = job(two_tasks(q, q, "ask"), edge(kind, "ask"))  # type: ignore[arg-type]
        assignment = Assignment(manifest(tasks, held), now)
        for i in range(p):
            old = SubtaskId("ask", i)
            target = assignment.channel(channel(i, i, "ask"), old)
            assert isinstance(target, Whole)
            assert target.channel.receiver == assignment.heir("ask", old)


@settings(deadline=None)
@given(parallelisms, parallelisms, parallelisms, parallelisms)
def test_new_subtask_gets_broadcast_state_and_captured_copies_of_one_old_subtask(
    p1: int, p2: int, q1: int, q2: int
) -> None:
    """P17: mixed from two, a change of the state would be missing or come twice."""
    now = job([*two_tasks(q1, q2), TaskShape("new", 1, ("new",))], edge("broadcast"))
    assignment = Assignment(manifest(two_tasks(p1, p2)), now)
    state_of = {
        new: j for j in range(p2) for new in assignment.copies("count", SubtaskId("count", j))
    }
    assert state_of.keys() == {SubtaskId("count", k) for k in range(q2)}
    captured: Counter[tuple[SubtaskId, int]] = Counter()
    for i, j in all_channels(p1, p2, "broadcast"):
        target = assignment.channel(channel(i, j), SubtaskId("count", j))
        assert isinstance(target, Copies)
        for copy in target.channels:
            assert state_of[copy.receiver] == j
            assert copy.sender.index == i % q1
            captured[copy.receiver, i] += 1
    assert set(captured.values()) == {1}
    assert len(captured) == p1 * q2


def test_more_subtasks_behind_a_rebalance_all_get_channels() -> None:
    assignment = Assignment(manifest(two_tasks(3, 1)), job(two_tasks(3, 3), edge("rebalance")))
    old = SubtaskId("count", 0)
    targets = [assignment.channel(channel(i, 0), old) for i in range(3)]
    receivers = Counter(one.channel.receiver for one in targets if isinstance(one, Whole))
    assert receivers == {SubtaskId("count", j): 1 for j in range(3)}


def test_changed_job_divides_captured_records_and_pending_lists_of_keyed_steps() -> None:
    """Also where this task's parallelism is the same: its key may be another one."""
    now = job([*two_tasks(2, 2, "keyed"), TaskShape("new", 1, ("new",))], edge("keyed", "keyed"))
    assignment = Assignment(manifest(two_tasks(2, 2, "keyed")), now)
    target = assignment.channel(channel(1, 0, "keyed"), SubtaskId("keyed", 0))
    assert target == ByKey(SubtaskId("read", 1), edge("keyed", "keyed"))
    assert assignment.divided_by_key(handle("pending", "keyed"))
    assert not Assignment(
        manifest(two_tasks(1, 2, "ask")), job(two_tasks(1, 3, "ask"))
    ).divided_by_key(handle("pending", "ask"))


def test_changed_or_still_replaying_checkpoint_is_staged() -> None:
    """P41: a checkpoint taken during a replay keeps the rule, with unchanged parallelism too."""
    tasks = two_tasks(1, 2)
    assert Assignment(manifest(tasks), job(two_tasks(1, 3))).staged
    assert Assignment(manifest(tasks, replaying=True), job(tasks)).staged
    assert not Assignment(manifest(tasks), job(tasks[::-1])).staged


def test_state_is_found_in_whatever_task_its_step_runs() -> None:
    then = [TaskShape("read", 1, ("read", "count"))]
    assignment = Assignment(manifest(then), job(two_tasks(1, 3)))
    assert assignment.owner("count", GROUPS - 1) == SubtaskId("count", 2)
    assert assignment.rescaled(SubtaskId("read", 0), "count")
    assert not assignment.rescaled(SubtaskId("read", 0), "read")


def test_edge_is_found_by_its_steps_whatever_task_sends() -> None:
    """At parallelism 1 the keyed step was fused with the source."""
    then = [TaskShape("count", 2, ("count", "map-3")), TaskShape("out", 1, ("out",))]
    now = [TaskShape("read", 1, ("read", "count", "map-3")), TaskShape("out", 1, ("out",))]
    assignment = Assignment(manifest(then), job(now, EdgeShape("map-3", "read", "out", "forward")))
    out = SubtaskId("out", 0)
    for i in range(2):
        name = str(ChannelId(SubtaskId("count", i), out, "map-3"))
        target = assignment.channel(name, out)
        assert target == Whole(ChannelId(SubtaskId("read", 0), out, "map-3"))


def test_edge_of_renumbered_steps_is_found_by_the_names_of_its_tasks() -> None:
    then = [TaskShape("read", 1, ("read", "map-1")), TaskShape("out", 1, ("out",))]
    now = [TaskShape("read", 1, ("read", "filter-1", "map-2")), TaskShape("out", 1, ("out",))]
    out = SubtaskId("out", 0)
    name = str(ChannelId(SubtaskId("read", 0), out, "map-1"))
    one = EdgeShape("map-2", "read", "out", "rebalance")
    target = Assignment(manifest(then), job(now, one)).channel(name, out)
    assert target == Whole(ChannelId(SubtaskId("read", 0), out, "map-2"))
    two = EdgeShape("filter-1", "read", "out", "rebalance")
    with pytest.raises(KeyError):
        Assignment(manifest(then), job(now, one, two)).channel(name, out)


def test_sections_without_a_place_are_listed() -> None:
    count = SubtaskId("count", 0)
    sections = {
        count: [
            handle("state", "count"),
            handle("pending", "count"),
            handle("state", "gone"),
            handle("channel", channel(0, 0)),
            handle("channel", channel(1, 0), records=0),
        ]
    }
    assignment = Assignment(manifest(two_tasks(2, 1), sections), job(two_tasks(2, 1)))
    unplaced = [(one.handle.kind, one.handle.name, one.head) for one in assignment.unplaced()]
    assert unplaced == [
        ("pending", "count", ""),
        ("state", "gone", ""),
        ("channel", channel(0, 0), "count"),
    ]


def test_captured_records_of_an_exchange_that_became_keyed_go_to_the_owners_of_their_keys() -> None:
    """Tasks, steps and parallelism are the same: whether the exchange is cannot be seen."""
    tasks = two_tasks(2, 2)
    assignment = Assignment(manifest(tasks), job(tasks, edge("keyed")))
    target = assignment.channel(channel(1, 0), SubtaskId("count", 0))
    assert target == ByKey(SubtaskId("read", 1), edge("keyed"))


@pytest.mark.parametrize(
    ("then", "now", "fits"),
    [
        ("ask", "ask", True),
        ("ask", "keyed", False),
        ("keyed", "ask", False),
        ("keyed", "keyed", True),
        ("exact", "exact", True),
        ("ask", "exact", False),
        ("exact", "ask", False),
    ],
)
def test_pending_list_of_another_kind_of_step_has_no_place(then: str, now: str, fits: bool) -> None:
    """What they hold differs: a write in progress, say, and failures that are to be diverted."""
    step = SubtaskId("step", 0)
    held = [handle("pending", "step")] + [handle("state", "step", 0)] * (then == "keyed")
    old = manifest([task_of("step", then)], {step: held})
    shape = JobShape((task_of("step", now),), (), {"step": PLACES[now]}, GROUPS)
    unplaced = [one.handle.kind for one in Assignment(old, shape).unplaced()]
    assert unplaced == ([] if fits else ["pending"])


def task_of(name: str, kind: str) -> TaskShape:
    return TaskShape(name, 1, (name,), (name,) if kind == "exact" else ())


@pytest.mark.parametrize("kind", ["state", "pending", "rest"])
def test_section_that_holds_nothing_needs_no_place(kind: SectionKind) -> None:
    old = manifest(two_tasks(1, 1), {SubtaskId("count", 0): [handle(kind, "gone", 0)]})
    assert not [*Assignment(old, job(two_tasks(1, 1))).unplaced()]


def test_subtask_was_finished_if_all_that_it_continues_had_finished() -> None:
    """P7, under another parallelism and fusing."""
    then, now = two_tasks(2, 2), two_tasks(3, 1)
    readers = [SubtaskId("read", 0), SubtaskId("read", 1)]
    half = Assignment(manifest(then, finished=readers[:1]), job(now))
    whole = Assignment(manifest(then, finished=readers), job(now))
    assert not any(half.was_finished(SubtaskId("read", i)) for i in range(3))
    assert all(whole.was_finished(SubtaskId("read", i)) for i in range(3))
    assert not whole.was_finished(SubtaskId("count", 0))
    same = Assignment(manifest(then, finished=readers[:1]), job(then))
    assert [same.was_finished(one) for one in readers] == [True, False]
    new = [*now, TaskShape("new", 1, ("new",))]
    assert not Assignment(manifest(then, finished=readers), job(new)).was_finished(
        SubtaskId("new", 0)
    )
