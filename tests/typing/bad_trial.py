"""Trying out a job: wrong uses."""

from __future__ import annotations

import streamcp as sc
from streamcp.testing import Advance, verify_operator
from tests.typing.models import pages

job = sc.Job("tried")
orders = job.source(pages(), name="orders")

sc.testing.trial("tried")  # error: a name is no job
sc.testing.trial(job, start=1.5)  # error: in seconds?
sc.testing.trial(job, splits=["p0"])  # error: of which source?


async def use() -> None:
    with sc.testing.trial(job):  # error: async with
        pass
    async with sc.testing.trial(job) as trial:
        await trial.advance(30)  # error: seconds?
        trial.feed("orders")  # error: no records
        trial.feed("orders", 7)  # error: one record
        trial.feed("orders", [], "p0")  # error: split= by its name
        await trial.results(orders)  # error: no sink
        await trial.state("orders")  # error: of which key?


def verify() -> None:
    def step(stream: sc.Stream[int]) -> sc.Stream[int]:
        return stream

    verify_operator(step, [1])  # error: what is expected?
    verify_operator(step, [1], [1], order="some")  # error: no such order
    verify_operator(lambda stream: 7, [1], [1])  # error: no stream
    Advance(5)  # error: seconds?
