"""Whether a failed job is restarted, and after how long: a pure decision.

Monotonic seconds are passed in. It takes the numbers of `config.Restart` by their names and
imports nothing, so that it can be driven without a job.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, Protocol


class RestartNumbers(Protocol):
    """What `config.Restart` holds: see there for what each means; durations in seconds."""

    @property
    def kind(self) -> Literal["none", "fixed_delay", "exponential_backoff", "failure_rate"]:
        """Which strategy."""
        ...

    @property
    def attempts(self) -> int | None:
        """How many restarts (or failures in the interval) at most; None for any number."""
        ...

    @property
    def delay(self) -> float:
        """Before the (first) restart."""
        ...

    @property
    def maximum(self) -> float:
        """The longest delay of an exponential back-off."""
        ...

    @property
    def multiplier(self) -> float:
        """By which each delay is longer than the one before it."""
        ...

    @property
    def reset_after(self) -> float:
        """How long without a failure until an exponential back-off starts anew."""
        ...

    @property
    def interval(self) -> float:
        """In which a failure rate counts."""
        ...


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Restart the job from its newest complete checkpoint after that many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the job; `reason` is a sentence for its error."""

    reason: str


class RestartStrategy:
    """Answers each failure of a job with a restart or the end."""

    def __init__(self, numbers: RestartNumbers) -> None:
        """Begin without failures."""
        self._numbers = numbers
        self._restarts = 0
        self._delay = numbers.delay  # of the next exponential restart
        self._quiet_from: float | None = None  # when the last restart was to happen
        self._failures: deque[float] = deque()

    def on_failure(self, now: float) -> RestartAfter | GiveUp:
        """Decide about the failure that happened at `now`; it counts from now on."""
        match self._numbers.kind:
            case "none":
                return GiveUp("no restart strategy is set")
            case "fixed_delay":
                return self._counted(self._numbers.delay)
            case "exponential_backoff":
                return self._backed_off(now)
            case "failure_rate":
                return self._rated(now)

    def _counted(self, delay: float) -> RestartAfter | GiveUp:
        attempts = self._numbers.attempts
        if attempts is not None and self._restarts >= attempts:
            return GiveUp(f"all {attempts} restarts are used up")
        self._restarts += 1
        return RestartAfter(delay)

    def _backed_off(self, now: float) -> RestartAfter | GiveUp:
        # The delay itself is no time without failure: a maximum of reset_after would else begin
        # anew for ever.
        if self._quiet_from is not None and now - self._quiet_from >= self._numbers.reset_after:
            self._restarts = 0
            self._delay = self._numbers.delay
        delay = min(self._delay, self._numbers.maximum)
        self._delay = min(delay * self._numbers.multiplier, self._numbers.maximum)
        self._quiet_from = now + delay
        return self._counted(delay)

    def _rated(self, now: float) -> RestartAfter | GiveUp:
        self._failures.append(now)
        while now - self._failures[0] > self._numbers.interval:
            self._failures.popleft()
        attempts = self._numbers.attempts
        if attempts is not None and len(self._failures) > attempts:
            return GiveUp(
                f"{len(self._failures)} failures in {self._numbers.interval:g} s "
                f"are more than {attempts}"
            )
        return RestartAfter(self._numbers.delay)
