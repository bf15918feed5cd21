"""Every kind of window, emitted in every way, equals plain loops over all records.

What comes in: records in any order, some of them late, many with equal timestamps, and watermarks
in steps of any size. The state goes through bytes before every call in one of two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.aggregates import Aggregate, Sum
from streamcp.operators.collecting import Records
from streamcp.operators.windowing.making import make_window_machine
from streamcp.operators.windows import (
    ON_CLOSE,
    CountWindow,
    Emit,
    Global,
    Session,
    Sliding,
    Tumbling,
    Windows,
    early,
    on_each,
)
from tests.operators.windowing.window_runs import WindowRun

Ids: TypeAlias = frozenset[int]
Emitted: TypeAlias = list[tuple[int, int, Ids]]
Span: TypeAlias = tuple[int, int]
End = MAX_TIMESTAMP


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


# ---- what comes in: timestamps of records, and steps of the watermark

RECORD = st.integers(-20, 60).map(lambda timestamp: ("record", timestamp))
STEP = st.integers(-30, 25).map(lambda step: ("step", step))
FEED = st.lists(RECORD | RECORD | STEP, max_size=24)
EMIT = st.just(ON_CLOSE) | st.just(on_each()) | st.integers(1, 15).map(lambda n: early(every=ms(n)))
LATENESS = st.just(0) | st.integers(1, 25)

# Sums are merged from kept sums; all records are merged from each slice anew. Each record has a
# number, and a bit of its own.
AGGREGATES: list[Aggregate[int, Any]] = [Sum(lambda number: 1 << number), Records()]


def ids_of(value: Any) -> Ids:
    if isinstance(value, int):
        return frozenset(n for n in range(value.bit_length()) if value >> n & 1)
    return frozenset(value)


def worked(
    windows: Windows,
    aggregate: Aggregate[int, Any],
    emit: Emit,
    lateness: int,
    feed: list[tuple[str, int]],
    *,
    restoring: bool,
    whole: bool = False,
) -> tuple[Emitted, list[int]]:
    run = WindowRun(
        lambda: make_window_machine(windows, aggregate, emit, lateness, "late"),
        restoring=restoring,
        whole=whole,
    )
    watermark = 0
    for number, (kind, value) in enumerate(feed):
        if kind == "record":
            run.record(value, number)
        else:
            watermark += value
            run.advance(watermark)
    run.advance(End)
    assert {result.key for result in run.results} <= {"k"}
    assert run.state is None or lateness or isinstance(windows, CountWindow)
    return [(r.start, r.end, ids_of(r.value)) for r in run.results], run.late


# ---- the oracle: plain loops


@dataclass
class Oracle:
    """Fixed spans, each of which a record may be in: `spans_of(timestamp)` lists them."""

    spans_of: Callable[[int], list[Span]]
    emit: Emit
    lateness: int
    watermark: int = MIN_TIMESTAMP
    contents: dict[Span, list[int]] = field(default_factory=dict)
    changed: set[Span] = field(default_factory=set)
    emitted: Emitted = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def feed(self, feed: list[tuple[str, int]]) -> tuple[Emitted, list[int]]:
        watermark = 0
        for number, (kind, value) in enumerate(feed):
            if kind == "record":
                self.record(value, number)
            else:
                watermark += value
                self.advance(watermark)
        self.advance(End)
        return self.emitted, self.late

    def tell(self, span: Span) -> None:
        self.emitted.append((*span, frozenset(self.contents[span])))

    def record(self, timestamp: int, number: int) -> None:
        live = [s for s in self.spans_of(timestamp) if s[1] - 1 + self.lateness > self.watermark]
        if not live:
            self.late.append(number)
        for span in live:
            self.contents.setdefault(span, []).append(number)
            closed = span[1] - 1 <= self.watermark
            if closed or self.emit.kind == "on_each":
                self.tell(span)
            elif self.emit.kind == "early":
                self.changed.add(span)

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        for moment in self.moments(self.watermark, watermark):
            for span in sorted(self.contents):
                if span[1] - 1 == moment:
                    self.changed.discard(span)
                    if self.emit.kind != "on_each":
                        self.tell(span)
            if self.is_tick(moment):
                for span in sorted(self.changed):
                    self.tell(span)
                self.changed.clear()
        self.watermark = watermark

    def is_tick(self, moment: int) -> bool:
        return self.emit.kind == "early" and moment >= 0 and (moment + 1) % self.emit.every == 0

    def moments(self, after: int, until: int) -> Iterator[int]:
        """Every moment at which something can happen; nothing does beyond the last close but one
        tick that finds nothing changed."""
        yield from range(max(after + 1, -100), min(until, 400) + 1)
        if until == End:
            yield End - 1


@dataclass
class SessionOracle(Oracle):
    """Sessions, found anew from all records each time."""

    gap: int = 1
    records: dict[int, int] = field(default_factory=dict)  # number to timestamp, of live ones
    gone: list[Span] = field(default_factory=list)
    news: set[int] = field(default_factory=set)

    def sessions(self) -> list[tuple[Span, list[int]]]:
        found: list[tuple[Span, list[int]]] = []
        for number, timestamp in sorted(self.records.items(), key=lambda item: item[1]):
            if found and timestamp - found[-1][0][1] < 0:
                (start, _), numbers = found[-1]
                found[-1] = ((start, timestamp + self.gap), [*numbers, number])
            else:
                found.append(((timestamp, timestamp + self.gap), [number]))
        return found

    def record(self, timestamp: int, number: int) -> None:
        end = timestamp + self.gap

        def touches(span: Span) -> bool:
            return span[0] < end and timestamp < span[1]

        in_time = end - 1 + self.lateness > self.watermark
        joins = any(touches(span) for span, _ in self.sessions())
        if any(touches(span) for span in self.gone) or not (in_time or joins):
            self.late.append(number)
            return
        self.records[number] = timestamp
        self.news.add(number)
        for span, numbers in self.sessions():
            if number in numbers and (span[1] - 1 <= self.watermark or self.emit.kind == "on_each"):
                self.emitted.append((*span, frozenset(numbers)))
                self.news.difference_update(numbers)

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        for moment in self.moments(self.watermark, watermark):
            for span, numbers in self.sessions():
                if span[1] - 1 == moment:
                    self.news.difference_update(numbers)
                    if self.emit.kind != "on_each":
                        self.emitted.append((*span, frozenset(numbers)))
            self.tick(moment)
            for span, numbers in self.sessions():
                if span[1] - 1 + self.lateness == moment:
                    self.gone.append(span)
                    for number in numbers:
                        del self.records[number]
        self.watermark = watermark

    def tick(self, moment: int) -> None:
        if not self.is_tick(moment):
            return
        for span, numbers in self.sessions():
            if span[1] - 1 > moment and self.news & set(numbers):
                self.emitted.append((*span, frozenset(numbers)))
        self.news.clear()


def check(
    windows: Windows,
    oracle: Callable[[], Oracle],
    aggregate: Aggregate[int, Any],
    emit: Emit,
    lateness: int,
    feed: list[tuple[str, int]],
) -> None:
    expected = oracle().feed(feed)
    for restoring, whole in ((False, False), (True, False), (False, True)):
        found = worked(windows, aggregate, emit, lateness, feed, restoring=restoring, whole=whole)
        assert found == expected


def spans(size: int, every: int, offset: int) -> Callable[[int], list[Span]]:
    """Every window [k * every + offset, + size) that covers a timestamp, found by trying."""
    starts = [offset + k * every for k in range(-200, 300)]
    return lambda timestamp: [(s, s + size) for s in starts if s <= timestamp < s + size]


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(size=st.integers(1, 25), offset=st.integers(0, 30), emit=EMIT, lateness=LATENESS, feed=FEED)
def test_tumbling_windows_equal_loops_over_all_records(
    aggregate: Any, size: int, offset: int, emit: Emit, lateness: int, feed: list[tuple[str, int]]
) -> None:
    check(
        Tumbling(ms(size), offset=ms(offset)),
        lambda: Oracle(spans(size, size, offset % size), emit, lateness),
        aggregate,
        emit,
        lateness,
        feed,
    )


@settings(max_examples=200)
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(
    every=st.integers(1, 12),
    longer=st.integers(0, 30),
    offset=st.integers(0, 30),
    emit=EMIT,
    lateness=LATENESS,
    feed=FEED,
)
def test_sliding_windows_equal_loops_over_all_records(
    aggregate: Any,
    every: int,
    longer: int,
    offset: int,
    emit: Emit,
    lateness: int,
    feed: list[tuple[str, int]],
) -> None:
    size = every + longer
    check(
        Sliding(ms(size), ms(every), offset=ms(offset)),
        lambda: Oracle(spans(size, every, offset % every), emit, lateness),
        aggregate,
        emit,
        lateness,
        feed,
    )


@settings(max_examples=200)
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(gap=st.integers(1, 12), emit=EMIT, lateness=LATENESS, feed=FEED)
def test_sessions_equal_loops_over_all_records(
    aggregate: Any, gap: int, emit: Emit, lateness: int, feed: list[tuple[str, int]]
) -> None:
    check(
        Session(ms(gap)),
        lambda: SessionOracle(lambda _: [], emit, lateness, gap=gap),
        aggregate,
        emit,
        lateness,
        feed,
    )


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(emit=EMIT, feed=FEED)
def test_global_window_equals_loops_over_all_records(
    aggregate: Any, emit: Emit, feed: list[tuple[str, int]]
) -> None:
    whole = (MIN_TIMESTAMP, MAX_TIMESTAMP)
    check(Global(), lambda: Oracle(lambda _: [whole], emit, 0), aggregate, emit, 0, feed)


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(every=st.integers(1, 6), longer=st.integers(0, 6), feed=FEED)
def test_count_windows_equal_loops_over_all_records(
    aggregate: Any, every: int, longer: int, feed: list[tuple[str, int]]
) -> None:
    n = every + longer
    records = [(number, value) for number, (kind, value) in enumerate(feed) if kind == "record"]
    expected = []
    for behind in range(every, len(records) + 1, every):
        window = records[max(0, behind - n) : behind]
        times = [timestamp for _, timestamp in window]
        ids = frozenset(number for number, _ in window)
        expected.append((min(times), max(times) + 1, ids))
    windows = CountWindow(n, every=every)
    for restoring, whole in ((False, False), (True, False), (False, True)):
        emitted = worked(windows, aggregate, ON_CLOSE, 0, feed, restoring=restoring, whole=whole)
        assert emitted == (expected, [])


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=["sums", "records"])
@given(n=st.integers(1, 6), feed=FEED)
def test_count_windows_on_each_equal_loops_over_all_records(
    aggregate: Any, n: int, feed: list[tuple[str, int]]
) -> None:
    numbers = [number for number, (kind, _) in enumerate(feed) if kind == "record"]
    expected = [
        frozenset(numbers[behind - behind % n : behind + 1]) for behind in range(len(numbers))
    ]
    for restoring in (False, True):
        emitted, late = worked(CountWindow(n), aggregate, on_each(), 0, feed, restoring=restoring)
        assert ([ids for _, _, ids in emitted], late) == (expected, [])
