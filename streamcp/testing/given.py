"""What a step under test is given: records, with timestamps or without, and what stands between.

Also the source that gives it. Between two inputs nothing overtakes: what is given first is worked
off first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from streamcp.api.jobs import Job
from streamcp.api.streams import Stream
from streamcp.config import Duration, seconds
from streamcp.connectors.items import items
from streamcp.elements import EndOfInput, IdleStatus, Watermark
from streamcp.errors import DefinitionError
from streamcp.operators.watermarks import Watermarks

T = TypeVar("T")

# An input falls idle when so much time has passed.
_IDLE = "1ms"


@dataclass(frozen=True, slots=True)
class At(Generic[T]):
    """A record with a timestamp, in milliseconds since the epoch."""

    timestamp: int
    record: T


@dataclass(frozen=True, slots=True)
class On:
    """An element of another input than the first one, which is 0."""

    input: int
    element: Any


@dataclass(frozen=True, slots=True)
class Advance:
    """Time that passes."""

    duration: Duration


Element: TypeAlias = Any
"""A record, or `At`, `Watermark`, `IdleStatus(True)`, `EndOfInput`, `On`, `Advance`."""

GIVEN = (At, Watermark)
"""What the sources give out."""

_BETWEEN = (Watermark, IdleStatus, EndOfInput)


def input_of(element: Element) -> tuple[int, Element]:
    """The input of an element, and what it is given."""
    return (element.input, element.element) if isinstance(element, On) else (0, element)


def passes(element: Element) -> float:
    """How many seconds pass for an element."""
    _, inner = input_of(element)
    if isinstance(inner, Advance):
        return seconds(inner.duration, setting="Advance")
    return seconds(_IDLE, setting="idle") if isinstance(inner, IdleStatus) else 0.0


class Inputs:
    """The inputs of one step, which are given `elements`. Each is a source called by its number.

    Raises DefinitionError for elements that no step can be given."""

    def __init__(self, elements: Sequence[Element], count: int) -> None:
        self._elements = elements
        self.count = count
        self._check()

    def add_to(self, job: Job) -> list[Stream[Any]]:
        """Add the sources to a job; behind each is an exchange, so that the step is a task."""
        return [self._source(job, number) for number in range(self.count)]

    def fed(self, element: Element) -> tuple[str, list[Any]]:
        """What is to be fed for an element, and to which source; nothing for what is no record."""
        number, inner = input_of(element)
        if isinstance(inner, EndOfInput | IdleStatus | Advance):
            return str(number), []
        return str(number), [inner]

    def _of(self, number: int) -> list[Element]:
        pairs = map(input_of, self._elements)
        return [inner for of, inner in pairs if of == number and not isinstance(inner, Advance)]

    def is_timed(self, number: int) -> bool:
        """An input has event time."""
        return any(isinstance(inner, At | Watermark | IdleStatus) for inner in self._of(number))

    def _source(self, job: Job, number: int) -> Stream[Any]:
        watermarks = self._watermarks(number) if self.is_timed(number) else None
        source = job.source(items([]), name=str(number), watermarks=watermarks)
        return source.flat_map(_records, name=f"records of {number}").rebalance()

    def _watermarks(self, number: int) -> Watermarks[Any]:
        is_idle = any(isinstance(inner, IdleStatus) for inner in self._of(number))
        return Watermarks.punctuated(
            lambda element: element.timestamp,
            lambda element, timestamp: timestamp if isinstance(element, Watermark) else None,
            idle_after=_IDLE if is_idle else None,
        )

    def _check(self) -> None:
        for element in self._elements:
            number, inner = input_of(element)
            passes(element)
            if not 0 <= number < self.count:
                raise DefinitionError(
                    f"given {element!r}: the step has {self.count} inputs, from 0 on; write "
                    f"verify_operator(..., inputs={number + 1})"
                )
            if isinstance(inner, IdleStatus) and not inner.idle:
                raise DefinitionError(f"given {inner!r}: an input is active again by its records")
        for number in range(self.count):
            self._check_times(number, self._of(number))

    def _check_times(self, number: int, elements: Iterable[Element]) -> None:
        records = [inner for inner in elements if not isinstance(inner, _BETWEEN)]
        untimed = [inner for inner in records if not isinstance(inner, At)]
        if self.is_timed(number) and untimed:
            raise DefinitionError(
                f"given {untimed[0]!r}: other elements of its input have timestamps; write "
                f"At(timestamp, {untimed[0]!r})"
            )


def _records(element: Any) -> list[Any]:
    if isinstance(element, Watermark):
        return []
    return [element.record if isinstance(element, At) else element]
