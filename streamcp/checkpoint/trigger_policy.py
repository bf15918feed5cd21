"""When checkpoints are triggered: by the interval, on request, at stop and at the end (rule P5).

Invariants: never more than the maximum of concurrent checkpoints; the minimum pause lies between
the end of one and the trigger of the next (stop and final ones skip it, rule P33); every request
is handed out with exactly one trigger or by `close`. All times are seconds of one monotonic clock
and are passed in; which checkpoint ids and modes the triggers get is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

TriggerKind: TypeAlias = Literal["periodic", "requested", "stop", "final"]

# A final checkpoint that failed is tried again; without a pause a full disk would make the end
# of a job a busy loop.
FINAL_RETRY_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class TriggerNow:
    """Trigger a checkpoint at once; its outcome answers `requests` (in order of arrival)."""

    kind: TriggerKind
    requests: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to trigger: ask again at `until`, or after the next event if that is earlier.

    None: only an event (an end, a request, a new interval) can change the answer."""

    until: float | None


class TriggerPolicy:
    """Decides when the next checkpoint is triggered.

    The interval is counted from trigger to trigger, whatever its kind: a long checkpoint is
    followed by one, not by as many as intervals have passed, and a requested one takes the place
    of the periodic one that was about to come.
    """

    def __init__(
        self,
        interval: float | None,
        min_pause: float,
        max_concurrent: int = 1,
        *,
        now: float,
    ) -> None:
        """Begin the first interval at `now`, when the job runs (rule P40).

        `interval` None: no periodic checkpoints. More than one concurrent checkpoint is right
        only where every one is aligned."""
        self._interval = interval
        self._min_pause = min_pause
        self._max_concurrent = max_concurrent
        self._last_trigger = now
        self._earliest = now  # end of the last checkpoint plus the minimum pause
        self._requests: list[int] = []
        self._stops: list[int] = []
        self._final = False
        self._final_earliest = now
        self._over = False
        self._running: list[TriggerNow] = []

    def __repr__(self) -> str:
        """Show what runs and what waits."""
        return (
            f"TriggerPolicy(interval={self._interval}, running={len(self._running)}, "
            f"requests={len(self._requests)}, stops={len(self._stops)}, final={self._final})"
        )

    @property
    def running(self) -> int:
        """How many triggered checkpoints have not ended."""
        return len(self._running)

    def set_interval(self, interval: float | None) -> None:
        """Use another interval, counted from the last trigger (rule P28)."""
        self._interval = interval

    def set_max_concurrent(self, checkpoints: int) -> None:
        """Let so many run at a time from the next trigger on; those that run go on (rule P28)."""
        self._max_concurrent = checkpoints

    def request(self, request: int) -> None:
        """Ask for a checkpoint. Those that wait together share one; one that already runs began
        too early to answer. The caller numbers its requests."""
        self._requests.append(request)

    def request_stop(self, request: int) -> None:
        """Ask for the checkpoint of a stop: before all others, without the minimum pause."""
        self._stops.append(request)

    def request_final(self) -> None:
        """Ask for the checkpoint of a job that came to its end. Asking twice is asking once.

        One that fails is tried again after a pause, until one completes."""
        self._final = True

    def decide(self, now: float) -> TriggerNow | Wait:
        """Say what to do at `now`.

        A TriggerNow is given once and has taken its place among the running ones: the caller
        triggers, and tells `ended` in every case."""
        due = self.next_due(now)
        if due is None or due > now:
            return Wait(due)
        trigger = self._take()
        self._running.append(trigger)
        self._last_trigger = now
        return trigger

    def next_due(self, now: float) -> float | None:
        """Tell when `decide` would trigger if nothing happened until then; never before `now`.

        None: not before the next event."""
        if self._over or len(self._running) >= self._max_concurrent or self._closing():
            return None
        times = self._possible_times(now)
        return max(now, min(times)) if times else None

    def ended(self, trigger: TriggerNow, now: float, *, completed: bool) -> None:
        """Tell that a triggered checkpoint is complete, or ended without being so.

        A complete stop or final one is the last: nothing is triggered after it. After a failed
        stop the job goes on as before (rule P33); a failed final one is wanted again. Raises
        ValueError if `trigger` does not run."""
        self._running.remove(trigger)
        self._earliest = now + self._min_pause
        if trigger.kind in ("stop", "final") and completed:
            self._over = True
        elif trigger.kind == "final":
            self._final = True
            self._final_earliest = now + max(self._min_pause, FINAL_RETRY_PAUSE)

    def close(self) -> tuple[int, ...]:
        """Trigger nothing more; give back the requests that wait, stops included, which no
        checkpoint will answer."""
        self._over = True
        waiting = (*self._stops, *self._requests)
        self._stops, self._requests = [], []
        return waiting

    def _closing(self) -> bool:
        """A stop or final checkpoint runs: whether another is needed is known when it ends."""
        return any(trigger.kind in ("stop", "final") for trigger in self._running)

    def _possible_times(self, now: float) -> list[float]:
        times = []
        if self._stops:
            times.append(now)
        if self._final:
            times.append(self._final_earliest)
        if self._requests:
            times.append(self._earliest)
        if self._interval is not None and not self._final:
            times.append(max(self._last_trigger + self._interval, self._earliest))
        return times

    def _take(self) -> TriggerNow:
        kind: TriggerKind = "periodic"
        if self._stops:
            kind = "stop"
        elif self._final:
            kind = "final"
        elif self._requests:
            kind = "requested"
        trigger = TriggerNow(kind, (*self._stops, *self._requests))
        self._stops, self._requests = [], []
        if kind == "final":
            self._final = False
        return trigger
