"""Count windows: every so many records of a key, in the order in which they come.

A window that overlaps the next is made of chunks that both share; the number of records in a chunk
divides window and step. No timers: what fills no window up stays in the state. A key whose window
has just filled up, and does not overlap the next, is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.operators.aggregates import Aggregate
from streamcp.operators.windowing.machine import WindowContext, WindowMachine
from streamcp.operators.windows import Emit, WindowResult


@dataclass(slots=True)
class Chunk:
    """Some records in a row: their number, accumulator, and the span of their timestamps."""

    count: int
    value: Any
    first: int
    last: int


@dataclass(slots=True)
class CountState:
    """The chunks of a key, oldest first; `since`: records since the last result."""

    chunks: list[Chunk] = field(default_factory=list)
    since: int = 0


class CountMachine(WindowMachine):
    """Works windows of the last `n` records after each `every` records."""

    __slots__ = ("_chunk", "_chunks", "_every_records", "fn", "state")

    def __init__(
        self, n: int, every: int, aggregate: Aggregate[Any, Any], emit: Emit, late: Any
    ) -> None:
        super().__init__(aggregate, emit, 0, late)
        self._chunk = math.gcd(n, every)
        self._chunks = n // self._chunk
        self._every_records = every
        self.state = CountState
        self.fn = self._collect

    def _collect(
        self, record: Any, state: CountState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        timestamp = context.timestamp
        chunks = state.chunks
        if not chunks or chunks[-1].count == self._chunk:
            chunks.append(Chunk(0, self._create(), timestamp, timestamp))
            del chunks[: -self._chunks]
        chunk = chunks[-1]
        chunk.count += 1
        chunk.value = self._add(chunk.value, record, timestamp)
        chunk.first = min(chunk.first, timestamp)
        chunk.last = max(chunk.last, timestamp)
        state.since += 1
        filled = state.since == self._every_records
        results = (self._window(chunks, context),) if filled or self._each else ()
        if filled:
            self._begin_next(state, context)
        return results

    def _window(self, chunks: Sequence[Chunk], context: WindowContext) -> WindowResult[Any, Any]:
        start = min(chunk.first for chunk in chunks)
        end = max(chunk.last for chunk in chunks) + 1
        return self._value(context, start, end, self._merged(chunk.value for chunk in chunks))

    def _begin_next(self, state: CountState, context: WindowContext) -> None:
        state.since = 0
        shared = self._chunks - self._every_records // self._chunk
        if shared:
            del state.chunks[:-shared]
        else:
            context.clear_state()
