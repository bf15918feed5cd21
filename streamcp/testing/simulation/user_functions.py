"""The functions of a user's job in the simulator: called as they are, and failing as planned.

A failure is injected only where the job survives it without another output: where it restarts, or
tries again. A step that drops or diverts what fails would put out something else.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from streamcp.api.functions import kind_of
from streamcp.operators.steps import Call
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.world import InjectedFailure, Life

# Of every kind of step; a key function has no record to fail for without harm to others.
_FUNCTIONS = ("fn", "on_right", "on_broadcast", "on_timer")


def with_faults(spec: Any, step: str, life: Life) -> Any:
    """The description of a step whose functions tell `life` of each call, and fail as it says."""
    calls = _Calls(step, life, _survivable(spec))
    replaced = {
        name: calls.counted(fn)
        for name in _FUNCTIONS
        if (fn := getattr(spec, name, None)) is not None
    }
    return dataclasses.replace(spec, **replaced) if replaced else spec


def _survivable(spec: Any) -> int | None:
    """How many failures of a step in one life change nothing; None for any number."""
    if not isinstance(spec, Call) or spec.on_error == "fail":
        return None
    retry = spec.calls.retry if spec.calls is not None else None
    is_retried = retry is not None and retry.attempts > 1 and issubclass(InjectedFailure, retry.on)
    return 1 if is_retried else 0


class _Calls:
    """The calls of one step in one life."""

    def __init__(self, step: str, life: Life, survivable: int | None) -> None:
        self._step = step
        self._life = life
        self._survivable = survivable

    def counted(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The same kind of function, with the same annotations."""
        match kind_of(fn):
            case "coroutine":
                return self._coroutine(fn)
            case "async generator":
                return self._async_generator(fn)
            case _:
                return self._plain(fn)

    def _begin(self, record: Any) -> Fault | None:
        """Count a call; raise in its place, or return a failure that is to come behind it."""
        fault = self._life.called(self._step, record)
        if fault is None or self._survivable == 0:
            return None
        if self._survivable is not None:
            self._survivable -= 1
        if fault.action == "fail":
            raise InjectedFailure(f"{self._step}: {fault}")
        return fault

    def _end(self, fault: Fault | None) -> None:
        if fault is not None:
            raise InjectedFailure(f"{self._step}: {fault}")

    def _plain(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def call(record: Any, *arguments: Any) -> Any:
            fault = self._begin(record)
            result = fn(record, *arguments)
            self._end(fault)
            return result

        return call

    def _coroutine(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def call(record: Any, *arguments: Any) -> Any:
            fault = self._begin(record)
            result = await fn(record, *arguments)
            self._end(fault)
            return result

        return call

    def _async_generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def call(record: Any, *arguments: Any) -> Any:
            fault = self._begin(record)
            async for each in fn(record, *arguments):
                yield each
            self._end(fault)

        return call
