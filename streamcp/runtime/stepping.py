"""Awaiting a source's next record, and knowing when it is about to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stepping(Generic[T]):
    """Awaits `awaitable`; calls `before_wait` first if, and only if, it really suspends.

    So what was emitted before a wait is handed on at once, and nothing is handed on early while
    a source is fast. Driving the generator here is fine: it stays inside the current task."""

    __slots__ = ("_awaitable", "_before_wait")

    def __init__(self, awaitable: Awaitable[T], before_wait: Callable[[], None]) -> None:
        self._awaitable = awaitable
        self._before_wait = before_wait

    def __await__(self) -> Generator[Any, Any, T]:
        """Step until it is done."""
        steps = self._awaitable.__await__()
        try:
            waited_for = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            self._before_wait()
        except BaseException:
            yield from _ended(steps)
            raise
        return (yield from _rest(steps, waited_for))


def _ended(steps: Generator[Any, Any, T]) -> Generator[Any, Any, None]:
    """End an awaitable whose wait nobody will make, as if its task had been cancelled there; an
    async generator that is left in the middle of a step cannot be closed."""
    try:
        waited_for = steps.throw(asyncio.CancelledError())
        yield from _rest(steps, waited_for)
    except (Exception, asyncio.CancelledError):
        pass  # what matters is why the wait is not made, and that is being raised


def _rest(steps: Generator[Any, Any, T], waited_for: Any) -> Generator[Any, Any, T]:
    """Pass every further suspension through, results and exceptions alike."""
    while True:
        thrown: BaseException | None = None
        sent: Any = None
        try:
            sent = yield waited_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # handed to the awaited code, which decides
            thrown = error
        try:
            waited_for = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as stop:
            result: T = stop.value
            return result
