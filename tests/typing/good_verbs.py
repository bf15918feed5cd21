"""Every verb, with both kinds of function: the type of what comes out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeGuard, assert_type

from typing_extensions import TypeIs

import streamcp as sc
from tests.typing.models import (
    Http,
    Ledger,
    Order,
    Staged,
    Visits,
    each,
    open_http,
    pages,
    split_pages,
    split_ticks,
    ticks,
)

job = sc.Job("verbs")

# ---- sources
assert_type(job.source(ticks(symbol="BTC"), name="ticks"), sc.Stream[float])
assert_type(job.source(split_ticks(), name="split", parallelism=2), sc.Stream[float])
assert_type(job.source(split_pages(limit=3), name="pages"), sc.Stream[Order])
assert_type(job.source(sc.items([1, 2, 3])), sc.Stream[int])
orders = job.source(pages(), name="orders")
assert_type(orders, sc.Stream[Order])


# ---- map
async def price(order: Order) -> float:
    return order.amount


async def price_with(order: Order, http: Http) -> float:
    return await http.get_json(order.currency)


def path_of(order: Order, http: Http) -> str:
    return order.currency


assert_type(orders.map(price), sc.Step[Order, float])
assert_type(orders.map(price, concurrency=4, ordered=False, timeout="2s"), sc.Step[Order, float])
assert_type(
    orders.map(price, rate=sc.Rate(100), breaker=sc.CircuitBreaker()), sc.Step[Order, float]
)
rates = [sc.Rate(100, per="1m", burst=10), sc.Rate(2, key=lambda order: order.country)]
assert_type(orders.map(price, rate=rates), sc.Step[Order, float])
assert_type(orders.map(price, journal=True), sc.Step[Order, float])
assert_type(orders.map(price, retry=sc.Retry(5, maximum="10s", jitter=0.2)), sc.Step[Order, float])
assert_type(orders.map(price_with, uses=open_http, concurrency=4), sc.Step[Order, float])
assert_type(orders.map(path_of, uses=open_http), sc.Step[Order, str])
assert_type(orders.map(lambda order: order.id, name="ids"), sc.Step[Order, int])
assert_type(orders.map(lambda order: order.country).map(str.upper), sc.Step[str, str])
assert_type(orders.map(lambda order: order.country).map(json.loads), sc.Step[str, Any])


assert_type(sc.call_id(), str)


# ---- filter
async def is_known(order: Order) -> bool:
    return order.id > 0


def is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


assert_type(orders.filter(lambda order: order.amount > 1), sc.Step[Order, Order])
assert_type(orders.filter(is_known, concurrency=3), sc.Step[Order, Order])
several: list[int | str] = [1, "a"]
mixed = job.source(sc.items(several))
assert_type(mixed, sc.Stream[int | str])
assert_type(mixed.filter(is_text), sc.Step[int | str, str])


# ---- flat_map
def halves(order: Order) -> Iterator[float]:
    yield order.amount / 2


async def slow_halves(order: Order) -> AsyncIterator[float]:
    yield order.amount / 2


async def some(order: Order) -> list[int] | None:
    return None


assert_type(orders.flat_map(halves), sc.Step[Order, float])
assert_type(orders.flat_map(slow_halves, concurrency=2), sc.Step[Order, float])
assert_type(orders.flat_map(some), sc.Step[Order, int])
assert_type(orders.flat_map(lambda order: [order.id]), sc.Step[Order, int])


# ---- executors
assert_type(orders.map(lambda o: o.id, executor="thread", concurrency=2), sc.Step[Order, int])
assert_type(orders.map(path_of, executor="thread", uses=open_http), sc.Step[Order, str])
assert_type(orders.filter(lambda o: o.id > 3, executor="thread"), sc.Step[Order, Order])
assert_type(orders.flat_map(halves, executor="thread", timeout="1s"), sc.Step[Order, float])
assert_type(orders.for_each(print, executor="thread", concurrency=2), sc.SinkStep[Order])
assert_type(orders.map(lambda o: o.id, executor="process", concurrency=2), sc.Step[Order, int])
assert_type(orders.flat_map(halves, executor="process"), sc.Step[Order, float])


# ---- batch
assert_type(orders.batch(100, "1s", name="batch"), sc.Stream[list[Order]])
assert_type(orders.batch(100, "1s").unbatch(), sc.Stream[Order])
assert_type(orders.map(lambda order: [order.id]).unbatch(), sc.Stream[int])
assert_type(orders.key_by(lambda o: o.country).batch(100, "1s"), sc.Stream[list[Order]])


# ---- union, branch, rebalance
assert_type(orders.map(lambda o: o.id).union(orders.map(lambda o: o.country)), sc.Stream[int | str])
assert_type(orders.branch(lambda o: o.id > 3), tuple[sc.Stream[Order], sc.Stream[Order]])
numbers_or_texts = orders.map(lambda o: o.id).union(orders.map(lambda o: o.country))


def is_number(value: int | str) -> TypeGuard[int]:
    return isinstance(value, int)


def is_a_text(value: object) -> TypeIs[str]:
    return isinstance(value, str)


assert_type(
    numbers_or_texts.branch(is_number, name="kinds"), tuple[sc.Stream[int], sc.Stream[int | str]]
)
assert_type(numbers_or_texts.branch(is_a_text), tuple[sc.Stream[str], sc.Stream[int | str]])
assert_type(numbers_or_texts.filter(is_number), sc.Step[int | str, int])
assert_type(numbers_or_texts.filter(is_a_text), sc.Step[int | str, str])
assert_type(orders.rebalance(), sc.Stream[Order])

# ---- inspect, tap
assert_type(orders.inspect(print, name="seen"), sc.Step[Order, Order])
assert_type(orders.inspect(print, on_error="divert").errors, sc.Stream[sc.Failure[Order]])
assert_type(orders.tap(lambda s: s.for_each(print)), sc.Stream[Order])
assert_type(orders.map(price).tap(lambda s: s.errors.for_each(print)), sc.Step[Order, float])
assert_type(
    orders.key_by(lambda o: o.country).tap(lambda s: s.count(name="n").for_each(print)),
    sc.KeyedStream[str, Order],
)
anything: sc.Stream[object] = orders


# ---- loops
def pay(loop: sc.Stream[Order]) -> tuple[sc.Stream[Order], sc.Stream[float]]:
    unpaid, paid = loop.map(lambda order: order).branch(lambda order: order.amount > 0)
    return unpaid, paid.map(lambda order: order.amount)


def by_key(loop: sc.Stream[Order]) -> tuple[sc.Stream[Order], sc.Stream[Order]]:
    again, done = loop.branch(lambda order: order.id > 3)
    return again.key_by(lambda order: order.country), done


def repeat(loop: sc.Stream[Order]) -> tuple[sc.Stream[Order], sc.Stream[float]]:
    priced = loop.map(price, on_error="divert")
    return priced.errors.map(lambda failure: failure.record), priced


assert_type(orders.iterate(pay, name="pay"), sc.Stream[float])
assert_type(orders.rebalance().iterate(by_key, name="by key", parallelism=3), sc.Stream[Order])
assert_type(orders.iterate(repeat, name="repeat"), sc.Stream[float])
assert_type(orders.iterate(lambda loop: loop.branch(lambda o: o.id > 3)), sc.Stream[Order])

# ---- keyed
by_country = orders.key_by(lambda order: order.country)
assert_type(by_country, sc.KeyedStream[str, Order])
assert_type(by_country.map(lambda order: order.id), sc.Step[Order, int])
assert_type(by_country.count(name="n"), sc.Stream[tuple[str, int]])
assert_type(by_country.reduce(lambda a, b: max(a, b, key=lambda o: o.amount)), sc.Stream[Order])
assert_type(by_country.scan(float, lambda total, order: total + order.amount), sc.Stream[float])


async def each_slowly(
    order: Order, visits: Visits, ctx: sc.KeyContext[str]
) -> AsyncIterator[Order]:
    yield order


def nothing(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> list[str] | None:
    return None


async def remind(timestamp: int, visits: Visits, ctx: sc.KeyContext[str]) -> list[int]:
    return [timestamp]


assert_type(by_country.process(each, state=Visits), sc.Step[Order, Order])
assert_type(by_country.process(each, state=Visits, ttl="7d"), sc.Step[Order, Order])


@dataclass
class Basket:
    items: sc.ListState[Order] = field(default_factory=sc.ListState[Order])
    seen: sc.MapState[str, int] = field(default_factory=sc.MapState[str, int])


assert_type(Basket().items[0], Order)
assert_type(Basket().items[1:], list[Order])
assert_type(Basket().seen["a"], int)
Basket().items.extend(each_order for each_order in Basket().items)


@dataclass
class Renamed:
    total: Annotated[float, sc.renamed_from("sum", "amount")] = 0.0


assert_type(Renamed().total, float)
assert_type(
    by_country.process(each_slowly, state=Visits, ttl=sc.Ttl("1h", clock="processing")),
    sc.Step[Order, Order],
)
assert_type(
    by_country.process(each, state=Visits, executor="thread", concurrency=4), sc.Step[Order, Order]
)
assert_type(by_country.process(each_slowly, state=Visits, concurrency=4), sc.Step[Order, Order])
assert_type(by_country.process(nothing, state=Visits), sc.Step[Order, str])
assert_type(
    by_country.process(each_slowly, state=Visits, on_timer=remind), sc.Step[Order, Order | int]
)


# ---- two inputs
def keep_order(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> list[Order]:
    return [order]


def note_price(price: float, visits: Visits, ctx: sc.KeyContext[str]) -> list[float] | None:
    return [price]


async def ask(order: Order, visits: Visits, ctx: sc.KeyContext[str], http: Http) -> list[int]:
    return [order.id]


async def ask_price(
    price: float, visits: Visits, ctx: sc.KeyContext[str], http: Http
) -> AsyncIterator[float]:
    yield await http.get_json("/")


async def keep_order_slowly(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> None: ...


def remind_at(timestamp: int, visits: Visits, ctx: sc.KeyContext[str]) -> list[bool]:
    return [True]


prices = job.source(ticks(symbol="BTC"))
by_size = prices.key_by(lambda price: str(price))
connected = by_country.connect(by_size)
assert_type(connected, sc.ConnectedStreams[str, Order, float])
assert_type(
    connected.process(keep_order, note_price, state=Visits),
    sc.Step[Order | float, Order | float],
)
assert_type(
    connected.process(keep_order, note_price, state=Visits, on_timer=remind_at, name="two"),
    sc.Step[Order | float, Order | float | bool],
)
assert_type(
    connected.process(ask, ask_price, state=Visits, uses=open_http, concurrency=4),
    sc.Step[Order | float, int | float],
)
assert_type(
    connected.process(keep_order, note_price, state=Visits).errors,
    sc.Stream[sc.Failure[Order | float]],
)


# ---- broadcast
def with_rules(order: Order, rules: dict[str, int]) -> list[Order]:
    return [order]


def learn(price: float, rules: dict[str, int]) -> None: ...


def keyed_with_rules(
    order: Order, visits: Visits, rules: dict[str, int], ctx: sc.KeyContext[str]
) -> list[Order]:
    return [order]


def learn_keyed(
    price: float, rules: dict[str, int], ctx: sc.BroadcastContext[str, Visits]
) -> list[int]:
    return [visits.count for _, visits in ctx.states()]


def remind_with_rules(
    timestamp: int, visits: Visits, rules: dict[str, int], ctx: sc.KeyContext[str]
) -> list[bool]:
    return [True]


def make_rules() -> dict[str, int]:
    return {}


rules = prices.broadcast()
assert_type(rules, sc.BroadcastStream[float])
assert_type(orders.connect(rules), sc.ConnectedBroadcast[Order, float])
assert_type(
    orders.connect(rules).process(with_rules, learn, broadcast_state=make_rules),
    sc.Step[Order | float, Order],
)
keyed_rules = by_country.connect(rules)
assert_type(keyed_rules, sc.KeyedConnectedBroadcast[str, Order, float])
assert_type(
    keyed_rules.process(
        keyed_with_rules,
        learn_keyed,
        state=Visits,
        broadcast_state=make_rules,
        on_timer=remind_with_rules,
        name="with rules",
    ),
    sc.Step[Order | float, Order | int | bool],
)
assert_type(
    keyed_rules.process(with_rules, learn, broadcast_state=make_rules),
    sc.Step[Order | float, Order],
)


# ---- ends
async def notify(order: Order) -> None: ...


orders.sink(Ledger(), name="one ledger")
orders.sink(Ledger, name="four ledgers", parallelism=4)
orders.sink(lambda: Ledger(), name="made ledgers")
orders.sink(Staged(), name="staged")
orders.sink(sc.collect(), name="collected")
orders.sink(sc.discard(), name="discarded")
ledger: sc.TransactionalSink[Order, str] = Ledger()
assert_type(orders.for_each(notify, concurrency=8), sc.SinkStep[Order])
assert_type(orders.for_each(notify).errors, sc.Stream[sc.Failure[Order]])
assert_type(orders.for_each(print), sc.SinkStep[Order])
