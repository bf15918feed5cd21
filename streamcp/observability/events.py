"""What happened in a job, as typed values, and the log that keeps the newest of them.

Events are in the past tense, hold plain values, and carry their moment in milliseconds since the
epoch. Durations are seconds. A listener can neither stop nor fail the job. Some are called like
the error that goes with them (`errors.JobFailed`): import this module and write `events.JobFailed`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, TypeAlias

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at_ms`."""

    at_ms: int

    def as_dict(self) -> dict[str, Any]:
        """Give the event as plain values, with its class name as `event`."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class JobStarted(Event):
    """Every task of an attempt runs."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JobRestored(Event):
    """An attempt took its state from a checkpoint, and runs; `in_flight_records` are replayed.
    `savepoint` is the path of the savepoint that it was read from, if it was."""

    job: str
    attempt: int
    checkpoint_id: int
    duration: float
    in_flight_records: int
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A task raised; `error` is the text of it."""

    task: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class JobRestarting(Event):
    """The job failed and starts again after `delay`."""

    job: str
    attempt: int
    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class JobFinished(Event):
    """Every source came to its end and all output is committed."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JobStopped(Event):
    """The job was stopped on request; it continues from `checkpoint_id` (None: from nothing)."""

    job: str
    attempt: int
    checkpoint_id: int | None


@dataclass(frozen=True, slots=True)
class JobFailed(Event):
    """The job failed and is not started again; `error` is the text of the cause."""

    job: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class CheckpointTriggered(Event):
    """A checkpoint began; `reason` says why in that mode."""

    checkpoint_id: int
    kind: str
    mode: str
    reason: str
    prediction: float | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEscalated(Event):
    """An aligned checkpoint went on unaligned, `after` seconds from its trigger."""

    checkpoint_id: int
    after: float
    by: str


@dataclass(frozen=True, slots=True)
class CheckpointCompleted(Event):
    """A checkpoint is durable and complete; `statistics` are its job-wide figures."""

    checkpoint_id: int
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Event):
    """A checkpoint ended without being complete; `reason` names the FailureReason."""

    checkpoint_id: int
    reason: str
    detail: str
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SavepointWritten(Event):
    """A complete checkpoint was copied to `path`, which belongs to the user."""

    checkpoint_id: int
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointOverdue(Event):
    """The last complete checkpoint is older than `max_age` allows (rule P32a); `age` is None if
    there is none."""

    age: float | None
    max_age: float


@dataclass(frozen=True, slots=True)
class EventLoopHeld(Event):
    """A step kept everything else waiting for `seconds` in one go, `doing` says by what.

    Told at once, and then rarely: `times` is how often it happened since the step was last told
    of, and `seconds` the longest of these."""

    step: str
    place: str
    seconds: float
    times: int
    doing: str
    remedy: str

    def told(self) -> str:
        """Say it in one sentence."""
        often = f" ({self.times} times, this was the longest)" if self.times > 1 else ""
        return (
            f"step {self.step!r} ({self.place}) held the event loop for {self.seconds:.2f} s "
            f"{self.doing}{often}, and everything else waited: {self.remedy}"
        )


@dataclass(frozen=True, slots=True)
class BreakerOpened(Event):
    """The calls of a step have failed too often: none is made for `pause` seconds. `error` is the
    last one's."""

    step: str
    pause: float
    error: str


@dataclass(frozen=True, slots=True)
class BreakerClosed(Event):
    """The probes of a step have succeeded: calls are made again."""

    step: str


@dataclass(frozen=True, slots=True)
class JournalFailed(Event):
    """Answers cannot be journaled for now: after a crash their calls may be made again. Told once
    per trouble."""

    error: str


Listener: TypeAlias = Callable[[Event], object]


class EventLog:
    """Keeps the newest events, oldest first, and tells each to its listeners."""

    def __init__(self, capacity: int = 1000) -> None:
        """Keep the newest `capacity` events."""
        self._events: deque[Event] = deque(maxlen=capacity)
        self._listeners: dict[int, Listener] = {}
        self._numbers = count()
        self._recorded = 0

    def __repr__(self) -> str:
        """Show how many events are kept and were recorded."""
        return f"EventLog(kept={len(self._events)}, recorded={self._recorded})"

    @property
    def recorded(self) -> int:
        """How many events were recorded, those no longer kept included."""
        return self._recorded

    def events(self) -> tuple[Event, ...]:
        """Give the kept events, oldest first."""
        return tuple(self._events)

    def record(self, event: Event) -> None:
        """Keep `event` and call the listeners at once, in the order in which they subscribed.

        Never raises: the error of a listener is logged, and the others are called."""
        self._events.append(event)
        self._recorded += 1
        for listener in tuple(self._listeners.values()):
            try:
                listener(event)
            # A listener may raise anything, and no observer may harm the job.
            except Exception:
                _logger.exception("a listener failed on %s", type(event).__name__)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on, until the returned function is called
        (more often does nothing). One that is subscribed twice is called twice."""
        number = next(self._numbers)
        self._listeners[number] = listener

        def unsubscribe() -> None:
            self._listeners.pop(number, None)

        return unsubscribe
