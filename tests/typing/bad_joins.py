"""Wrong lines about joins: both checkers must report each line with the mark, and no other."""

from __future__ import annotations

import streamcp as sc
from tests.typing.models import Order, Rated, pages


def both(order: Order, rated: Rated) -> float:
    return order.amount - rated.eur


def swapped(rated: Rated, order: Order) -> float:
    return order.amount - rated.eur


def one(order: Order) -> float:
    return order.amount


def rate(order: Order) -> Rated:
    return Rated(order, 1.0)


job = sc.Job("bad joins")
stream = job.source(pages(), name="orders", watermarks=sc.Watermarks(lambda order: order.ts))
orders = stream.key_by(lambda order: order.country)
rates = stream.map(rate)
rated = rates.key_by(lambda rated: rated.order.country)
by_id = rates.key_by(lambda rated: rated.order.id)

stream.join(rated, both, before="5m")  # error: not keyed
orders.join(rates, both, before="5m")  # error: the other is not keyed
orders.join(by_id, both, before="5m")  # error: keys of another type
orders.join(rated, both, before=5)  # error: a bare number
orders.join(rated, swapped, before="5m")  # error: left and right are swapped
orders.join(rated, one, before="5m")  # error: it takes no right record
orders.join(rated, both, before="5m", how="left")  # error: the right record may be None
orders.join(rated, both, before="5m", how="outer")  # error: each of them may be None
orders.join(rated, both, before="5m", how="full")  # error: no such kind
orders.join(rated, both, before="5m", concurrency=3)  # error: it calls no coroutine
orders.join(rated, both, before="5m").late.map(one)  # error: late records are of both inputs
orders.join(rated, both, before="5m").map(one)  # error: what comes out are numbers

hour = orders.window(sc.Tumbling("1h"), name="hour")
hour.join(rates, both)  # error: the other is not keyed
hour.join(by_id, both)  # error: keys of another type
hour.join(rated, both, how="left")  # error: the right record may be None
hour.join(rated, both, before="5m")  # error: the window says when
hour.join(rated.window(sc.Tumbling("1h")), both)  # error: the windows are said once
hour.join(rated, both).map(one)  # error: results of windows, no orders
orders.join_asof(by_id, both)  # error: keys of another type
orders.join_asof(rated, both, tolerance=5)  # error: a bare number
orders.join_asof(rated, both, how="left")  # error: the right record may be None
orders.join_asof(rated, both, how="outer")  # error: each left record meets one
hour.count().top(3)  # error: by what
hour.count().top("3", by=lambda result: result.value)  # error: a text is no number
hour.count().top(3, by=lambda result: result.nope)  # error: results have no such field
orders.top(3, by=lambda order: order.amount)  # error: no windows


async def ask(country: str) -> float:
    return 1.0


async def ask_id(number: int) -> float:
    return 1.0


def plain(country: str) -> float:
    return 1.0


def times(order: Order, rate: float) -> float:
    return order.amount * rate


def country(order: Order) -> str:
    return order.country


stream.lookup(country, plain, times)  # error: what is asked is awaited
stream.lookup(country, ask_id, times)  # error: it takes no text
stream.lookup(country, ask, both)  # error: it takes no number
stream.lookup(country, ask, times, ttl=5)  # error: a bare number
stream.lookup(country, ask, times, cache="many")  # error: a text is no number
stream.lookup(country, ask, times, journal=True)  # error: answers are cached, not journaled
stream.lookup(country, ask, times).map(one)  # error: what comes out are numbers
