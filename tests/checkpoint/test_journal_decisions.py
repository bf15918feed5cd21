"""Which answers a restored job has left: a model of attempts, cuts, completions and crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from streamcp.checkpoint.journal import (
    KEPT,
    Answer,
    AnswersOfSubtask,
    JournalHead,
    JournalSegments,
    LeftAnswers,
    RestoredCut,
    left_answers,
    restored_cut,
)

SUBTASKS = range(2)
Call = tuple[int, int]


def answer(serial: int, content: bytes, **fields: Any) -> Answer:
    given: dict[str, Any] = {"cut": 0, "state": b"", "number": None, "at": 0} | fields
    return Answer(serial=serial, step="ask", content=content, value=b"", **given)


def content_of(call: Call) -> bytes:
    return bytes(call)


class Attempts(RuleBasedStateMachine):
    """Calls of two subtasks, whose journal is kept by the rules; `durable` is what was ever written
    to the disk, `counted` what counts in the running attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: set[Call] = set()
        # Of the newest complete checkpoint: its attempt, what counts in it, what snapshots say.
        self.restored: tuple[int, frozenset[Call], list[Any]] = 0, frozenset(), []
        self.completed = 0
        self.next_id = 0
        self.disk: dict[int, list[Answer]] = {}
        self.head = JournalHead(0, 0)
        self.begin()

    # ---- attempts

    def begin(self) -> None:
        number, self.counted, contents = self.restored
        restored = restored_cut(self.completed, number, contents)
        now = JournalHead(self.head.attempt + 1, self.completed)
        found = [one for answers in self.disk.values() for one in answers]
        left = left_answers(self.head, found, restored, now, at=0)
        self.head = now
        carried = [replace(one, serial=n, cut=None) for n, one in enumerate(left, 1)]
        self.left = LeftAnswers(carried)
        self.disk = {0: carried}
        self.segments = JournalSegments(one.serial for one in carried)
        self.subtasks = [AnswersOfSubtask(self.completed) for _ in SUBTASKS]
        self.cuts: dict[int, Any] = {}
        self.counted_at_cut: set[Call] = set()
        self.serial = len(carried)
        self.queue: list[tuple[Answer, Call]] = []
        self.writing: list[tuple[Answer, Call]] = []
        self.segment = 0
        wanted = self.durable - self.counted
        assert sorted(one.content for one in carried) == sorted(map(content_of, wanted))

    @rule(subtask=st.sampled_from(SUBTASKS), number=st.integers(0, 2))
    def call(self, subtask: int, number: int) -> None:
        made = subtask, number
        if made in self.counted or any(made == other for _, other in self.queue + self.writing):
            return
        owner = self.subtasks[subtask]
        found = self.left.take(content_of(made), b"")
        if found is not None:
            owner.used(found.serial)
            self.segments.counts(found.serial, owner.cut)
            self.counted |= {made}
            return
        assert made not in self.durable, "an answered call is made again"
        self.serial += 1
        owner.came(self.serial)
        self.queue.append((answer(self.serial, content_of(made), cut=owner.cut), made))

    @rule()
    def begin_to_write(self) -> None:
        if not self.writing:
            self.writing, self.queue = self.queue, []
            self.segment = self.segments.hold(one.serial for one, _ in self.writing)

    @rule(fails=st.booleans())
    def write(self, fails: bool) -> None:
        self.begin_to_write()
        taken, self.writing = self.writing, []
        if fails:
            self.segments.leave(self.segment)
        else:
            self.append(taken)
        for one, made in taken:
            owner = self.subtasks[made[0]]
            owner.counts(one.serial)
            self.segments.counts(one.serial, owner.cut)
            self.counted |= {made}

    def append(self, taken: list[tuple[Answer, Call]]) -> None:
        self.disk.setdefault(self.segment, []).extend(one for one, _ in taken)
        self.durable |= {made for _, made in taken}

    @rule(writing=st.booleans())
    def crash(self, writing: bool) -> None:
        if writing and self.writing:  # it becomes durable, and nobody learns of it
            self.append(self.writing)
        self.begin()

    # ---- checkpoints

    @rule(subtask=st.sampled_from(SUBTASKS))
    def cut(self, subtask: int) -> None:
        """Cut for the checkpoint under way; a subtask that was is cut for the next one, which
        abandons it."""
        if subtask in self.cuts or not self.cuts:
            self.next_id += 1
            self.cuts, self.counted_at_cut = {}, set()
        self.cuts[subtask] = self.subtasks[subtask].snapshot(self.next_id)
        self.counted_at_cut |= {made for made in self.counted if made[0] == subtask}

    @precondition(lambda self: len(self.cuts) == len(SUBTASKS))
    @rule(crashes=st.booleans())
    def complete(self, crashes: bool) -> None:
        number = self.completed = self.next_id
        contents = [one for one in self.cuts.values() if one is not None]
        self.restored = self.head.attempt, frozenset(self.counted_at_cut), contents
        self.cuts = {}
        if crashes:
            self.begin()
            return
        for segment in self.segments.completed(number):
            assert not (self.writing and segment == self.segment)
            self.disk.pop(segment, None)

    @invariant()
    def needed_answers_are_on_the_disk(self) -> None:
        on_disk = {one.content for answers in self.disk.values() for one in answers}
        _, counted, _ = self.restored
        assert on_disk >= set(map(content_of, self.durable - counted))


TestAttempts = Attempts.TestCase
TestAttempts.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_answers_of_another_fork_or_life_are_not_left() -> None:
    one = [answer(1, b"a")]
    now = JournalHead(2, 0)
    assert left_answers(JournalHead(1, 0), one, RestoredCut(), now, at=0) == one
    assert left_answers(JournalHead(1, 0, "fork"), one, RestoredCut(), now, at=0) == []
    assert left_answers(JournalHead(1, 0, "", "life"), one, RestoredCut(), now, at=0) == []


def test_answers_behind_another_checkpoint_are_not_left() -> None:
    one = [answer(1, b"a", cut=7)]
    found, now = JournalHead(3, 7), JournalHead(5, 9)
    assert left_answers(found, one, RestoredCut(9, 4), now, at=0) == []
    assert left_answers(found, one, RestoredCut(7, 2), now, at=0) == one


def test_answer_that_nobody_asked_for_in_a_week_is_forgotten() -> None:
    one, head = [answer(1, b"a", at=1000)], JournalHead(1, 0)
    now = JournalHead(2, 0)
    assert left_answers(head, one, RestoredCut(), now, at=1000 + KEPT) == one
    assert left_answers(head, one, RestoredCut(), now, at=1001 + KEPT) == []


def test_equal_answers_are_taken_one_by_one_the_oldest_first() -> None:
    first, second = answer(1, b"a"), answer(2, b"a")
    left = LeftAnswers([first, second])
    assert left.take(b"a", b"state") is None
    assert [left.take(b"a", b""), left.take(b"a", b""), left.take(b"a", b"")] == [
        first,
        second,
        None,
    ]
    assert len(left) == 0


def test_segment_that_is_being_written_is_kept_when_a_checkpoint_completes() -> None:
    segments = JournalSegments()
    segments.hold([1])
    segments.counts(1, 0)
    assert segments.hold([2]) == 1
    assert segments.completed(5) == []
    segments.counts(2, 0)
    assert segments.completed(6) == [1]
    assert segments.hold([3]) == 2
