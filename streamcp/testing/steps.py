"""A harness for a single step: records in, records out, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from streamcp.api.jobs import Job
from streamcp.api.streams import Stream
from streamcp.connectors.collect import collect
from streamcp.connectors.items import items
from streamcp.testing.running import run_job

T = TypeVar("T")
U = TypeVar("U")


def run_step(
    add: Callable[[Stream[T]], Stream[U]], records: Iterable[T], *, seed: int = 0
) -> list[U]:
    """Give `records` to the step that `add` puts behind a stream; return what comes out, in order.

    The whole life of the step passes, with its timers that are due, and its services; waiting takes
    no time. Raises what the step raises, as JobFailed."""
    out = collect()
    job = Job("one step")
    add(job.source(items(list(records)), name="records")).sink(out, name="out")
    run_job(job, seed=seed)
    return out.records
