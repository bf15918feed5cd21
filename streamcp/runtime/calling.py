"""Calling a user's function: what a failure says, and what counts as a result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any

from streamcp.errors import StepFailed, StrictFailed
from streamcp.graph.logical import Node
from streamcp.operators.failures import Failure
from streamcp.operators.steps import OnError
from streamcp.runtime.meters import StepMeter
from streamcp.serialization.stable_hash import stable_hash

Push = Callable[[list[Any]], None]
"""Hands records on to whatever comes next; the list must not be changed afterwards."""

# Enough to recognise a record, short enough for a log line.
SHOWN = 200


class Reporter:
    """Decides what becomes of a record whose step failed: fail, drop or divert (rule 7)."""

    __slots__ = ("_divert", "_on_error", "label", "meter", "place")

    def __init__(self, node: Node, on_error: OnError, divert: Push, meter: StepMeter) -> None:
        self.label = node.label
        self.place = str(node.place)
        self.meter = meter
        self._on_error = on_error
        self._divert = divert

    @property
    def fails(self) -> bool:
        """A failed record fails the job."""
        return self._on_error == "fail"

    def failure(self, record: Any, error: Exception, attempts: int = 1) -> Failure[Any] | None:
        """Return what is diverted, or None where the record is dropped.

        Raises StepFailed where the step's errors fail the job; what `strict` has found, and the
        failure of a key function, are not the step's own."""
        if isinstance(error, StrictFailed | KeyFailed):
            raise error
        if self._on_error == "fail":
            raise self.step_failed(record, error) from error
        if self._on_error == "drop":
            self.meter.dropped += 1
            return None
        text = "".join(traceback.format_exception(error))
        return Failure(record, self.label, describe(error), text, attempts)

    def divert(self, failures: list[Any]) -> None:
        """Emit failures on the step's error output."""
        self._divert(failures)

    def report(self, record: Any, error: Exception, timestamp: int | None = None) -> None:
        """Fail, drop or divert at once; the failure gets the timestamp of its record."""
        failure = self.failure(record, error)
        if failure is not None:
            self._divert([failure if timestamp is None else (failure, timestamp)])

    def refuse_awaitable(self, record: Any, result: Any) -> None:
        """Fail the job if a plain function returned something that must be awaited (rule 2)."""
        try:
            refuse_awaitable(result)
        except TypeError as error:
            raise self.step_failed(record, error) from None

    def step_failed(self, record: Any, error: Exception) -> StepFailed:
        """Say which step failed at which record, and where the step is defined."""
        return StepFailed(
            f"step {self.label!r} ({self.place}) failed at record {shown(record)}: "
            f"{describe(error)}"
        )


class KeyFailed(StepFailed):
    """A key function failed, or gave no usable key: no step can be told whose record that is."""


def sure_key(node: Node, key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let the key function behind a step fail as it does at an exchange, also where the step that
    reads by key is fused, and drops or diverts its own failures."""
    failed = key_failure(node)

    def found(record: Any) -> Any:
        try:
            own = key(record)
            stable_hash(own)
        except Exception as error:  # whatever a user's function raises
            failed(record, error)
        return own

    return found


def key_failure(node: Node) -> Callable[..., None]:
    """Make what says that the key function behind a step failed, or gave no usable key."""

    def failed(record: Any, error: Exception, timestamp: int | None = None) -> None:
        if isinstance(error, StrictFailed):
            raise error
        raise KeyFailed(
            f"key_by behind step {node.label!r} ({node.place}) failed at record {shown(record)}: "
            f"{describe(error)}"
        ) from error

    return failed


def describe(error: BaseException) -> str:
    """`ValueError: no such country`."""
    return f"{type(error).__name__}: {error}"


def failure_of(error: asyncio.CancelledError) -> Exception:
    """What user code failed by that raised CancelledError by itself; raises `error` if the task is
    being cancelled.

    Left alone it would end the task without a trace, since task groups take it for theirs."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return RuntimeError("it raised CancelledError, although nobody cancelled it")


def shown(record: Any) -> str:
    """A record as text, shortened. Never raises: a repr is user code as well."""
    try:
        text = repr(record)
    except Exception:  # whatever a user's __repr__ raises must not hide the real failure
        text = f"<{type(record).__name__} whose repr failed>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def with_service(fn: Callable[..., Any], service: Any) -> Callable[[Any], Any]:
    """Make the service the last argument of a function of one record."""
    return lambda record: fn(record, service)


def expanded(result: Any) -> Sequence[Any]:
    """Turn what a `flat_map` or `process` function returned into a list or tuple.

    Raises TypeError for text, bytes and dictionaries, which would fall into pieces, for
    awaitables, and for what cannot be iterated."""
    kind = result.__class__
    if result is None:
        return ()
    if kind is list or kind is tuple or kind is GeneratorType:
        # The usual ones first: the checks below cost more than most functions.
        values: Sequence[Any] = result if kind is not GeneratorType else list(result)
        return values
    if isinstance(result, str | bytes | bytearray | dict):
        raise TypeError(
            f"it returned a {type(result).__name__}, which would fall into pieces; "
            "return a list that holds it: [value]"
        )
    refuse_awaitable(result)
    try:
        return list(result)
    except TypeError as error:
        if hasattr(result, "__iter__"):
            raise
        raise TypeError(
            f"it returned {shown(result)}, which is no iterable; return a list, a generator or None"
        ) from error


def refuse_awaitable(result: Any) -> None:
    """Raise TypeError if a plain function returned something that must be awaited."""
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "a plain function returned something to be awaited; define it with `async def`, or "
            "give an async option such as concurrency=16"
        )
