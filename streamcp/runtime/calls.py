"""What a pool of workers asks of the subtask whose calls it makes. Nothing here is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Calls(Protocol):
    """Where the calls come from and their outcomes go to. All of it is synchronous."""

    direct: Callable[[Any], Awaitable[Any]] | None
    """The function itself, if a ticket is (chunk, i) and a first attempt is nothing but
    `direct(chunk.records[i])`: `call` would cost as much as a short function."""

    in_place: bool
    """All there is to a success is `chunk.results[i] = result`, and to `tell` of it; else it is
    `succeeded`. Only with `direct`."""

    @property
    def wait_returned(self) -> Callable[[], Awaitable[None]] | None:
        """Waits until what a call has begun, which was given up by a timeout, has ended; None if
        a cancellation ends all of it."""
        ...

    told: bool
    """`tell` was called since results were last looked for."""

    def tell(self) -> None:
        """Say that there are results."""
        ...

    def start(self) -> Any:
        """Take the next call; raises IndexError if there is none to be made now, so that it may
        be the `popleft` of a deque."""
        ...

    def call(self, ticket: Any, attempt: int) -> Awaitable[Any]:
        """Begin an attempt (1, 2, …) of a call."""
        ...

    def succeeded(self, ticket: Any, result: Any) -> None:
        """Take the result of a call."""
        ...

    def failed(self, ticket: Any, error: Exception, attempts: int) -> None:
        """Take the last failure of a call; raises where it fails the job."""
        ...

    @property
    def waiting(self) -> int:
        """How many calls could be started now."""
        ...

    def call_id(self, ticket: Any) -> str:
        """The id of a call that is being made."""
        ...

    def record_of(self, ticket: Any) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple; nothing for a call without one (a timer)."""
        ...

    def refill(self) -> bool:
        """Emit results and admit records, as far as there is room; False if nothing was done.

        A worker with nothing to start calls it before it waits: functions that never wait are
        then called record after record without a switch of tasks."""
        ...
