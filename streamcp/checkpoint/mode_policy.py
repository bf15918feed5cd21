"""Which mode a checkpoint starts in, and when it may be escalated (rules P25 to P28).

A pure policy: the predicted alignment time and the outcomes of earlier choices in, a choice with
its reason out. Durations are seconds from the trigger. It knows no task and no channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Literal, TypeAlias

from streamcp.elements import CheckpointMode

ChosenMode: TypeAlias = Literal["aligned", "unaligned", "adaptive", "at_least_once"]

# Once unaligned, a prediction must fall to half the budget before alignment is tried again: the
# length of queues changes by that much between two checkpoints of a steady job.
RETURN_SHARE = 0.5

# After a prediction of "fast" that the timeout disproved, this many checkpoints start unaligned
# without asking the prediction; doubled for each further such failure, up to the limit.
DISTRUST_FIRST = 4
DISTRUST_LIMIT = 64


def refused_switch(now: ChosenMode, wanted: ChosenMode) -> str | None:
    """Say why a running job cannot go from one mode to the other; None if it can (rule P28).

    Exactly-once modes follow one another freely. At least once is the promise of a whole run:
    exactly-once sinks are refused when the job is built (rule P29), and states that hold a record
    twice would be called exact by a later switch."""
    if (now == "at_least_once") == (wanted == "at_least_once"):
        return None
    return (
        f"the job runs in mode {now!r}, and a run is at least once from its start to its end or "
        f"never; stop it, and start it with Checkpoints(mode={wanted!r})"
    )


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How a checkpoint starts.

    `escalate_after`: seconds from the trigger (rule P25) after which an aligned checkpoint is
    escalated, if `ModePolicy.fits` then; None: never. `prediction` is the predicted alignment
    time that was known, whether or not it was used.
    """

    mode: CheckpointMode
    escalate_after: float | None
    reason: str
    prediction: float | None = None


class ModePolicy:
    """Chooses the mode of each checkpoint, and learns from how the choices turned out."""

    def __init__(
        self,
        mode: ChosenMode,
        alignment_timeout: float,
        predict: bool,
        *,
        max_in_flight_bytes: int | None = None,
    ) -> None:
        """Take the settings; `alignment_timeout` is also the budget of the prediction."""
        self._mode: ChosenMode = mode
        self._timeout = alignment_timeout
        self._predict = predict
        self._bound = max_in_flight_bytes
        self._was_slow = False  # hysteresis: the last prediction asked for unaligned
        self._distrusted = 0  # checkpoints left that do not ask the prediction
        self._next_distrust = DISTRUST_FIRST

    def __repr__(self) -> str:
        """Show the settings and what was learned."""
        return (
            f"ModePolicy({self._mode!r}, alignment_timeout={self._timeout}, "
            f"predict={self._predict}, distrusted={self._distrusted})"
        )

    @property
    def mode(self) -> ChosenMode:
        """The mode that the next trigger goes by."""
        return self._mode

    @property
    def alignment_timeout(self) -> float:
        """The alignment timeout that the next trigger goes by, in seconds."""
        return self._timeout

    def set_mode(self, mode: ChosenMode) -> None:
        """Use another mode from the next trigger on; what was learned is forgotten (rule P28)."""
        self._mode = mode
        self._forget()

    def max_concurrent(self, wanted: int, running: Iterable[ChosenMode]) -> int:
        """Say how many checkpoints may run at a time: `wanted` if all are aligned (rule P5).

        `running` are the modes of those that run, and of those that are asked for by savepoints.
        Going to another mode waits for those that run, and coming from one too (rule P28)."""
        overlap = self._mode == "aligned" and all(mode == "aligned" for mode in running)
        return wanted if overlap else 1

    def set_alignment_timeout(self, seconds: float) -> None:
        """Use another timeout and budget from the next trigger on (rule P28)."""
        self._timeout = seconds
        self._forget()

    def fits(self, in_flight_bytes: int) -> bool:
        """Say whether that much in-flight data may be captured (rule P27a).

        Asked at the trigger by `choose`, and by the caller before each escalation: one that does
        not fit is asked again later."""
        return self._bound is None or in_flight_bytes <= self._bound

    def choose(
        self,
        predicted_alignment: float | None = None,
        in_flight_bytes: int = 0,
        *,
        asked: ChosenMode | None = None,
    ) -> ModeChoice:
        """Choose the mode of the checkpoint that is being triggered (rule P27).

        `predicted_alignment` in seconds, None if unknown; `in_flight_bytes` is the estimate for
        the whole job. What would be too much to capture starts aligned, to be escalated as soon
        as it fits. `asked`: the mode that was asked for this one checkpoint; None: the job's."""
        by = asked or self._mode
        mode, reason = self._wanted(by, predicted_alignment)
        if mode == "unaligned" and not self.fits(in_flight_bytes):
            reason = (
                f"{reason}; but {in_flight_bytes} bytes in flight are more than "
                f"max_in_flight_bytes={self._bound}"
            )
            return ModeChoice("aligned", 0.0, reason, predicted_alignment)
        after = self._timeout if mode == "aligned" and by == "adaptive" else None
        return ModeChoice(mode, after, reason, predicted_alignment)

    def observe(self, choice: ModeChoice, alignment: float, *, escalated: bool) -> None:
        """Learn how a choice of this policy turned out; `alignment` is the longest of a subtask.

        An alignment that the prediction called fast and that had to be escalated makes the policy
        distrust predictions for some checkpoints. One that took no longer than the timeout wins
        the trust back."""
        if self._mode != "adaptive" or choice.mode != "aligned" or not choice.escalate_after:
            return
        if escalated:
            if self._predict and choice.prediction is not None:
                self._distrusted = self._next_distrust
                self._next_distrust = min(self._next_distrust * 2, DISTRUST_LIMIT)
        elif alignment <= self._timeout:
            self._next_distrust = DISTRUST_FIRST

    def _forget(self) -> None:
        self._was_slow = False
        self._distrusted = 0
        self._next_distrust = DISTRUST_FIRST

    def _wanted(self, by: ChosenMode, predicted: float | None) -> tuple[CheckpointMode, str]:
        if by != "adaptive":
            return by, f"the mode is {by}"
        if self._timeout <= 0:
            return "unaligned", "the alignment timeout is 0"
        if not self._predict:
            return "aligned", "the prediction is switched off"
        if self._distrusted > 0:
            self._distrusted -= 1
            return "unaligned", "a recent alignment was slow although it was predicted to be fast"
        if predicted is None:
            return "aligned", "the alignment time cannot be predicted yet"
        return self._by_prediction(predicted)

    def _by_prediction(self, predicted: float) -> tuple[CheckpointMode, str]:
        limit = self._timeout * (RETURN_SHARE if self._was_slow else 1.0)
        self._was_slow = predicted > limit
        if self._was_slow:
            return "unaligned", f"predicted alignment {predicted:.3f} s is above {limit:.3f} s"
        return "aligned", f"predicted alignment {predicted:.3f} s is within {limit:.3f} s"


