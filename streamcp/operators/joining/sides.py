"""What the joins have in common: the records of one input that wait, and those that come too late.

A join is the functions, the state factory and the timer function of a keyed step with two inputs in
event time. Its results are *stamped*: pairs of value and timestamp. It relies on this: when a
record is worked, every timer of its key up to the watermark has fired. A record that is not later
than the watermark is late for every join: what it belonged to may have been emitted, and its
partners forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from streamcp.operators.windowing.machine import WindowContext
from streamcp.operators.windows import LATE

How: TypeAlias = Literal["inner", "left", "right", "outer"]
"""Whose records are emitted without a partner as well: nobody's, of one input, of both."""

Stamped: TypeAlias = tuple[Any, int]
"""A result and its timestamp."""

Function: TypeAlias = Callable[[Any, Any, WindowContext], Sequence[Stamped]]


@dataclass(slots=True)
class Side:
    """Records of one input that wait, by timestamp, equal ones in the order in which they came."""

    times: list[int] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    def put(self, timestamp: int, record: Any) -> int:
        """Put a record behind those that are not later; return its place."""
        times = self.times
        if not times or times[-1] <= timestamp:
            times.append(timestamp)
            self.records.append(record)
            return len(times) - 1
        place = bisect_right(times, timestamp)
        times.insert(place, timestamp)
        self.records.insert(place, record)
        return place

    def drop(self, count: int) -> None:
        """Forget the first records."""
        del self.times[:count], self.records[:count]


def reject(record: Any, context: WindowContext, *, keep: object) -> tuple[()]:
    """Put a record aside that comes too late. Unless there is something to `keep`, its key is
    forgotten again: no timer would do that."""
    context.emit_to(LATE, record)
    if not keep:
        context.clear_state()
    return ()
