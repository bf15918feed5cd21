"""How many calls a rate allows, and from when: arithmetic on times that the caller reads.

An allowance is one number: when it would be full again if no further call were made. A call moves
it on by the interval of the rate; so it costs nothing to keep, and nothing happens by itself.
Knows no call and no record.
"""

from __future__ import annotations

from collections.abc import Hashable

from streamcp.config import Rate

# Allowances that are full need not be kept; they are looked for when there are twice as many as
# were left the last time, and at least so many.
_FEW = 1024


class Allowances:
    """The allowances of one rate: one per key, or a single one under the key None.

    Each begins, at `now`, with room for one call; a burst has to be saved up."""

    __slots__ = ("_begun_full_at", "_full_at", "_interval", "_slack", "_sweep_at")

    def __init__(self, rate: Rate, now: float) -> None:
        self._interval = rate.interval
        self._slack = (rate.at_once - 1) * rate.interval
        self._begun_full_at = now + self._slack
        self._full_at: dict[Hashable, float] = {}
        self._sweep_at = _FEW

    def __len__(self) -> int:
        """Count those that are kept."""
        return len(self._full_at)

    @property
    def interval(self) -> float:
        """Seconds from call to call, if they are spread evenly."""
        return self._interval

    def ready_at(self, key: Hashable = None) -> float:
        """When the next call may be made; it may lie in the past."""
        return self._full_at.get(key, self._begun_full_at) - self._slack

    def take(self, at: float, key: Hashable = None) -> None:
        """A call is made at `at`, not before `ready_at`."""
        full_at = max(self._full_at.get(key, self._begun_full_at), at)
        self._full_at[key] = full_at + self._interval
        if len(self._full_at) >= self._sweep_at:
            self._forget_full(at)

    def _forget_full(self, now: float) -> None:
        """Forget what a new allowance would be equal to."""
        if now >= self._begun_full_at:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
        self._sweep_at = max(_FEW, 2 * len(self._full_at))
