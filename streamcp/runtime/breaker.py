"""The states of a circuit breaker: closed, open, and half open while probes are made.

Facts in, decisions out; the caller reads the time. Knows no call: an outcome is told with the
number that its call was given when it began, so that one which began before the last change
counts for nothing.
"""

from __future__ import annotations

from streamcp.config import CircuitBreaker, seconds


class Breaker:
    """Says from when a call may be made, and takes the outcomes."""

    __slots__ = (
        "_begun",
        "_failures",
        "_limit",
        "_open_until",
        "_passed",
        "_pause",
        "_probes",
        "_round",
    )

    def __init__(self, settings: CircuitBreaker) -> None:
        """Begin closed."""
        self._limit = settings.failures
        self._pause = seconds(settings.reset_after, setting="CircuitBreaker(reset_after)")
        self._probes = settings.probes
        self._round = 0  # changes with the state
        self._failures = 0  # in a row, while closed
        self._open_until: float | None = None
        self._begun = 0  # probes, while open
        self._passed = 0  # of these

    @property
    def is_open(self) -> bool:
        """No call is made but for probes."""
        return self._open_until is not None

    def ready_at(self) -> float:
        """When the next call may be made: minus infinity for at any time, infinity for not before
        a probe has ended."""
        if self._open_until is None:
            return float("-inf")
        return self._open_until if self._begun < self._probes else float("inf")

    def began(self) -> int:
        """A call is made, not before `ready_at`; return its number."""
        if self._open_until is not None:
            self._begun += 1
        return self._round

    def succeeded(self, number: int) -> bool:
        """The call with this number has succeeded; True if that closes the breaker."""
        if number != self._round:
            return False
        if self._open_until is None:
            self._failures = 0
            return False
        self._passed += 1
        if self._passed < self._probes:
            return False
        self._begin_round(None)
        return True

    def failed(self, number: int, now: float) -> bool:
        """The call with this number has failed; True if that opens the breaker, also anew."""
        if number != self._round:
            return False
        if self._open_until is None:
            self._failures += 1
            if self._failures < self._limit:
                return False
        self._begin_round(now + self._pause)
        return True

    def _begin_round(self, open_until: float | None) -> None:
        self._round += 1
        self._open_until = open_until
        self._failures = self._begun = self._passed = 0
