"""The journal of answers: which ones a restored job has left, and which need to be kept.

A journaled step keeps the answer of each call until a checkpoint covers it. An answer *counts*
(it is emitted, its state change applied) once it is durable. The rules:

- An answer of the attempt that took the restored checkpoint is left if it counted behind the cut
  of its subtask: `cut` tells the newest checkpoint that the subtask had been cut for when the
  answer came, and the snapshot names those that came before the cut and counted behind it.
- An answer that this attempt had found itself (it was *carried*) is left unless a snapshot says
  that it was used before the cut.
- All answers of an attempt are left that began from the restored checkpoint and completed none.

Plain decisions on plain values: knows no file, no task and no call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# An answer that nobody has asked for again in so many milliseconds (a week) never will be: its
# record came with another content.
KEPT = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one call of `step`. `serial` is unique in its attempt.

    `cut` is the newest checkpoint of its subtask when it came; None: it was carried over from an
    earlier attempt. `content` and `state` are the digests of what was called for and of the state
    that the call found (empty without state). `number` is that of the call's id, if it was asked
    for. `at` is in milliseconds since the epoch, `value` the answer in frozen form."""

    serial: int
    step: str
    cut: int | None
    content: bytes
    state: bytes
    number: int | None
    at: int
    value: bytes


@dataclass(frozen=True, slots=True)
class JournalHead:
    """Whose journal it is: that of an `attempt` that began from checkpoint `base` (0: from
    nothing). `fork` and `life` tell beginnings of a job apart that share no past."""

    attempt: int
    base: int
    fork: str = ""
    life: str = ""


@dataclass(frozen=True, slots=True)
class RestoredCut:
    """What a journal is compared with: the checkpoint that is restored (0: none), the attempt that
    took it, and what its snapshots say: serials of carried answers that were `used`, and of own
    ones that were `open` (had come, and did not count yet)."""

    checkpoint_id: int = 0
    attempt: int = 0
    used: frozenset[int] = frozenset()
    open: frozenset[int] = frozenset()


def left_answers(
    found: JournalHead,
    answers: Iterable[Answer],
    restored: RestoredCut,
    now: JournalHead,
    *,
    at: int,
) -> list[Answer]:
    """List the answers of the newest journal that belong to calls behind the restored cut.

    `now` is the head of the attempt that begins, `at` the time in milliseconds. None are left of
    a journal that has no past in common with it."""
    if (found.fork, found.life) != (now.fork, now.life):
        return []
    young = [answer for answer in answers if at - answer.at <= KEPT]
    if found.attempt == restored.attempt:
        return [answer for answer in young if _is_behind(answer, restored)]
    return young if found.base == restored.checkpoint_id else []


def _is_behind(answer: Answer, restored: RestoredCut) -> bool:
    if answer.cut is None:
        return answer.serial not in restored.used
    return answer.cut >= restored.checkpoint_id or answer.serial in restored.open


class LeftAnswers:
    """The answers that were left of one step, found by content. Equal ones are a multiset: each is
    taken once, the oldest first. All subtasks of the step share it."""

    __slots__ = ("_answers", "_count")

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self._answers: dict[tuple[bytes, bytes], deque[Answer]] = {}
        self._count = 0
        for answer in answers:
            self._answers.setdefault((answer.content, answer.state), deque()).append(answer)
            self._count += 1

    def __len__(self) -> int:
        """Count what is left."""
        return self._count

    def take(self, content: bytes, state: bytes) -> Answer | None:
        """Take the answer of a call for `content` with `state`; None if there is none."""
        found = self._answers.get((content, state))
        if not found:
            return None
        answer = found.popleft()
        if not found:
            del self._answers[content, state]
        self._count -= 1
        return answer


class AnswersOfSubtask:
    """What the snapshots of one subtask have to say of its answers."""

    __slots__ = ("_open", "_used", "cut")

    def __init__(self, base: int) -> None:
        """Begin behind the restored checkpoint `base` (0: none)."""
        self.cut = base
        self._used: list[int] = []
        self._open: set[int] = set()

    def used(self, serial: int) -> None:
        """A carried answer counts."""
        self._used.append(serial)

    def came(self, serial: int) -> None:
        """An answer has come, and does not count yet."""
        self._open.add(serial)

    def counts(self, serial: int) -> None:
        """An answer that had come counts."""
        self._open.discard(serial)

    def snapshot(self, checkpoint_id: int) -> tuple[list[int], list[int]] | None:
        """Cut for a checkpoint: (serials that were used, serials that are open); None for none."""
        self.cut = checkpoint_id
        if not self._used and not self._open:
            return None
        return list(self._used), sorted(self._open)


def restored_cut(
    checkpoint_id: int, attempt: int, contents: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> RestoredCut:
    """Join what the snapshots of a checkpoint say."""
    used: set[int] = set()
    still_open: set[int] = set()
    for one_used, one_open in contents:
        used.update(one_used)
        still_open.update(one_open)
    return RestoredCut(checkpoint_id, attempt, frozenset(used), frozenset(still_open))


class JournalSegments:
    """Which files of a journal are still needed. The carried answers are in segment 0."""

    def __init__(self, carried: Iterable[int] = ()) -> None:
        """Begin with the serials that were carried over."""
        self._segment_of: dict[int, int] = {}
        self._waiting: dict[int, int] = {}  # per segment: answers that do not count yet
        self._newest: dict[int, int] = {}  # per segment: the newest cut before which one counts
        self._current = 1
        self._add(0, carried)

    def hold(self, serials: Iterable[int]) -> int:
        """Answers are about to be written; return the segment that they belong to."""
        self._add(self._current, serials)
        return self._current

    def _add(self, segment: int, serials: Iterable[int]) -> None:
        for serial in serials:
            self._segment_of[serial] = segment
            self._waiting[segment] = self._waiting.get(segment, 0) + 1
            self._newest.setdefault(segment, 0)

    def counts(self, serial: int, cut: int) -> None:
        """An answer counts, since its subtask was cut for `cut`."""
        segment = self._segment_of.pop(serial)
        self._waiting[segment] -= 1
        self._newest[segment] = max(self._newest[segment], cut)

    def completed(self, checkpoint_id: int) -> list[int]:
        """A checkpoint is complete: what is written from now on goes to a new segment. Returns the
        segments all of whose answers it covers; they are forgotten."""
        covered = [
            segment
            for segment, newest in self._newest.items()
            if not self._waiting[segment] and newest < checkpoint_id
        ]
        if self._current in self._newest:
            self._current += 1
        for segment in covered:
            del self._newest[segment], self._waiting[segment]
        return covered

    def everything(self) -> list[int]:
        """Name all segments that there are."""
        return list(self._newest)

    def leave(self, segment: int) -> None:
        """Nothing more may be written to a segment."""
        self._current = max(self._current, segment + 1)


def by_step(answers: Iterable[Answer]) -> Mapping[str, LeftAnswers]:
    """Divide answers by their steps."""
    divided: dict[str, list[Answer]] = {}
    for answer in answers:
        divided.setdefault(answer.step, []).append(answer)
    return {step: LeftAnswers(own) for step, own in divided.items()}
