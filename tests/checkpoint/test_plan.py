"""Who takes part in a checkpoint (rule P7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.plan import make_plan
from streamcp.identifiers import SubtaskId

A, B, C, D = (SubtaskId(name, 0) for name in "abcd")
# a, b -> c -> d
SENDERS = {C: frozenset({A, B}), D: frozenset({C})}
EVERYONE = (A, B, C, D)


def test_running_job_triggers_its_sources() -> None:
    plan = make_plan(EVERYONE, SENDERS, {A, B}, ())
    assert plan.triggered == (A, B)
    assert plan.acknowledging == {A, B, C, D}
    assert plan.finished == frozenset()


def test_finished_source_is_not_triggered() -> None:
    plan = make_plan(EVERYONE, SENDERS, {A, B}, {A})
    assert plan.triggered == (B,)
    assert plan.finished == {A}
    assert plan.acknowledging == {A, B, C, D}


def test_all_senders_finished_triggers_the_receiver() -> None:
    """A draining job goes on having checkpoints."""
    assert make_plan(EVERYONE, SENDERS, {A, B}, {A, B}).triggered == (C,)
    assert make_plan(EVERYONE, SENDERS, {A, B}, {A, B, C}).triggered == (D,)


def test_everyone_finished_leaves_nobody_to_trigger() -> None:
    plan = make_plan(EVERYONE, SENDERS, {A, B}, EVERYONE)
    assert plan.acknowledging == set(EVERYONE)
    assert not plan.triggered


@st.composite
def graphs(
    draw: st.DrawFn,
) -> tuple[list[SubtaskId], dict[SubtaskId, frozenset[SubtaskId]], set[SubtaskId]]:
    """A graph whose finished part is closed upstream: a subtask finishes after its senders."""
    subtasks = [SubtaskId("t", index) for index in range(draw(st.integers(1, 10)))]
    senders = {
        subtask: draw(st.frozensets(st.sampled_from(subtasks[:index]), max_size=3))
        for index, subtask in enumerate(subtasks)
        if index > 0
    }
    finished: set[SubtaskId] = set()
    for subtask in subtasks:
        if senders.get(subtask, frozenset()) <= finished and draw(st.booleans()):
            finished.add(subtask)
    return subtasks, senders, finished


@given(graphs())
def test_barrier_reaches_exactly_the_unfinished(
    graph: tuple[list[SubtaskId], dict[SubtaskId, frozenset[SubtaskId]], set[SubtaskId]],
) -> None:
    subtasks, senders, finished = graph
    sources = {subtask for subtask in subtasks if not senders.get(subtask)}
    plan = make_plan(subtasks, senders, sources, finished)
    reached = set(plan.triggered)
    for subtask in subtasks:  # in topological order
        if senders.get(subtask, frozenset()) & reached:
            reached.add(subtask)
    assert reached == plan.acknowledging - plan.finished
    assert plan.acknowledging == set(subtasks)
