"""A case for each step in event time: windows of every kind, their aggregates, joins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import streamcp as sc
from streamcp.elements import EndOfInput, IdleStatus, Watermark
from streamcp.testing.given import Advance, At, On
from tests.testing.verified_steps import Case, Sum, by_first, case

T = 1_700_000_040_000
"""The beginning of a minute, and of a slide of 20 seconds."""

SECOND = 1000


def at(second: float, record: Any) -> At[Any]:
    return At(T + round(second * SECOND), record)


def until(second: float) -> Watermark:
    return Watermark(T + round(second * SECOND))


def by_key(stream: sc.Stream[Any]) -> sc.KeyedStream[str, tuple[str, int]]:
    return stream.key_by(by_first)


def amount(record: tuple[str, int]) -> int:
    return record[1]


def seconds_and_value(result: sc.WindowResult[str, Any]) -> tuple[str, float, float, Any]:
    return result.key, (result.start - T) / SECOND, (result.end - T) / SECOND, result.value


def told(windowed: sc.Stream[sc.WindowResult[str, Any]]) -> sc.Stream[Any]:
    return windowed.map(seconds_and_value)


EVENTS = [
    at(1, ("a", 1)),
    at(59, ("a", 2)),
    at(10, ("b", 5)),
    until(59.999),
    at(58, ("a", 9)),  # late
    at(61, ("a", 4)),
    until(125),
    IdleStatus(True),
    at(130, ("b", 7)),
]


# ---- windows of every kind, and when they emit

WINDOWS = [
    case(
        "tumbling",
        lambda s: told(by_key(s).window(sc.Tumbling("1m")).count()),
        EVENTS,
        [("a", 0, 60, 2), ("b", 0, 60, 1), ("a", 60, 120, 1), ("b", 120, 180, 1)],
        order=by_first,
    ),
    case(
        "tumbling, allowing late records",
        lambda s: told(by_key(s).window(sc.Tumbling("1m"), allowed_lateness="10s").count()),
        EVENTS,
        [
            *(("a", 0, 60, 2), ("b", 0, 60, 1), ("a", 0, 60, 3), ("a", 60, 120, 1)),
            ("b", 120, 180, 1),
        ],
        order=by_first,
    ),
    case(
        "tumbling, early",
        lambda s: told(by_key(s).window(sc.Tumbling("1m"), emit=sc.early(every="20s")).count()),
        [at(1, ("a", 1)), until(25), at(30, ("a", 2)), until(45), until(70)],
        [("a", 0, 60, 1), ("a", 0, 60, 2), ("a", 0, 60, 2)],
        order=by_first,
    ),
    case(
        "tumbling, on each record",
        lambda s: told(by_key(s).window(sc.Tumbling("1m"), emit=sc.on_each()).count()),
        [at(1, ("a", 1)), at(2, ("a", 2)), until(70)],
        [("a", 0, 60, 1), ("a", 0, 60, 2)],
        order=by_first,
    ),
    case(
        "late records of a window",
        lambda s: by_key(s).window(sc.Tumbling("1m")).count().late,
        EVENTS,
        [("a", 9)],
    ),
    case(
        "sliding",
        lambda s: told(by_key(s).window(sc.Sliding("40s", "20s")).count()),
        [at(1, ("a", 1)), at(25, ("a", 2)), until(30), until(100)],
        [("a", -20, 20, 1), ("a", 0, 40, 2), ("a", 20, 60, 1)],
        order=by_first,
    ),
    case(
        "session",
        lambda s: told(by_key(s).window(sc.Session("10s")).count()),
        [at(1, ("a", 1)), at(15, ("a", 2)), at(8, ("a", 3)), until(30), at(40, ("a", 4))],
        [("a", 1, 25, 3), ("a", 40, 50, 1)],
        order=by_first,
    ),
    case(
        "calendar",
        lambda s: (
            by_key(s)
            .window(sc.Calendar("month", timezone="Europe/Berlin"))
            .count()
            .map(lambda result: (result.key, result.value))
        ),
        [at(1, ("a", 1)), at(30 * 86_400, ("a", 2)), until(31 * 86_400)],
        [("a", 1), ("a", 1)],
        order=by_first,
    ),
    case(
        "count window",
        lambda s: by_key(s).window(sc.CountWindow(2)).count().map(lambda r: (r.key, r.value)),
        [at(1, ("a", 1)), at(2, ("b", 1)), at(3, ("a", 1)), at(4, ("a", 1))],
        [("a", 2)],
        order=by_first,
    ),
    case(
        "global",
        lambda s: by_key(s).window(sc.Global()).count().map(lambda r: (r.key, r.value)),
        [at(1, ("a", 1)), at(2, ("b", 1)), until(99), at(3, ("a", 1))],
        [("a", 2), ("b", 1)],
        order=by_first,
    ),
]


# ---- what is made of a window


def listed(result: sc.WindowResult[str, list[Any]]) -> Iterator[tuple[str, int]]:
    yield result.key, sum(amount(record) for record in result.value)


async def listed_slowly(
    result: sc.WindowResult[str, list[Any]],
) -> AsyncIterator[tuple[str, int]]:
    await asyncio.sleep(1)
    for each in listed(result):
        yield each


MADE = [
    case(
        "fold",
        lambda s: told(
            by_key(s).window(sc.Tumbling("1m")).fold(lambda: 0, lambda n, record: n + record[1])
        ),
        EVENTS,
        [("a", 0, 60, 3), ("b", 0, 60, 5), ("a", 60, 120, 4), ("b", 120, 180, 7)],
        order=by_first,
    ),
    case(
        "reduce of a window",
        lambda s: told(by_key(s).window(sc.Tumbling("1m")).reduce(max)),
        EVENTS,
        [
            *(("a", 0, 60, ("a", 2)), ("b", 0, 60, ("b", 5)), ("a", 60, 120, ("a", 4))),
            ("b", 120, 180, ("b", 7)),
        ],
        order=by_first,
    ),
    case(
        "process of a window",
        lambda s: by_key(s).window(sc.Tumbling("1m"), name="w").process(listed, name="p"),
        EVENTS,
        [("a", 3), ("b", 5), ("a", 4), ("b", 7)],
        order=by_first,
    ),
    case(
        "process of a window by a coroutine",
        lambda s: by_key(s).window(sc.Tumbling("1m"), name="w").process(listed_slowly, name="p"),
        EVENTS,
        [("a", 3), ("b", 5), ("a", 4), ("b", 7)],
        order=by_first,
        seeds=(0,),
    ),
    case(
        "top",
        lambda s: (
            by_key(s)
            .window(sc.Tumbling("1m"))
            .aggregate(sc.Sum(amount))
            .top(1, by=lambda result: result.value)
            .map(lambda top: [seconds_and_value(result) for result in top.value])
        ),
        EVENTS,
        [[("b", 0, 60, 5)], [("a", 60, 120, 4)], [("b", 120, 180, 7)]],
    ),
    case(
        "late records of a processed window",
        lambda s: by_key(s).window(sc.Tumbling("1m"), name="w").process(listed, name="p").late,
        EVENTS,
        [("a", 9)],
    ),
    case(
        "several aggregates at once",
        lambda s: told(
            by_key(s).window(sc.Tumbling("1m")).aggregate(sc.Count(), sc.Sum(amount), into=pair)
        ),
        EVENTS,
        [
            *(("a", 0, 60, (2, 3)), ("b", 0, 60, (1, 5)), ("a", 60, 120, (1, 4))),
            ("b", 120, 180, (1, 7)),
        ],
        order=by_first,
    ),
]


def pair(count: int, total: int) -> tuple[int, int]:
    return count, total


AGGREGATES: list[tuple[Any, Any]] = [
    (sc.Count(), 3),
    (sc.Sum(amount), 6),
    (sc.Min(amount), 1),
    (sc.Max(amount), 3),
    (sc.Mean(amount), 2.0),
    (sc.Variance(amount), 1.0),
    (sc.First(amount), 3),
    (sc.Last(amount), 2),
    (sc.TopN(2, by=amount), [("a", 3), ("a", 2)]),
    (sc.Distinct(amount), 3),
    (sc.ApproximateDistinct(amount), 3),
    (sc.Quantiles(amount, 0.0, 1.0), (1.0, 3.0)),
]


def _aggregated(aggregate: Any, value: Any) -> Case:
    """In sliding windows, whose parts are merged: of three that hold the same."""
    return case(
        f"aggregate {type(aggregate).__name__}",
        lambda s: (
            by_key(s)
            .window(sc.Sliding("1m", "20s"))
            .aggregate(aggregate)
            .map(lambda result: (result.key, result.value))
        ),
        [at(1, ("a", 3)), at(3, ("a", 1)), at(5, ("a", 2)), until(70)],
        [("a", value)] * 3,
        order=by_first,
    )


AGGREGATED = [_aggregated(aggregate, value) for aggregate, value in AGGREGATES]


# ---- timers and what else is made of event time


def remind(record: tuple[str, int], state: Sum, ctx: sc.KeyContext[str]) -> None:
    state.total += record[1]
    ctx.set_timer(T + 60 * SECOND)


def reminded(timestamp: int, state: Sum, ctx: sc.KeyContext[str]) -> list[tuple[str, int]]:
    return [(ctx.key, state.total)]


async def remind_slowly(record: tuple[str, int], state: Sum, ctx: sc.KeyContext[str]) -> None:
    await asyncio.sleep(record[1])
    remind(record, state, ctx)


REMINDED = [*EVENTS[:3], until(60), at(61, ("a", 4)), until(125)]

TIMED = [
    case(
        "process with event-time timers",
        lambda s: by_key(s).process(remind, state=Sum, on_timer=reminded),
        REMINDED,
        [("a", 3), ("b", 5), ("a", 7)],
        order=by_first,
    ),
    case(
        "process of a coroutine with event-time timers",
        lambda s: by_key(s).process(remind_slowly, state=Sum, on_timer=reminded),
        REMINDED,
        [("a", 3), ("b", 5), ("a", 7)],
        order=by_first,
        seeds=(0,),
    ),
    case(
        "batch and unbatch in event time",
        lambda s: told(
            by_key(s.batch(2, "10s", name="lists").unbatch()).window(sc.Tumbling("1m")).count()
        ),
        [at(1, ("a", 1)), at(2, ("a", 2)), at(3, ("a", 3)), until(65), Advance("10s")],
        [("a", 0, 60, 3)],
    ),
    case(
        "deduplicate within event time",
        lambda s: s.key_by(abs).deduplicate(within="10s"),
        [at(0, 1), at(5, -1), until(9), at(20, -1), until(40), at(41, 1)],
        [1, -1, 1],
    ),
]


# ---- joins


def row(left: Any, right: Any) -> tuple[str, Any, Any]:
    key = (left or right)[0]
    return key, left and left[1], right and right[1]


def right(element: Any) -> On:
    return On(1, element)


PAIRS = [
    at(10, ("a", 1)),
    right(at(8, ("a", 10))),
    right(at(30, ("a", 20))),
    at(12, ("b", 2)),
    until(60),
    right(until(60)),
    right(at(5, ("a", 99))),  # late
]

CASES = [*WINDOWS, *MADE, *AGGREGATED, *TIMED]


def _join(how: Any, expected: list[Any]) -> Case:
    return case(
        f"join, {how}",
        lambda a, b: by_key(a).join(by_key(b), row, before="5s", after="5s", how=how),
        PAIRS,
        expected,
        inputs=2,
        order=by_first,
    )


JOINS = [
    _join("inner", [("a", 1, 10)]),
    _join("left", [("a", 1, 10), ("b", 2, None)]),
    _join("right", [("a", 1, 10), ("a", None, 20)]),
    _join("outer", [("a", 1, 10), ("a", None, 20), ("b", 2, None)]),
    case(
        "join as of",
        lambda a, b: by_key(a).join_asof(by_key(b), row, tolerance="5s", how="left"),
        [right(at(6, ("a", 9))), *PAIRS],
        [("a", 1, 10), ("b", 2, None)],
        inputs=2,
        order=by_first,
    ),
    case(
        "join of what is in one window",
        lambda a, b: told(by_key(a).window(sc.Tumbling("1m")).join(by_key(b), row, how="outer")),
        PAIRS,
        [
            *(("a", 0, 60, ("a", 1, 10)), ("a", 0, 60, ("a", 1, 20))),
            ("b", 0, 60, ("b", 2, None)),
        ],
        inputs=2,
        order=by_first,
    ),
    case(
        "late records of a join",
        lambda a, b: by_key(a).join(by_key(b), row, before="5s", after="5s").late,
        PAIRS,
        [("a", 99)],
        inputs=2,
    ),
    case(
        "window of a union, one input of which is idle",
        lambda a, b: told(by_key(a.union(b)).window(sc.Tumbling("1m")).count()),
        [at(1, ("a", 1)), right(at(2, ("a", 2))), until(60), right(IdleStatus(True)), until(61)],
        [("a", 0, 60, 2)],
        inputs=2,
    ),
    case(
        "window of a union, one input of which has ended",
        lambda a, b: told(by_key(a.union(b)).window(sc.Tumbling("1m")).count()),
        [at(1, ("a", 1)), right(at(2, ("a", 2))), until(60), right(EndOfInput()), until(61)],
        [("a", 0, 60, 2)],
        inputs=2,
    ),
]
CASES += JOINS
