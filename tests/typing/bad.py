"""Wrong lines: both checkers must report each line with the mark, and no other line."""

from __future__ import annotations

from collections.abc import Sequence

import streamcp as sc
from tests.typing.models import (
    Order,
    Rated,
    Visits,
    WritesNumbers,
    each,
    keep,
    keep_slowly,
    open_http,
    pages,
    ticks,
)

job = sc.Job("bad")
orders = job.source(pages(), name="orders")
keyed = orders.key_by(lambda order: order.country)


async def notify(order: Order) -> None: ...
async def post_numbers(batch: Sequence[int]) -> None: ...
async def rate(order: Order, client: int) -> Rated:
    return Rated(order, client)


def needs_count(count: int) -> Visits:
    return Visits(count)


# ---- state and keys
keyed.process(keep, state=Visits)  # error: one record instead of several
keyed.process(keep_slowly, state=Visits)  # error: the same as a coroutine
keyed.process(each, state=Visits, ttl=7)  # error: seconds, or days?
sc.Ttl("7d", clock="wall")  # error: no such clock
sc.ListState([1]).append("a")  # error: entries of another type
sc.MapState({"a": 1})[2] = 1  # error: keys of another type
orders.map(lambda order: order.id, ttl="7d")  # error: no state
keyed.process(each, state=Visits, concurrency=4)  # error: a plain function has no concurrency
keyed.process(each, state=needs_count)  # error: cannot be made without arguments
keyed.process(each, state=Rated)  # error: another state than the function's
keyed.process(each)  # error: no state
orders.process(each, state=Visits)  # error: not keyed
orders.map(lambda order: order.id).key_by(lambda number: [number])  # error: unhashable key
keyed.map(lambda order: order.id).count(name="n")  # error: map gives an unkeyed stream
keyed.reduce(lambda a, b: a.id)  # error: no longer an order
keyed.scan(0, lambda total, order: total + order.id)  # error: a value instead of a function


# ---- two inputs
def keep_id(number: int, visits: Visits, ctx: sc.KeyContext[str]) -> list[int]:
    return [number]


