"""Joins: the type of what comes out, and which functions see None."""

from __future__ import annotations

from typing import assert_type

import streamcp as sc
from tests.typing.models import Http, Order, Rated, open_http, pages


def both(order: Order, rated: Rated) -> float:
    return order.amount - rated.eur


def maybe_right(order: Order, rated: Rated | None) -> float:
    return order.amount - (rated.eur if rated else 0)


def maybe_left(order: Order | None, rated: Rated) -> str:
    return order.country if order else rated.order.country


def maybe_any(order: Order | None, rated: Rated | None) -> bool:
    return order is not None and rated is not None


def rate(order: Order) -> Rated:
    return Rated(order, 1.0)


job = sc.Job("joins")
stream = job.source(pages(), name="orders", watermarks=sc.Watermarks(lambda order: order.ts))
orders = stream.key_by(lambda order: order.country)
rated = stream.map(rate).key_by(lambda rated: rated.order.country)

# ---- within an interval
joined = orders.join(rated, both, before="5m", after="0s", name="joined")
assert_type(joined, sc.Joined[Order | Rated, float])
assert_type(joined.late, sc.Stream[Order | Rated])
assert_type(orders.join(rated, maybe_right, after="1h", how="left").map(abs), sc.Step[float, float])
assert_type(orders.join(rated, both, before="1m", how="inner"), sc.Joined[Order | Rated, float])
assert_type(orders.join(rated, maybe_left, before="1m", how="right"), sc.Joined[Order | Rated, str])
assert_type(orders.join(rated, maybe_any, before="1m", how="outer"), sc.Joined[Order | Rated, bool])
pairs = orders.join(rated, lambda order, rated: (order, rated), before="1m")
assert_type(pairs, sc.Joined[Order | Rated, tuple[Order, Rated]])
halves = orders.join(rated, lambda order, rated: (order, rated), before="1m", how="left")
assert_type(halves, sc.Joined[Order | Rated, tuple[Order, Rated | None]])

# ---- in one window: results of windows, which can be ranked
hour = orders.window(sc.Tumbling("1h"), name="hour")
in_hour = hour.join(rated, both, name="in hour")
assert_type(in_hour, sc.Windowed[str, Order | Rated, float])
assert_type(in_hour.late, sc.Stream[Order | Rated])
assert_type(in_hour.map(lambda result: result.value).map(abs), sc.Step[float, float])
assert_type(hour.join(rated, maybe_right, how="left"), sc.Windowed[str, Order | Rated, float])
assert_type(hour.join(rated, maybe_left, how="right"), sc.Windowed[str, Order | Rated, str])
assert_type(hour.join(rated, maybe_any, how="outer"), sc.Windowed[str, Order | Rated, bool])

# ---- as of then
newest = orders.join_asof(rated, both, tolerance="1h", name="newest")
assert_type(newest, sc.Joined[Order | Rated, float])
assert_type(orders.join_asof(rated, both, tolerance=None), sc.Joined[Order | Rated, float])
assert_type(orders.join_asof(rated, maybe_right, how="left").late, sc.Stream[Order | Rated])

# ---- the best of all keys
counts = hour.count()
top = counts.top(3, by=lambda result: result.value, name="top")
assert_type(top, sc.Stream[sc.WindowResult[None, list[sc.WindowResult[str, int]]]])
per = counts.top(3, by=lambda result: (result.value, result.key), per=lambda r: len(r.key))
assert_type(per, sc.Stream[sc.WindowResult[int, list[sc.WindowResult[str, int]]]])
assert_type(
    in_hour.top(1, by=lambda result: result.value),
    sc.Stream[sc.WindowResult[None, list[sc.WindowResult[str, float]]]],
)


# ---- lookups
async def ask(country: str) -> float | None:
    return None


async def ask_http(country: str, http: Http) -> float:
    return await http.get_json(country)


def with_rate(order: Order, rate: float | None) -> tuple[str, bool]:
    return order.country, rate is None


looked = stream.lookup(lambda order: order.country, ask, with_rate, cache=10, ttl="1h", name="ask")
assert_type(looked, sc.Step[Order, tuple[str, bool]])
assert_type(looked.errors, sc.Stream[sc.Failure[Order]])
served = stream.lookup(
    lambda order: order.country,
    ask_http,
    lambda order, rate: order.amount * rate,
    uses=open_http,
    ttl=None,
    concurrency=10,
    retry=sc.Retry(attempts=3),
    rate=sc.Rate(10),
)
assert_type(served, sc.Step[Order, float])
