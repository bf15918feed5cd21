"""Wrong lines about windows: both checkers must report each line with the mark, and no other."""

from __future__ import annotations

from dataclasses import dataclass

import streamcp as sc
from tests.typing.models import Order, pages


@dataclass(frozen=True)
class Totals:
    eur: float
    orders: int


@dataclass
class NoObserve:
    largest: int = 0


def keep(window: sc.WindowResult[str, list[Order]]) -> Order:
    return window.value[0]


def of_numbers(window: sc.WindowResult[int, list[Order]]) -> list[Order]:
    return window.value


job = sc.Job("bad windows")
orders = job.source(pages(), name="orders", watermarks=sc.Watermarks(lambda order: order.ts))
keyed = orders.key_by(lambda order: order.country)
minute = keyed.window(sc.Tumbling("1m"), name="minute")

sc.Watermarks(lambda order: order.ts, out_of_orderness=10)  # error: a bare number
sc.Watermarks(str)  # error: a text is no timestamp
sc.Watermarks.custom(lambda order: 5, NoObserve)  # error: it observes nothing
orders.window(sc.Tumbling("1m"))  # error: not keyed
keyed.window("1m")  # error: a duration is no window
keyed.window(sc.Tumbling(60))  # error: a bare number
keyed.window(sc.Tumbling("1m"), emit="early")  # error: a text instead of early(every=...)
keyed.window(sc.Tumbling("1m"), allowed_lateness=5)  # error: a bare number
keyed.window(sc.Calendar("hour"))  # error: no such unit
minute.aggregate(sc.Sum(lambda order: order.nope))  # error: no such field
minute.aggregate(sc.Sum(lambda order: order.country))  # error: a text cannot be summed
minute.aggregate(sc.Count)  # error: the class instead of an aggregate
minute.aggregate(sc.Count(), sc.Count())  # error: nothing to put them into
minute.aggregate(sc.Count(), into=Totals)  # error: one value for two fields
minute.aggregate(sc.Count(), sc.Sum(lambda order: order.amount), into=Totals)  # error: swapped
minute.fold(0, lambda total, order: total + order.id)  # error: a value instead of a function
minute.fold(lambda: 0, lambda total: total)  # error: it takes no record
minute.reduce(lambda a, b: a.id)  # error: no longer an order
minute.process(keep)  # error: one record instead of several
minute.process(of_numbers)  # error: keys of another type
minute.count().late.map(lambda order: order.nope)  # error: late records are orders
minute.count().map(lambda result: result.key + 1)  # error: the key is a text
minute.map(str)  # error: what is made of a window comes first
sc.TopN(3)  # error: by what
