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
