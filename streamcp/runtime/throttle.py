"""Which call may be made next, and when, under the rates and the circuit breaker of its step.

Decides only: the pool asks, with the time that it has read, and waits. Records that have to wait
stay where they are, in the pending list: no worker is taken up by them, and no barrier looks here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, Protocol

from streamcp.config import CircuitBreaker, Errors, Rate
from streamcp.runtime.allowances import Allowances
from streamcp.runtime.breaker import Breaker

_ALWAYS = float("-inf")


class Waiting(Protocol):
    """Where calls come from, in their order."""

    def start(self) -> Any:
        """Take the next call; IndexError if there is none."""
        ...

    @property
    def waiting(self) -> int:
        """How many could be taken."""
        ...

    def record_of(self, ticket: Any) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple; nothing for a call without one (a timer)."""
        ...


class KeyFailed(Exception):
    """The key function of a rate failed for the record of `ticket`, by `error`."""

    def __init__(self, ticket: Any, error: Exception) -> None:
        super().__init__(ticket, error)
        self.ticket = ticket
        self.error = error


class StepLimits:
    """What the subtasks of a step share: its allowances, its breaker, and whose turn it is.

    `on_change` is called when the breaker has changed."""

    def __init__(self, rates: Sequence[Rate], breaker: CircuitBreaker | None, now: float) -> None:
        keyed = next((rate for rate in rates if rate.key is not None), None)
        self.whole = [Allowances(rate, now) for rate in rates if rate.key is None]
        self.by_key = Allowances(keyed, now) if keyed is not None else None
        self.key = keyed.key if keyed is not None else None
        self.breaker = Breaker(breaker) if breaker is not None else None
        self.errors: Errors = breaker.on if breaker is not None else ()
        self.on_change: list[Callable[[], None]] = []
        self.queue: deque[Throttle] = deque()

    def breaker_at(self) -> float:
        """From when the breaker lets a call pass; infinity: not before one that is made ends."""
        return self.breaker.ready_at() if self.breaker is not None else _ALWAYS

    def ready_at(self) -> float:
        """From when the allowance of the whole step has room for a call."""
        return max((one.ready_at() for one in self.whole), default=_ALWAYS)

    def take(self, at: float) -> None:
        """Make a call at `at`, not before `ready_at`."""
        for one in self.whole:
            one.take(at)


class Throttle:
    """The calls of one subtask, in their order as far as the limits of its step allow.

    Subtasks that wait for the step's allowance queue up: each makes one call when its turn has
    come, and `on_turn` tells it so. One that has nothing to call leaves the queue."""

    def __init__(self, limits: StepLimits, calls: Waiting, on_turn: Callable[[], None]) -> None:
        self._limits = limits
        self._calls = calls
        self._on_turn = on_turn
        self._parked: dict[Hashable, deque[Any]] = {}
        self._due: list[tuple[float, int, Hashable]] = []  # from when a parked key may be called
        self._numbers = count()

    def start(self, now: float) -> Any:
        """Take the next call that may be made now; IndexError if there is none.

        Raises KeyFailed for a call that cannot be counted; it is taken, too."""
        if self._limits.breaker_at() > now or self._has_to_queue(now):
            raise IndexError
        try:
            ticket = self._next(now)
            self._limits.take(now)
        finally:
            self.leave()
        return ticket

    def ready_at(self) -> float | None:
        """From when `start` may find something; in the past if it may at once, None if only a new
        call, the end of one, or the turn changes that."""
        if not self._calls.waiting and not self._due:
            return None
        at = max(self._limits.breaker_at(), _ALWAYS if self._calls.waiting else self._due[0][0])
        queue = self._limits.queue
        if not queue or queue[0] is self:
            at = max(at, self._limits.ready_at())
        elif self in queue:
            return None
        return None if at == float("inf") else at

    def again(self, ticket: Any, now: float) -> float:
        """Take the allowance for another attempt of a call; return when it may be made, the
        breaker apart."""
        limits, by_key = self._limits, self._limits.by_key
        at = max(now, limits.ready_at())
        if by_key is not None:
            for key in self._key_again(ticket):
                at = max(at, by_key.ready_at(key))
                by_key.take(at, key)
        limits.take(at)
        return at

    def leave(self) -> None:
        """Leave the queue: others are not to wait for this subtask."""
        queue = self._limits.queue
        if self not in queue:
            return
        was_first = queue[0] is self
        queue.remove(self)
        if was_first and queue:
            queue[0]._on_turn()

    def _has_to_queue(self, now: float) -> bool:
        """Queue up if there is something to call and it is not this subtask's turn, or too
        early; whoever has nothing to call now leaves."""
        if not self._calls.waiting and not (self._due and self._due[0][0] <= now):
            self.leave()
            return True
        queue = self._limits.queue
        if self._limits.ready_at() <= now and (not queue or queue[0] is self):
            return False
        if self not in queue:
            queue.append(self)
        return True

    # ---- by key

    def _next(self, now: float) -> Any:
        by_key = self._limits.by_key
        if by_key is None:
            return self._calls.start()
        ticket = self._due_one(by_key, now)
        while ticket is None:
            ticket = self._taken_or_parked(by_key, self._calls.start(), now)
        return ticket

    def _due_one(self, by_key: Allowances, now: float) -> Any:
        """Take the first call of a parked key whose time has come; None if there is none."""
        while self._due and self._due[0][0] <= now:
            _, _, key = heapq.heappop(self._due)
            if by_key.ready_at(key) > now:  # a repeated attempt has come in between
                self._park_until_ready(by_key, key)
                continue
            ticket = self._parked[key].popleft()
            by_key.take(now, key)
            if self._parked[key]:
                self._park_until_ready(by_key, key)
            else:
                del self._parked[key]
            return ticket
        return None

    def _taken_or_parked(self, by_key: Allowances, ticket: Any, now: float) -> Any:
        """Return a call that may be made now; None if it is parked."""
        for key in self._key_of(ticket):
            if key in self._parked:
                self._parked[key].append(ticket)
                return None
            if by_key.ready_at(key) > now:
                self._parked[key] = deque((ticket,))
                self._park_until_ready(by_key, key)
                return None
            by_key.take(now, key)
        return ticket

    def _park_until_ready(self, by_key: Allowances, key: Hashable) -> None:
        heapq.heappush(self._due, (by_key.ready_at(key), next(self._numbers), key))

    def _key_again(self, ticket: Any) -> tuple[Hashable, ...]:
        """The key of a call that was counted before; a function that fails now is not asked."""
        try:
            return self._key_of(ticket)
        except KeyFailed:
            return ()

    def _key_of(self, ticket: Any) -> tuple[Hashable, ...]:
        assert self._limits.key is not None
        record = self._calls.record_of(ticket)
        if not record:
            return ()
        try:
            key = self._limits.key(record[0])
            hash(key)
        except Exception as error:  # whatever a user's function raises
            raise KeyFailed(ticket, error) from error
        return (key,)
