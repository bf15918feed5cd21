"""Windows and aggregates: the type of what comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import assert_type

import streamcp as sc
from tests.typing.models import Http, Order, pages


@dataclass(frozen=True)
class Totals:
    eur: float
    orders: int


@dataclass
class Mark:
    largest: int = 0

    def observe(self, order: Order, timestamp: int, /) -> int | None:
        self.largest = max(self.largest, timestamp)
        return self.largest - 1_000


def moment(order: Order) -> datetime:
    return datetime.fromtimestamp(order.ts, UTC)


job = sc.Job("windows")

# ---- watermarks
sc.Watermarks(moment)
sc.Watermarks(lambda order: 5, out_of_orderness="10s", idle_after="30s", max_ahead="1h")
sc.Watermarks(lambda order: 5, align="orders", max_drift="1m")
assert_type(sc.Watermarks.custom(moment, Mark, idle_after="1m"), sc.Watermarks[Order])
marked = sc.Watermarks.punctuated(moment, lambda order, timestamp: timestamp if order.id else None)
assert_type(marked, sc.Watermarks[Order])
orders = job.source(pages(), name="orders", watermarks=sc.Watermarks(lambda order: order.ts))
keyed = orders.key_by(lambda order: order.country)

# ---- one aggregate, and several
minute = keyed.window(sc.Tumbling("1m", offset="15s"), allowed_lateness="5s", name="minute")
assert_type(minute, sc.WindowedStream[str, Order])
totals = minute.aggregate(sc.Sum(lambda order: order.amount), sc.Count(), into=Totals)
assert_type(totals, sc.Windowed[str, Order, Totals])
assert_type(totals.late, sc.Stream[Order])
assert_type(
    totals.map(lambda result: result.value.eur), sc.Step[sc.WindowResult[str, Totals], float]
)
assert_type(minute.count(), sc.Windowed[str, Order, int])
assert_type(minute.aggregate(sc.Count()), sc.Windowed[str, Order, int])
assert_type(minute.aggregate(sc.Sum(lambda order: order.id)), sc.Windowed[str, Order, int])
assert_type(minute.aggregate(sc.Mean(lambda order: order.amount)), sc.Windowed[str, Order, float])
assert_type(minute.aggregate(sc.Max(lambda order: order.country)), sc.Windowed[str, Order, str])
assert_type(minute.aggregate(sc.Last(lambda order: order.currency)), sc.Windowed[str, Order, str])
assert_type(minute.aggregate(sc.Distinct(lambda order: order.id)), sc.Windowed[str, Order, int])
top: sc.TopN[Order] = sc.TopN(3, by=lambda order: order.amount)
assert_type(minute.aggregate(top), sc.Windowed[str, Order, list[Order]])
quantiles = minute.aggregate(sc.Quantiles(lambda order: order.amount, 0.5, 0.99))
assert_type(quantiles, sc.Windowed[str, Order, tuple[float, ...]])
three = minute.aggregate(
    sc.Min(lambda order: order.amount),
    sc.Variance(lambda order: order.amount),
    sc.ApproximateDistinct(lambda order: order.id),
    into=lambda least, variance, ids: (least, variance, ids),
)
assert_type(three, sc.Windowed[str, Order, tuple[float, float, int]])
four = minute.aggregate(
    sc.Count(), sc.Count(), sc.Count(), sc.Count(), into=lambda a, b, c, d: a + b + c + d
)
assert_type(four, sc.Windowed[str, Order, int])
five = minute.aggregate(
    sc.Count(),
    sc.Count(),
    sc.Count(),
    sc.Count(),
    sc.First(lambda order: order.currency),
    into=lambda a, b, c, d, e: e,
)
assert_type(five, sc.Windowed[str, Order, str])


# ---- an own aggregate
@dataclass
class Longest:
    text: str = field(default="")


class LongestText:
    def create(self) -> Longest:
        return Longest()

    def add(self, accumulator: Longest, record: Order, timestamp: int, /) -> Longest:
        return max(accumulator, Longest(record.currency), key=lambda longest: len(longest.text))

    def merge(self, left: Longest, right: Longest, /) -> Longest:
        return max(left, right, key=lambda longest: len(longest.text))

    def result(self, accumulator: Longest, /) -> str:
        return accumulator.text


own: sc.Aggregate[Order, str] = LongestText()
assert_type(minute.aggregate(own), sc.Windowed[str, Order, str])
assert_type(minute.aggregate(LongestText()), sc.Windowed[str, Order, str])

# ---- fold, reduce, process
fold = minute.fold(lambda: 0.0, lambda total, order: total + order.amount)
assert_type(fold, sc.Windowed[str, Order, float])
session = keyed.window(sc.Session("5m"), emit=sc.early(every="10s"))
merged = session.fold(lambda: 0, lambda total, order: total + order.id, merge=int.__add__)
assert_type(merged, sc.Windowed[str, Order, int])
assert_type(session.reduce(lambda a, b: b), sc.Windowed[str, Order, Order])


def names(window: sc.WindowResult[str, list[Order]]) -> Iterator[str]:
    for order in window.value:
        yield order.currency


async def rate(window: sc.WindowResult[str, list[Order]], http: Http) -> AsyncIterator[float]:
    yield await http.get_json(window.key)


async def ask(window: sc.WindowResult[str, list[Order]]) -> list[int]:
    return [len(window.value)]


assert_type(session.process(names), sc.WindowProcess[str, Order, str])
assert_type(session.process(names).late, sc.Stream[Order])
assert_type(session.process(ask, name="ask", timeout="2s"), sc.WindowProcess[str, Order, int])
ask_errors = session.process(ask, name="ask", on_error="divert").errors
assert_type(ask_errors, sc.Stream[sc.Failure[sc.WindowResult[str, list[Order]]]])

# ---- every kind of window, every way of emitting
windows: list[sc.Windows] = [
    sc.Tumbling("1d", timezone="Europe/Berlin"),
    sc.Calendar("month", timezone="Asia/Tokyo"),
    sc.Sliding("10m", every="1m", offset="30s"),
    sc.CountWindow(100, every=10),
    sc.Global(),
]
assert_type(keyed.window(sc.Global(), emit=sc.on_each()).count(), sc.Windowed[str, Order, int])
emit: sc.Emit = sc.on_each()