# From the one that suits every use of a checkpoint to the one that is soonest there.
_STRICTEST_FIRST: tuple[ChosenMode, ...] = ("aligned", "adaptive", "unaligned", "at_least_once")


def strictest(modes: Iterable[ChosenMode | None]) -> ChosenMode | None:
    """Choose for a checkpoint that answers several requests; None where nobody asks for a mode.

    What is aligned serves whoever asked for less, but not the other way round."""
    asked = set(modes)
    return next((mode for mode in _STRICTEST_FIRST if mode in asked), None)


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the prediction needs to know of a task.

    - `upstream`: names of the tasks that feed it, back edges of loops left out.
    - `queued_records`: per subtask, what lies before it: its input channels, the senders' output
      queues, and the unprocessed rest of the batch in hand.
    - `service_rate`: records per second of *busy* time of one subtask (the slowest, if they
      differ), None if unknown. Waiting for outputs is not busy time.
    - `selectivity`: records emitted to each output per record taken; one that goes to every
      receiver is one.
    - `broadcast_from`: those of `upstream` whose every record reaches every subtask.
    """

    name: str
    upstream: tuple[str, ...]
    queued_records: tuple[int, ...]
    service_rate: float | None
    selectivity: float = 1.0
    broadcast_from: frozenset[str] = frozenset()


def predict_alignment(tasks: Iterable[TaskFacts]) -> float | None:
    """Predict how long an aligned barrier that starts now would need to reach every task.

    In line, a barrier passes a task when the task has served everything before the barrier: its
    own queue, and what the queues upstream will still send it. So along a path the records add up
    (each task's selectivity applied) and are divided by the rate of the task that serves them;
    queues before a faster task on the same path drain meanwhile. The slowest task of the longest
    path decides: k full exchanges of p channels with C records each before a task of rate μ give
    k·p·C/μ.

    Upstream names without facts (finished tasks) send nothing. Returns seconds, or None if the
    rate of a task that has something to serve is unknown. Raises graphlib.CycleError for a cycle.
    """
    facts = {task.name: task for task in tasks}
    order = TopologicalSorter({name: task.upstream for name, task in facts.items()}).static_order()
    sent: dict[str, float] = {}  # what each task will have sent to each output, all subtasks
    longest = 0.0
    for name in order:
        task = facts.get(name)
        if task is None:
            continue
        arriving = sum(sent.get(sender, 0.0) * _copies(task, sender) for sender in task.upstream)
        sent[name] = (arriving + sum(task.queued_records)) * task.selectivity
        drained = _drain_time(task, arriving)
        if drained is None:
            return None
        longest = max(longest, drained)
    return longest


def _copies(task: TaskFacts, sender: str) -> int:
    """How many of the task's subtasks get each record that `sender` sends."""
    return max(len(task.queued_records), 1) if sender in task.broadcast_from else 1


def _drain_time(task: TaskFacts, arriving: float) -> float | None:
    """Seconds until the subtask with the fullest queue has served it and its share of what is
    still to arrive."""
    subtasks = max(len(task.queued_records), 1)
    records = max(task.queued_records, default=0) + arriving / subtasks
    if records == 0:
        return 0.0
    if not task.service_rate:
        return None
    return records / task.service_rate