def keep_many(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> list[Order]:
    return [order]


def with_rules(order: Order, rules: dict[str, int]) -> list[Order]:
    return [order]


def learn(number: int, rules: dict[str, int]) -> None: ...
def learn_texts(number: int, rules: dict[int, str]) -> None: ...
def make_rules() -> dict[str, int]:
    return {}


def change_key(number: int, rules: Visits, ctx: sc.BroadcastContext[str, Visits]) -> None:
    ctx.clear_state()  # error: the function of a broadcast input changes no key
    ctx.set_timer(after="1s")  # error: and sets no timer


numbers = orders.map(lambda order: order.id)
by_text = numbers.key_by(str)
rules = numbers.broadcast()
keyed.connect(numbers.key_by(lambda number: number))  # error: keys of another type
keyed.connect(numbers)  # error: the other stream has no key
orders.connect(by_text)  # error: this stream has no key
orders.connect(numbers)  # error: neither has
keyed.connect(by_text).process(keep_many, keep_many, state=Visits)  # error: the second has numbers
keyed.connect(by_text).process(keep_id, keep_many, state=Visits)  # error: the wrong way round
keyed.connect(by_text).process(keep_many, keep_id)  # error: no state
keyed.connect(by_text).process(keep_many, keep_id, state=Rated)  # error: another state
keyed.connect(by_text).process(keep_many, keep_slowly, state=Visits)  # error: of two kinds
keyed.connect(by_text).map(str)  # error: connected streams have no verb but process
rules.map(str)  # error: nor has a broadcast stream
rules.sink(post_numbers)  # error: and no sink
orders.union(rules)  # error: it cannot be merged
orders.connect(rules).process(with_rules, learn)  # error: no broadcast state
orders.connect(rules).process(with_rules, learn_texts, broadcast_state=make_rules)  # error: another
orders.connect(rules).process(with_rules, learn, broadcast_state=dict, retry=None)  # error: plain

# ---- options
orders.map(len)  # error: an order has no length
orders.map(lambda order: order.nope)  # error: no such field
orders.map(str, concurrency=8)  # error: a plain function has no concurrency
orders.map(str, executor="fiber")  # error: no such executor
orders.map(max, executor="process", uses=open_http)  # error: it is of one process
orders.map(str, executor=4)  # error: nor is a number one
orders.branch(lambda o: o.id > 3, executor="thread")  # error: a branch is inline
orders.inspect(print, concurrency=2)  # error: inspect is inline
orders.inspect(len)  # error: an order has no length
orders.tap(lambda s: s.count())  # error: not keyed
orders.tap(print, name="tap")  # error: it is no step
orders.map(notify, concurency=8)  # error: misspelt
orders.map(notify, timeout=2)  # error: a bare number is no duration
orders.map(notify, rate=100)  # error: a bare number is no rate
orders.map(str, rate=sc.Rate(100))  # error: a plain function has no rate
orders.map(notify, breaker=5)  # error: a number is no circuit breaker
orders.map(str, journal=True)  # error: a plain function has no journal
sc.Rate(100, per=1)  # error: a bare number is no duration
sc.Rate(100, key="country")  # error: a text is no function
sc.call_id("order")  # error: it takes nothing
orders.batch(100)  # error: no longest wait
orders.batch(100, 1)  # error: a bare number is no duration
orders.batch("100", "1s")  # error: a number of records
orders.unbatch()  # error: orders are no lists
orders.batch(100, "1s").map(rate)  # error: a function of one order
orders.map(notify, on_error="ignore")  # error: no such choice
orders.map(notify, "notify")  # error: options are keyword-only
orders.map(rate, uses=open_http)  # error: another service than the function's
orders.map(rate)  # error: a second argument, but no service
orders.for_each(print, concurrency=8)  # error: a plain function has no concurrency
orders.for_each(notify, ordered=True)  # error: for_each emits nothing to be in order
orders.count(name="n")  # error: not keyed


# ---- loops
def one_stream(loop: sc.Stream[Order]) -> sc.Stream[Order]:
    return loop


def other_records(loop: sc.Stream[Order]) -> tuple[sc.Stream[int], sc.Stream[Order]]:
    return loop.map(lambda order: order.id), loop


def of_numbers(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
    return loop, loop


orders.iterate(one_stream)  # error: nothing is fed back
orders.iterate(other_records)  # error: feeds back other records than it gets
orders.iterate(of_numbers)  # error: a body for other records
orders.iterate(lambda loop: (loop, 1))  # error: the output is no stream
orders.iterate(other_records, ordered=True)  # error: no such option
orders.iterate()  # error: no body

# ---- ends and beginnings
orders.sink(WritesNumbers())  # error: writes other records
orders.sink(WritesNumbers)  # error: so do its objects
orders.sink(post_numbers)  # error: and this function
orders.sink(print)  # error: a plain function
orders.map(str).union([1])  # error: a list is no stream
job.source(ticks())  # error: the symbol is missing
job.source(ticks(symbol=5))  # error: the symbol is a text
job.source([1, 2, 3])  # error: a list is no source
notify_all = orders.for_each(notify).map(str)  # error: nothing comes out of an end
sc.Retry(backoff=5)  # error: a bare number is no duration
sc.Checkpoints(every="1s")  # error: no directory
sc.Checkpoints(to="x", mode="fast")  # error: no such mode
sc.Checkpoints(to="x", max_concurrent="2")  # error: a number
sc.Checkpoints(to="x", incremental="yes")  # error: True or False
job.run(workers="four")  # error: no such option
sc.nope()  # error: no such word


@sc.source  # error: it takes no position and yields nothing
async def no_position() -> None: ...


@sc.job  # error: it makes no job
def no_job() -> int:
    return 1


def wrong_timers(ctx: sc.KeyContext[str]) -> None:
    ctx.set_timer(1.5)  # error: a float is no timestamp
    ctx.set_timer(after=30)  # error: a bare number is no duration
    ctx.set_timer()  # error: no time
    ctx.key.append(1)  # error: the key is a text
    ctx.call_id()  # error: a text is no function
