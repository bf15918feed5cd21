"""Runs a join by hand, as a keyed step in event time does: one key, two inputs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from hypothesis import strategies as st

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.windows import LATE
from tests.operators.windowing.window_runs import Context

Event: TypeAlias = tuple[str, int]
"""A record of an input by its timestamp, or a step of the watermark."""

RIGHT_OR_LEFT = st.sampled_from(["left", "right"])
RECORD = st.tuples(RIGHT_OR_LEFT, st.integers(-15, 45))
STEP = st.integers(-20, 15).map(lambda step: ("step", step))
FEED = st.lists(RECORD | RECORD | RECORD | STEP, max_size=28)
ONE_INPUT = RIGHT_OR_LEFT.flatmap(
    lambda side: st.lists(st.tuples(st.just(side), st.integers(-15, 45)) | STEP, max_size=10)
)

Pair: TypeAlias = tuple[int | None, int | None]
Row: TypeAlias = tuple[int, Any, int]
"""The number of the event that let it come, the value, and its timestamp."""


class Join(Protocol):
    """What every join is."""

    @property
    def state(self) -> Callable[[], Any]: ...
    @property
    def on_left(self) -> Callable[[Any, Any, Any], Sequence[Any]]: ...
    @property
    def on_right(self) -> Callable[[Any, Any, Any], Sequence[Any]]: ...
    def on_timer(self, at: int, state: Any, context: Any, /) -> Sequence[Any]: ...


def pair(left: int | None, right: int | None) -> Pair:
    return left, right


class JoinRun:
    """The key "k" of a join: records and watermarks in; `rows` and `late` out.

    With `restoring`, it is made anew, and its state goes through bytes, before every call."""

    def __init__(self, make: Callable[[], Join], *, restoring: bool = False) -> None:
        self.rows: list[Row] = []
        self.late: list[Any] = []
        self.state: Any = None
        self.timers: set[int] = set()
        self.calls = 0
        self.watermark = MIN_TIMESTAMP
        self._make = make
        self._restoring = restoring
        self._join = make()
        self._event = -1

    def feed(self, events: list[Event], after: Callable[[JoinRun], object] | None = None) -> None:
        """Work events and then the end of the input; a record is its number."""
        watermark = 0
        for number, (kind, value) in enumerate(events):
            if kind == "step":
                watermark += value
                self.advance(watermark)
            else:
                self.record(kind, value, number)
            if after is not None:
                after(self)
        self.advance(MAX_TIMESTAMP)

    def record(self, side: str, timestamp: int, record: Any) -> None:
        self._event += 1

        def call(join: Join, state: Any, context: Context) -> Sequence[Any]:
            fn = join.on_left if side == "left" else join.on_right
            return fn(record, state, context)

        self._call(timestamp, call)

    def advance(self, watermark: int) -> None:
        """Fire what is due up to `watermark`, in the order of time."""
        self._event += 1
        before, self.watermark = self.watermark, max(watermark, self.watermark)
        first = len(self.rows)
        while (due := min(self.timers, default=MAX_TIMESTAMP)) <= self.watermark and self.timers:
            assert due > before, "a timer was set for a time that has passed"
            self.timers.discard(due)
            self._call(due, lambda join, state, context: join.on_timer(due, state, context))
        assert all(timestamp > before for *_, timestamp in self.rows[first:]), "it would be late"

    def _call(self, timestamp: int, call: Callable[[Join, Any, Context], Sequence[Any]]) -> None:
        self.calls += 1
        if self._restoring:
            self._join = self._make()
            self.state = pickle.loads(pickle.dumps(self.state))
        state = self._join.state() if self.state is None else self.state
        context = Context("k", timestamp, self.watermark)
        self.rows += [(self._event, *row) for row in call(self._join, state, context)]
        if context.cleared:
            self.timers.clear()
            state = self._join.state() if context.timers else None
        self.state = state
        self.timers |= context.timers
        for tag, record in context.aside:
            assert tag is LATE
            self.late.append(record)


def in_time(events: list[Event]) -> tuple[dict[int, int], dict[int, int], list[int], list[int]]:
    """The records of each input that are not late, as number to timestamp; the late ones; and the
    watermark behind each event, with one more event at the end: the end of the input."""
    left: dict[int, int] = {}
    right: dict[int, int] = {}
    late: list[int] = []
    watermarks: list[int] = []
    asked, watermark = 0, MIN_TIMESTAMP
    for number, (kind, value) in enumerate(events):
        if kind == "step":
            asked += value
            watermark = max(watermark, asked)
        elif value <= watermark:
            late.append(number)
        else:
            (left if kind == "left" else right)[number] = value
        watermarks.append(watermark)
    return left, right, late, [*watermarks, MAX_TIMESTAMP]


def reached(watermarks: list[int], timestamp: int) -> int:
    """The first event with which the watermark has reached a timestamp."""
    return next(n for n, watermark in enumerate(watermarks) if watermark >= timestamp)
