"""Frozen, validated settings; every default with its reason. Durations are text or `timedelta`."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from streamcp.errors import SettingsError

Duration: TypeAlias = timedelta | str
Mode: TypeAlias = Literal["aligned", "unaligned", "adaptive", "at_least_once"]
EXACTLY_ONCE_MODES: tuple[Mode, ...] = ("aligned", "unaligned", "adaptive")
MODES: tuple[Mode, ...] = (*EXACTLY_ONCE_MODES, "at_least_once")

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")


def seconds(duration: Duration, *, setting: str) -> float:
    """Convert a duration to seconds; `setting` names it in the error.

    Raises SettingsError for bare numbers (is it seconds or milliseconds?), unknown units and
    negative values."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
        if value < 0:
            raise SettingsError(f"{setting}={duration!r} is negative; a duration is zero or more")
        return value
    if isinstance(duration, str) and (match := _DURATION.fullmatch(duration.strip())):
        return float(match[1]) * _UNITS[match[2]]
    raise SettingsError(
        f'{setting}={duration!r} is not a duration; write a text such as "100ms", "5s", "1m", '
        '"2h", "7d", or a timedelta'
    )


Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""A class of exceptions, or several."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Call again after a failure: `attempts` calls in all, `backoff` before the second, doubled
    before each later one, up to `maximum`. Only errors that are instances of `on` are retried.

    Of each wait a part is left out at random, up to `jitter` of it (0 to 1): calls that failed
    together are not made again together."""

    attempts: int = 3
    backoff: Duration = "100ms"
    on: Errors = Exception
    # Long enough to leave a service alone that is down, short enough to notice that it is back.
    maximum: Duration = "1m"
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Check the values."""
        if self.attempts < 1:
            raise SettingsError(f"Retry(attempts={self.attempts}) makes no call; write 1 or more")
        seconds(self.backoff, setting="Retry(backoff)")
        seconds(self.maximum, setting="Retry(maximum)")
        if not 0 <= self.jitter <= 1:
            raise SettingsError(
                f"Retry(jitter={self.jitter}): write the part of each wait that is left to chance, "
                "0 to 1"
            )

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Seconds to wait after the given number of failures (1 or more); `chance` is drawn from
        0 to 1."""
        first = seconds(self.backoff, setting="Retry(backoff)")
        longest = seconds(self.maximum, setting="Retry(maximum)")
        # Sixty times twice as long is longer than any maximum, and no overflow.
        doubled = first * 2.0 ** min(failures - 1, 60)
        return min(doubled, longest) * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Rate:
    """Make at most `limit` calls per `per`: in any time t, at most `burst` + t × limit / per.

    - `burst`: so many may be made at once after a time without calls; by default what a hundredth
      of a second holds, at least 1, so that calls are spread evenly.
    - `key`: each value of `key(record)` has an allowance of its own.

    Every attempt counts as a call. An allowance belongs to the step, whatever its parallelism, and
    begins with room for one call, also after a restart: a burst has to be saved up."""

    limit: float
    per: Duration = "1s"
    burst: int | None = None
    key: Callable[[Any], Hashable] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.limit > 0:
            raise SettingsError(f"Rate({self.limit}) allows no call; write more than 0")
        if seconds(self.per, setting="Rate(per)") <= 0:
            raise SettingsError(f"Rate(per={self.per!r}) must be more than zero")
        if self.burst is not None and self.burst < 1:
            raise SettingsError(f"Rate(burst={self.burst}) allows no call; write 1 or more")
        if self.key is not None and not callable(self.key):
            raise SettingsError(f"Rate(key={self.key!r}) is no function of a record")

    @property
    def interval(self) -> float:
        """Seconds from call to call, if they are spread evenly."""
        return seconds(self.per, setting="Rate(per)") / self.limit

    @property
    def at_once(self) -> int:
        """How many calls may be made at once."""
        return self.burst if self.burst is not None else max(1, round(0.01 / self.interval))


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Leave a service alone that is down: after `failures` failed calls in a row none is made for
    `reset_after`; then `probes` calls are tried, and if they succeed, all are made again.

    Records wait meanwhile, in their order. Only errors that are instances of `on` count; with
    another one the service has answered. The step is meant, whatever its parallelism."""

    failures: int = 5
    reset_after: Duration = "30s"
    probes: int = 1
    on: Errors = Exception

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("failures", "probes"):
            if getattr(self, name) < 1:
                raise SettingsError(
                    f"CircuitBreaker({name}={getattr(self, name)}): write 1 or more"
                )
        if seconds(self.reset_after, setting="CircuitBreaker(reset_after)") <= 0:
            raise SettingsError(
                f"CircuitBreaker(reset_after={self.reset_after!r}) must be more than zero"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """When, where and how checkpoints are taken.

    - `to`: the directory; the job's checkpoints are in `to/<job name>/`.
    - `every`: the interval; None for only on request, at stop and at the end.
    - `mode`: "aligned", "unaligned" or "adaptive" (aligned, and escalated when barriers are slow);
      or "at_least_once" for the whole job: nothing waits and nothing is captured, but after a
      restore records may be processed again.
    - `alignment_timeout`: from the trigger; after it an adaptive checkpoint is escalated.
    - `predict`: an adaptive checkpoint starts unaligned if the alignment would be slow anyway.
    - `timeout`: a checkpoint that takes longer is given up.
    - `min_pause`: from the end of one to the trigger of the next.
    - `incremental`: the snapshot of a keyed step holds only the keys that changed since the last
      complete checkpoint, where that is less.
    - `max_concurrent`: how many may run at a time; more than 1 only with mode "aligned".
    - `retain`: how many complete checkpoints are kept.
    - `tolerable_failures`: how many in a row may fail; None for any number. One more fails the job.
    - `max_age`: of the last complete checkpoint; an older one is reported as an alarm.
    - `fail_on_max_age`: the alarm also fails the job.
    - `max_in_flight_bytes`: above this estimate a checkpoint stays aligned.
    """

    to: str | Path
    every: Duration | None = None
    mode: Mode = "adaptive"
    # Long enough that a pipeline without backpressure never escalates (a barrier passes an
    # idle graph in well under a millisecond), short enough not to be felt.
    alignment_timeout: Duration = "100ms"
    predict: bool = True
    timeout: Duration = "10m"
    min_pause: Duration = "0s"
    # Worth it where few keys of many change; else it only makes restores longer.
    incremental: bool = False
    # A second one while the first still runs makes neither of them faster.
    max_concurrent: int = 1
    # The newest may be damaged: one to fall back to, and one to look at.
    retain: int = 3
    # A full disk should not take the pipeline down; every failure is an event and a warning.
    tolerable_failures: int | None = None
    max_age: Duration | None = None
    fail_on_max_age: bool = False
    max_in_flight_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check every value at definition."""
        if self.mode not in MODES:
            raise SettingsError(
                f"Checkpoints(mode={self.mode!r}): choose one of {', '.join(MODES)}"
            )
        for name in ("alignment_timeout", "timeout", "min_pause"):
            seconds(getattr(self, name), setting=f"Checkpoints({name})")
        for name in ("every", "max_age"):
            value = getattr(self, name)
            if value is not None and seconds(value, setting=f"Checkpoints({name})") <= 0:
                raise SettingsError(f"Checkpoints({name}={value!r}) must be more than zero")
        if self.max_concurrent < 1:
            raise SettingsError(
                f"Checkpoints(max_concurrent={self.max_concurrent}): write 1 or more"
            )
        if self.max_concurrent > 1:
            self._check_may_overlap()
        if self.retain < 1:
            raise SettingsError(f"Checkpoints(retain={self.retain}): keep 1 or more")
        if self.tolerable_failures is not None and self.tolerable_failures < 0:
            raise SettingsError(
                f"Checkpoints(tolerable_failures={self.tolerable_failures}): "
                "write 0 or more, or None"
            )
        if self.max_in_flight_bytes is not None and self.max_in_flight_bytes < 0:
            raise SettingsError(
                f"Checkpoints(max_in_flight_bytes={self.max_in_flight_bytes}): write 0 or more"
            )

    def _check_may_overlap(self) -> None:
        setting = f"Checkpoints(max_concurrent={self.max_concurrent})"
        if self.mode != "aligned":
            raise SettingsError(
                f'{setting} needs mode="aligned", and the mode is {self.mode!r}: elsewhere one '
                "checkpoint has to end before the next begins"
            )
        if seconds(self.min_pause, setting="Checkpoints(min_pause)") > 0:
            raise SettingsError(
                f"{setting} lets checkpoints overlap, and min_pause={self.min_pause!r} asks for a "
                "pause between them: leave one of the two out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What happens after a failure of the job: made by the class methods."""

    kind: Literal["none", "fixed_delay", "exponential_backoff", "failure_rate"]
    attempts: int | None = None
    delay: float = 0.0
    maximum: float = 0.0
    multiplier: float = 1.0
    reset_after: float = 0.0
    interval: float = 0.0

    @classmethod
    def none(cls) -> Restart:
        """Fail the job at its first failure."""
        return cls(kind="none")

    @classmethod
    def fixed_delay(cls, *, attempts: int | None = 3, delay: Duration = "1s") -> Restart:
        """Restart up to `attempts` times in the job's life (None: always), after `delay`."""
        _at_least_one("Restart.fixed_delay(attempts)", attempts)
        return cls(
            kind="fixed_delay",
            attempts=attempts,
            delay=seconds(delay, setting="Restart.fixed_delay(delay)"),
        )

    @classmethod
    def exponential_backoff(
        cls,
        *,
        attempts: int | None = None,
        delay: Duration = "1s",
        maximum: Duration = "1m",
        multiplier: float = 2.0,
        reset_after: Duration = "10m",
    ) -> Restart:
        """Restart after `delay`, then `multiplier` times as long each time, up to `maximum`.

        After `reset_after` without a failure it starts anew, with `attempts` too."""
        _at_least_one("Restart.exponential_backoff(attempts)", attempts)
        if multiplier < 1:
            raise SettingsError(
                f"Restart.exponential_backoff(multiplier={multiplier}): write 1.0 or more"
            )
        name = "Restart.exponential_backoff"
        return cls(
            kind="exponential_backoff",
            attempts=attempts,
            delay=seconds(delay, setting=f"{name}(delay)"),
            maximum=seconds(maximum, setting=f"{name}(maximum)"),
            multiplier=multiplier,
            reset_after=seconds(reset_after, setting=f"{name}(reset_after)"),
        )

    @classmethod
    def failure_rate(
        cls, *, attempts: int = 3, interval: Duration = "5m", delay: Duration = "1s"
    ) -> Restart:
        """Restart after `delay`, unless there were more than `attempts` failures in `interval`."""
        _at_least_one("Restart.failure_rate(attempts)", attempts)
        return cls(
            kind="failure_rate",
            attempts=attempts,
            delay=seconds(delay, setting="Restart.failure_rate(delay)"),
            interval=seconds(interval, setting="Restart.failure_rate(interval)"),
        )


def _at_least_one(setting: str, attempts: int | None) -> None:
    if attempts is not None and attempts < 1:
        raise SettingsError(f"{setting}={attempts}: write 1 or more, or Restart.none()")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings of one run, after all their origins were merged (rule 15 of the API).

    - `channel_capacity`: records per channel.
    - `accept_duplicates`: restore an older checkpoint although exactly-once sinks may have
      committed since.
    - `allow_unmatched_state`: leave behind what a checkpoint holds of steps that are gone.
    - `take_over`: start although another copy of the job shows life.
    - `fresh`: start anew, keeping checkpoint ids increasing.
    - `restore`: the directory of a savepoint to begin from, instead of a checkpoint of the job's
      own; with `fresh` also if the job has such.
    - `strict`: look for records that are changed in place although others have them too, and for
      types that no snapshot can hold; None for only under `streamcp.testing`.
    """

    checkpoints: Checkpoints | None = None
    restart: Restart = field(default_factory=Restart.none)
    # Four full batches: a sender works whole batches until it waits, not ever shorter rests.
    channel_capacity: int = 4096
    fresh: bool = False
    accept_duplicates: bool = False
    allow_unmatched_state: bool = False
    take_over: bool = False
    restore: str | Path | None = None
    # Each call and each record is looked at: too dear for more than a test.
    strict: bool | None = None
