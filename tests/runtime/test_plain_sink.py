"""Sinks whose write is a plain function: inline, at least once, and counted like any other."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.physical import plan
from streamcp.testing.loop import run_virtual


class Kept:
    """Keeps records; fails at lists that hold `bad`."""

    def __init__(self, bad: Any = None) -> None:
        self.records: list[Any] = []
        self.calls: list[str] = []
        self.bad = bad

    async def __aenter__(self) -> Kept:
        self.calls.append("entered")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.calls.append("left")

    def write(self, records: Sequence[Any], /) -> None:
        assert self.calls == ["entered"]
        if self.bad in records:
            raise ValueError("bad")
        self.records += records


def job_into(sink: Any, records: Sequence[int] = range(5), **options: Any) -> sc.Job:
    job = sc.Job("job")
    job.source(sc.items(records), name="in").map(abs).sink(sink, name="out", **options)
    return job


def tasks_of(job: sc.Job) -> list[tuple[str, list[str]]]:
    return [(task.name, [n.label for n in task.members]) for task in plan(job.graph).tasks]


def test_plain_sink_runs_in_the_task_before_it() -> None:
    assert tasks_of(job_into(Kept())) == [("in", ["in", "map-1", "out"])]


def test_plain_sink_behind_an_exchange_has_a_task() -> None:
    job = sc.Job("job")
    sinks: list[Kept] = []

    def make() -> Kept:
        sinks.append(Kept())
        return sinks[-1]

    job.source(sc.items(range(100)), name="in").rebalance().sink(make, name="out", parallelism=2)
    sinks.clear()  # one was made to look at it
    assert tasks_of(job) == [("in", ["in"]), ("out", ["out"])]

    run_virtual(job.run_async())

    assert sorted(sinks[0].records + sinks[1].records) == list(range(100))
    assert [len(sink.records) for sink in sinks] == [50, 50]


def test_sink_is_entered_before_the_first_record_and_left_after_the_last() -> None:
    sink = Kept()
    run_virtual(job_into(sink).run_async())
    assert (sink.records, sink.calls) == ([0, 1, 2, 3, 4], ["entered", "left"])


def test_failed_write_fails_the_job_naming_sink_and_record() -> None:
    with pytest.raises(sc.JobFailed, match=r"step 'out' .* at record 0: ValueError: bad"):
        run_virtual(job_into(Kept(bad=3)).run_async(restart=sc.Restart.none()))


def test_failed_write_drops_or_diverts_every_record_of_the_list() -> None:
    job = sc.Job("job")
    numbers = job.source(sc.items(range(5)), name="in")
    numbers.sink(Kept(bad=3), name="dropping", on_error="drop")
    diverted = numbers.sink(Kept(bad=3), name="diverting", on_error="divert").errors
    failures = sc.collect()
    diverted.sink(failures, name="failures")

    run_virtual(job.run_async())

    assert [failure.record for failure in failures.records] == [0, 1, 2, 3, 4]
    assert {failure.step for failure in failures.records} == {"diverting"}


def test_write_that_returns_an_awaitable_is_refused() -> None:
    class Lazy:
        def write(self, records: Sequence[int], /) -> None:
            async def later() -> None: ...

            return later()  # type: ignore[return-value]

    with pytest.raises(sc.JobFailed, match="async def"):
        run_virtual(job_into(Lazy(), on_error="drop").run_async(restart=sc.Restart.none()))


def test_discarded_records_are_counted() -> None:
    job = sc.Job("job")
    numbers = job.source(sc.items(range(10)), name="in")
    numbers.filter(lambda n: n % 2 == 0).sink(sc.discard(), name="out")
    seen: dict[str, int] = {}

    async def main() -> None:
        async with job.start() as running:
            await running.wait_finished()
            for task in running.view().tasks:
                seen.update({step.name: step.records_in for step in task.steps})

    run_virtual(main())
    assert seen == {"in": 10, "filter-1": 10, "out": 5}
