"""Whole programs: what the checkers infer is what the user would say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import assert_type

import streamcp as sc
from tests.typing.models import Http, Order, Rated, Visits, open_http, pages

# ---- the first job
words = sc.Job("words")
(
    words.source(sc.items(["to be or not", "to be"]))
    .flat_map(str.split)
    .filter(lambda word: len(word) > 2)
    .sink(sc.stdout())
)


# ---- enrich, 64 in flight, bad ones aside
async def rate(order: Order, http: Http) -> Rated:
    return Rated(order, order.amount * await http.get_json(f"/fx/{order.currency}"))


@sc.job
def orders(topic: str = "orders", *, limit: int = 1000, out: Path = Path("dead")) -> sc.Job:
    job = sc.Job(
        topic,
        checkpoints=sc.Checkpoints(
            every="10s", to="./checkpoints", mode="adaptive", incremental=True
        ),
        types=[Order, sc.codec(Decimal, str, Decimal)],
        restart=sc.Restart.fixed_delay(attempts=5, delay="2s"),
    )
    incoming = job.source(pages(), name="orders")
    rated = incoming.map(
        rate,
        uses=open_http,
        concurrency=limit,
        timeout="2s",
        retry=sc.Retry(3, backoff="200ms"),
        on_error="divert",
        name="fx",
    )
    assert_type(incoming, sc.Stream[Order])
    assert_type(rated, sc.Step[Order, Rated])
    assert_type(rated.errors, sc.Stream[sc.Failure[Order]])
    rated.errors.sink(sc.files.json_lines(str(out)), name="dead-letters")
    counts = rated.key_by(lambda r: r.order.country).count(name="per-country")
    assert_type(counts, sc.Stream[tuple[str, int]])
    counts.sink(sc.stdout(), name="out")
    return job


# ---- state per key
async def greet(order: Order, visits: Visits, ctx: sc.KeyContext[str], http: Http) -> list[str]:
    visits.count += 1
    ctx.set_timer(after="30s")
    ctx.set_timer(after=timedelta(seconds=30))
    ctx.set_timer(order.ts + 30_000)
    ctx.set_timer(datetime.now(UTC))
    assert_type(ctx.key, str)
    assert_type(ctx.timestamp, int)
    return [ctx.key] if visits.count == 1 else []


def forget(timestamp: int, visits: Visits, ctx: sc.KeyContext[str], http: Http) -> list[int]:
    ctx.clear_state()
    return [timestamp]


stateful = sc.Job("stateful")
greeted = (
    stateful.source(pages(), name="orders")
    .key_by(lambda order: order.country)
    .process(greet, uses=open_http, state=Visits, on_timer=forget, concurrency=50, name="greet")
)
assert_type(greeted, sc.Step[Order, str | int])


async def post(batch: Sequence[str | int]) -> None: ...


def numbered(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> Iterator[tuple[int, Order]]:
    visits.count += 1
    yield visits.count, order


greeted.sink(post, name="post", retry=sc.Retry(5))


async def main() -> None:
    async with orders(limit=5).start(fresh=True) as running:
        await running.checkpoint()
        await running.state("greet").get("ann")
        running.set_mode("unaligned")
        running.set_mode("at_least_once")
        assert_type(running, sc.Running)
        saved = await running.savepoint("savepoints", mode="aligned")
        assert_type(saved, sc.Savepoint)
        await running.stop(savepoint=saved.path.parent)
        assert_type(await running.stop(drain=True), sc.JobResult)
    assert_type(await orders().run_async(), sc.JobResult)
    assert_type(await stateful.source(pages()).take(5), list[Order])


if __name__ == "__main__":
    orders(topic="other").run(take_over=True, restore="savepoints/orders-12")
