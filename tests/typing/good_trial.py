"""Trying out a job: what the methods take and give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import streamcp as sc
from streamcp.testing import Advance, At, On, Watermark, verify_operator
from tests.typing.models import Order, pages

job = sc.Job("tried")
orders = job.source(pages(), name="orders")
counts = orders.key_by(lambda order: order.country).count(name="counts")
out = counts.sink(sc.discard(), name="out")


async def use(order: Order) -> None:
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    async with sc.testing.trial(job, services={pages: object()}, start=begins) as trial:
        assert_type(trial, sc.testing.Trial)
        trial.feed("orders", [order])
        trial.feed(orders, iter([order]), split="p0")
        trial.feed(pages(), (order,))
        await trial.settle()
        await trial.advance("1m")
        await trial.advance(timedelta(minutes=1))
        assert_type(await trial.results("out"), list[Any])
        assert_type(await trial.results(out, committed=True), list[Any])
        assert_type(await trial.late("windows"), list[Any])
        await trial.state(counts, "de")
        await trial.checkpoint()
        await trial.crash_and_restore()
        trial.end(orders)
        assert_type(await trial.finish(), sc.JobResult)
        assert_type(trial.now, datetime)


def verify(order: Order) -> None:
    def late(stream: sc.Stream[Order]) -> sc.Stream[str]:
        return stream.map(lambda one: one.country)

    def both(left: sc.Stream[Order], right: sc.Stream[Order]) -> sc.Stream[Order]:
        return left.union(right)

    verify_operator(late, [order], ["de"], rescale=False, seeds=(1, 2))
    verify_operator(late, [At(5, order), Watermark(7), Advance("1s")], ["de"], order="any")
    verify_operator(both, [order, On(1, order)], [], inputs=2, order=lambda one: one.country)
