"""What is measured of latency under an open loop, from the sources of a job to its sinks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.compare.child import measure
from streamcp.compare.histogram import Histogram
from streamcp.compare.latency import LatencyMeter, latency_of, why_not_stamped
from streamcp.compare.messages import Ended, Latencies, Message, RunOrder
from streamcp.compare.outputs import read_output
from streamcp.compare.pacing import Pace
from streamcp.elements import ListTimestamp
from streamcp.testing.clock import ManualClock


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for number in count(position):
        yield number, number + 1


async def never(records: Sequence[Any]) -> None:
    pytest.fail(f"the target got {records!r}")


def add(number: int, total: list[int], context: sc.KeyContext[int]) -> list[int]:
    total.append(number)
    return [len(total)]


def job_of(*, watermarks: sc.Watermarks[int] | None = None) -> sc.Job:
    job = sc.Job("numbers")
    source = job.source(numbers(), name="numbers", watermarks=watermarks)
    even = source.filter(lambda n: n % 2 == 0).flat_map(lambda n: [n, n])
    even.sink(never, name="twice")
    counts = even.key_by(lambda n: n % 3).process(add, name="sums", state=list[int], ttl="1h")
    counts.batch(7, "50ms", name="sevens").sink(never, name="lists")
    return job


async def told_by(job: sc.Job, folder: Path, records: int) -> Latencies:
    """Everything is due at once, so nothing has to be waited for."""
    told: list[Message] = []
    limits, rates = {"numbers": records}, {"numbers": 1e9}
    order = RunOrder(folder=str(folder), mode="unaligned", limits=limits, rates=rates)
    await measure(job, order, told.append)
    assert isinstance(told[-1], Ended)
    (found,) = [one for one in told if isinstance(one, Latencies)]
    return found


def total(plain: Any) -> int:
    return Histogram.from_plain(plain).count


async def test_every_record_that_reaches_a_sink_is_counted(tmp_path: Path) -> None:
    """Half of the records are dropped, the others come twice; and each once more, in lists."""
    told = await told_by(job_of(), tmp_path, 200)

    written = read_output(tmp_path)
    assert written.total() > 200
    assert total(told.due) == total(told.given) == total(told.visible) == 400
    assert sum(map(total, told.seconds.values())) == 400
    assert total(told.waited) == 200
    assert told.unstamped is None


async def test_source_that_had_nothing_to_give_out_has_no_pace_and_ends(tmp_path: Path) -> None:
    job = sc.Job("two")
    busy = job.source(numbers(), name="numbers")
    busy.union(job.source(numbers(), name="idle")).sink(never, name="out")
    told: list[Message] = []
    limits, rates = {"numbers": 20, "idle": 0}, {"numbers": 1e9}
    order = RunOrder(folder=str(tmp_path), mode="unaligned", limits=limits, rates=rates)

    await measure(job, order, told.append)

    assert isinstance(told[-1], Ended)
    assert told[-1].read == limits


async def test_stamps_do_not_change_what_is_written(tmp_path: Path) -> None:
    told: list[Message] = []
    order = RunOrder(folder=str(tmp_path / "a"), mode="unaligned", limits={"numbers": 100})
    await measure(job_of(), order, told.append)
    await told_by(job_of(), tmp_path / "b", 100)

    def twice(folder: Path) -> dict[bytes, int]:
        return {line: n for line, n in read_output(folder).items() if b"twice" in line}

    assert twice(tmp_path / "a") == twice(tmp_path / "b") != {}


async def test_job_with_event_time_is_paced_but_not_stamped(tmp_path: Path) -> None:
    told = await told_by(job_of(watermarks=sc.Watermarks[int](lambda n: n)), tmp_path, 100)

    assert total(told.waited) == 100
    assert total(told.due) == 0
    assert told.unstamped is not None
    assert "'numbers'" in told.unstamped
    assert "event time of its own" in told.unstamped


def later(timestamp: int, state: list[int], context: sc.KeyContext[int]) -> list[int]:
    return []


def test_what_forbids_stamps_is_named() -> None:
    with_timers = sc.Job("timers")
    keyed = with_timers.source(numbers(), name="numbers").key_by(lambda n: n)
    keyed.process(add, name="sums", state=list[int], on_timer=later).sink(never, name="out")
    without_sink = sc.Job("nothing")
    without_sink.source(numbers(), name="numbers").for_each(print)

    assert "timers" in (why_not_stamped(with_timers.graph) or "")
    assert "'sums'" in (why_not_stamped(with_timers.graph) or "")
    assert why_not_stamped(without_sink.graph) == "the job has no sink"
    assert why_not_stamped(job_of().graph) is None


def test_latency_counts_from_when_a_record_was_due() -> None:
    clock = ManualClock()
    pace = Pace({"rows": 1.0}, clock)
    pace.now()
    clock.advance(3.0)
    stamp = pace.give("rows", pace.due("rows", 1))  # two seconds late
    meter = LatencyMeter(pace)
    clock.advance(0.5)

    meter.written("t1", [stamp, stamp])
    clock.advance(1.0)
    meter.committed("t1")
    meter.committed("t2")

    told = meter.told()
    assert told.due == {"2500000": 2}
    assert told.given == {"500000": 2}
    assert told.visible == {"3500000": 2}
    assert told.seconds == {"3": {"2500000": 2}}
    assert told.waited == {"2000000": 1}


def test_list_counts_as_its_records() -> None:
    clock = ManualClock()
    pace = Pace({"rows": 1.0}, clock)
    pace.now()
    meter = LatencyMeter(pace)
    clock.advance(5.0)

    meter.written("t1", [ListTimestamp((pace.stamp(1.0), pace.stamp(2.0))), pace.stamp(3.0)])

    assert meter.told().due == {"2000000": 1, "3000000": 1, "4000000": 1}


def test_latencies_of_runs_are_added_up() -> None:
    one = Latencies(due={"1000": 2}, waited={"5": 1}, seconds={"0": {"1000": 2}})

    found = latency_of([one, one], kept_up=True)

    assert found is not None
    assert found.due.as_plain() == {"1000": 4}
    assert found.as_dict()["waited"]["count"] == 2
    assert latency_of([], kept_up=True) is None
