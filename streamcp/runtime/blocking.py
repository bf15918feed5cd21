"""Who held the event loop too long: noticed, told once, and then rarely.

A task that works for longer than `BLOCKING` without a wait holds up every other task, every
trigger and every barrier of its process. It is noticed at the end of what is measured anyway (a
slice, a batch, a row of calls): nothing here costs anything per record. Knows no task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from types import GeneratorType
from typing import Any, Generic, TypeVar

from streamcp.clock import Clock
from streamcp.graph.logical import Node
from streamcp.observability import events
from streamcp.runtime.calling import shown

T = TypeVar("T")
_logger = logging.getLogger(__name__)

# Longer than this a person feels it, and a barrier that passes in a millisecond waits for it.
BLOCKING = 0.1
# Of one step nothing is told again for so many seconds.
SILENCE = 60.0
# So many records are measured one by one after a slice that took too long: what that costs is
# little beside the slice.
MEASURED = 100_000

PLAIN = (
    'write executor="thread" if it blocks, executor="process" if it computes for long, or give the '
    "waiting to a coroutine function with a library that can be awaited"
)
COROUTINE = (
    "it works without awaiting: await a library that does not block, or "
    "`await asyncio.to_thread(...)`"
)


class Silence:
    """Decides when a step is spoken of: at once, and then at most once per `SILENCE`, with how
    often it happened meanwhile."""

    __slots__ = ("_longest", "_times", "_until")

    def __init__(self) -> None:
        self._until = float("-inf")
        self._times = 0
        self._longest = 0.0

    def notice(self, now: float, seconds: float) -> tuple[int, float] | None:
        """Take one more; return how many there were, and the longest, if it is to be told now."""
        self._times += 1
        self._longest = max(self._longest, seconds)
        if now < self._until:
            return None
        told = self._times, self._longest
        self._until = now + SILENCE
        self._times, self._longest = 0, 0.0
        return told


class BlockingNotices:
    """Takes notice of steps that held the event loop, and tells of them: an event and a warning
    with step, place, how long, and the remedy."""

    def __init__(self, clock: Clock, report: Callable[[events.Event], object]) -> None:
        """Tell `report`, and the log."""
        self._clock = clock
        self._report = report
        self._steps: dict[str, Silence] = {}

    def notice(self, node: Node, seconds: float, doing: str, remedy: str) -> None:
        """A step held the event loop for `seconds` in one go; `doing` says by what."""
        silence = self._steps.setdefault(node.label, Silence())
        told = silence.notice(self._clock.monotonic(), seconds)
        if told is None:
            return
        times, longest = told
        event = events.EventLoopHeld(
            self._clock.wall_ms(), node.label, str(node.place), longest, times, doing, remedy
        )
        self._report(event)
        _logger.warning("%s", event.told())

    def measured(
        self,
        node: Node,
        fn: Callable[..., Any],
        *,
        of: str = "record",
        place: int = 0,
        many: bool = False,
    ) -> Callable[..., Any]:
        """Wrap a plain function so that one call that takes too long is noticed.

        It is told by the argument at `place`, which is a `of`. With `many` it may be a generator
        function: what it does between its values belongs to the call."""
        clock = self._clock.monotonic

        def call(*arguments: Any) -> Any:
            started = clock()
            try:
                result = fn(*arguments)
                return list(result) if many and result.__class__ is GeneratorType else result
            finally:
                seconds = clock() - started
                if seconds >= BLOCKING:
                    self.notice(node, seconds, f"at {of} {shown(arguments[place])}", PLAIN)

        return call

    def watched(self, node: Node, call: Callable[[], Awaitable[T]], context: Context) -> Watched[T]:
        """Await a call in a context of its own, and notice if it holds the event loop."""
        return Watched(
            call,
            context,
            self._clock,
            lambda seconds: self.notice(node, seconds, "between two awaits", COROUTINE),
        )


class Watched(Generic[T]):
    """Awaits a call step by step, each in `context` and with a look at the clock before and after;
    `held` is told of a step that takes `BLOCKING` or longer.

    What the call sets in context variables stays in `context`. It runs inside the current task
    all the same, so timeouts and cancel scopes work as without it."""

    __slots__ = ("_call", "_clock", "_context", "_held")

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        context: Context,
        clock: Clock,
        held: Callable[[float], None],
    ) -> None:
        self._call = call
        self._context = context
        self._clock = clock
        self._held = held

    def __await__(self) -> Generator[Any, Any, T]:
        """Step until it is done."""
        steps = self._awaited()
        step: Callable[[Any], Any] = steps.send
        argument: Any = None
        while True:
            try:
                waited_for = self._step(step, argument)
            except StopIteration as stop:
                result: T = stop.value
                return result
            step, argument = steps.send, None
            try:
                argument = yield waited_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # handed to the awaited code, which decides
                step, argument = steps.throw, error

    async def _awaited(self) -> T:
        return await self._call()

    def _step(self, step: Callable[[Any], Any], argument: Any) -> Any:
        started = self._clock.monotonic()
        try:
            return self._context.run(step, argument)
        finally:
            seconds = self._clock.monotonic() - started
            if seconds >= BLOCKING:
                self._held(seconds)
