"""The child processes of `endurance`: jobs that are killed, stuck, failing or short of disk.

`python -m benchmarks.endurance.children NAME FOLDER OPTIONS`; OPTIONS is JSON, and so is every line
printed: the events of the job, and at the end what the child itself has seen.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamcp as sc
from streamcp.coordinator import coordinator
from streamcp.observability.events import Event
from streamcp.runners.local import run_blocking

Options = Mapping[str, Any]


def say(**values: object) -> None:
    """Print one line of JSON, at once."""
    print(json.dumps(values), flush=True)


def say_event(event: Event) -> None:
    """Print an event."""
    print(json.dumps(event.as_dict()), flush=True)


# ---- killed: as the flights example, without its data and its network


@dataclass(frozen=True, slots=True)
class Trip:
    """A record of the source."""

    number: int
    carrier: str
    delay: int


@dataclass
class Delays:
    """The state per carrier."""

    count: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A record of the output."""

    number: int
    carrier: str
    count: int
    total: int


def make_trip(number: int) -> Trip:
    """Make a record; the same number always makes the same one."""
    return Trip(number, f"carrier-{number * 7919 % 16}", number * 31 % 100 - 20)


def has_left(trip: Trip) -> bool:
    """Drop some."""
    return trip.number % 37 != 0


def update(trip: Trip, delays: Delays, context: sc.KeyContext[str]) -> Iterable[Report]:
    """Keep running statistics."""
    delays.count += 1
    delays.total += trip.delay
    return [Report(trip.number, context.key, delays.count, delays.total)]


def killed_job(folder: Path, options: Options) -> sc.Job:
    """Calls that take up to twice the latency, keyed statistics, files exactly once."""
    latency = options["latency"]

    async def look_up(trip: Trip) -> Trip:
        await asyncio.sleep(latency * (trip.number * 101 % 200) / 100)
        return trip

    job = sc.Job(
        "killed",
        checkpoints=sc.Checkpoints(
            to=folder / "checkpoints",
            every=options["every"],
            mode=options["mode"],
            alignment_timeout="20ms",
        ),
        restart=sc.Restart.none(),
    )
    trips = job.source(sc.items(range(options["records"])), name="trips").map(make_trip)
    known = trips.filter(has_left).map(look_up, name="look up", concurrency=options["concurrency"])
    reports = known.key_by(lambda trip: trip.carrier).process(
        update, name="delays", state=Delays, parallelism=options["parallelism"]
    )
    reports.sink(
        sc.files.json_lines(folder / "out"), name="reports", parallelism=options["parallelism"]
    )
    return job


def flights_job(folder: Path, options: Options) -> sc.Job:
    """The shipped example, with its weather service on loopback."""
    from streamcp.examples.flights import flights

    latency = f"{options['latency'] * 1000:g}ms"
    return flights(
        limit=options["records"],
        latency=latency,
        concurrency=options["concurrency"],
        parallelism=options["parallelism"],
        out=folder / "out",
    )


async def killed(folder: Path, options: Options) -> None:
    """Run to the end, unless killed before."""
    make = flights_job if options.get("flights") else killed_job
    checkpoints = sc.Checkpoints(
        to=folder / "checkpoints",
        every=options["every"],
        mode=options["mode"],
        alignment_timeout="20ms",
    )
    job, take_over = make(folder, options), options.get("take_over", False)
    async with job.start(checkpoints=checkpoints, take_over=take_over) as running:
        running.events.subscribe(say_event)
        result = await running.wait_finished()
    say(event="ended", outcome=result.outcome, restored_from=result.restored_from)


# ---- stuck


@sc.source(batches=True)
async def endless(position: int = 0, *, until: int = 1 << 62) -> AsyncIterator[tuple[Any, int]]:
    """Yield records of 1 KiB; from `until` on, yield nothing and do not end."""
    while position < until:
        numbers = range(position, position + 64)
        position += 64
        yield [(number, number.to_bytes(1024, "big")) for number in numbers], position
    await asyncio.Event().wait()


class StuckSink:
    """At least once; the third write never returns."""

    def __init__(self) -> None:
        self._writes = 0

    async def write(self, records: Sequence[object], /) -> None:
        self._writes += 1
        if self._writes >= 3:
            await asyncio.Event().wait()


class StuckStagedSink:
    """Staged; its write never returns."""

    async def write(self, records: Sequence[object], transaction: sc.Transaction, /) -> None:
        await asyncio.Event().wait()

    async def prepare(self, transaction: sc.Transaction, /) -> str:
        return ""

    async def commit(self, transaction: sc.Transaction, token: str, /) -> None:
        pass


class Consumer:
    """Takes its time per record; ten times as much in the middle third of the run."""

    def __init__(self, seconds: float) -> None:
        self._slow_from = time.monotonic() + seconds / 3
        self._slow_to = self._slow_from + seconds / 3
        self.taken = 0

    async def take(self, record: object) -> None:
        slow = self._slow_from <= time.monotonic() < self._slow_to
        await asyncio.sleep(0.05 if slow else 0.005)
        self.taken += 1


def same(record: Any) -> Any:
    """Change nothing."""
    return record


def stuck_job(folder: Path, options: Options) -> sc.Job:
    """A source, an exchange, a step, another exchange, and the sink of the scenario."""
    job = sc.Job(
        "stuck",
        checkpoints=sc.Checkpoints(
            to=folder / "checkpoints",
            every=options["every"],
            mode=options["mode"],
            alignment_timeout="50ms",
        ),
        parallelism=2,
        channel_capacity=options["capacity"],
        restart=sc.Restart.none(),
    )
    source = endless(until=options["until"]) if options.get("until") else endless()
    steps = job.source(source, name="records").rebalance().map(same, name="same").rebalance()
    match options["scenario"]:
        case "sink never returns":
            steps.sink(StuckSink, name="sink")
        case "staged sink never returns":
            steps.sink(StuckStagedSink, name="sink")
        case "source stops yielding":
            steps.sink(sc.discard, name="sink")
        case "consumer ten times slower for a while":
            steps.for_each(Consumer(options["seconds"]).take, name="sink", concurrency=4)
    return job


def resident_bytes() -> int | None:
    """Memory of this process; None where /proc does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def stuck(folder: Path, options: Options) -> None:
    """Run for a while, watch memory and checkpoints, and stop."""
    coordinator.COMMIT_TIME = options["commit_time"]
    completed: list[float] = []
    failed: list[str] = []
    memory: list[int | None] = []
    fullest = 0.0

    def count(event: Event) -> None:
        values = event.as_dict()
        if values["event"] == "CheckpointCompleted":
            completed.append(time.monotonic())
        elif values["event"] == "CheckpointFailed":
            failed.append(f"{values['reason']}: {values['detail']}")

    try:
        async with stuck_job(folder, options).start() as running:
            running.events.subscribe(count)
            started = time.monotonic()
            while time.monotonic() < started + options["seconds"]:
                await asyncio.sleep(options["seconds"] / 40)
                memory.append(resident_bytes())
                tasks = [task for task in running.view().tasks if task.capacity]
                fullest = max([fullest, *(task.queued / task.capacity for task in tasks)])
            moments = [started, *completed, time.monotonic()]
            gap = max(b - a for a, b in itertools.pairwise(moments))
            say(
                event="ran",
                completed=len(completed),
                failed=failed,
                longest_gap=gap,
                memory=memory,
                fullest=fullest,
            )
            stopping = time.monotonic()
            async with asyncio.timeout(options["stop_within"]):
                result = await running.stop()
        say(event="ended", outcome=result.outcome, seconds=time.monotonic() - stopping)
    except TimeoutError:
        say(event="ended", outcome="stop timed out", seconds=options["stop_within"])


# ---- failing


async def failing(folder: Path, options: Options) -> None:
    """A step that raises at one record: once in the life of the job, or always."""
    marker = folder / "raised"

    def explode(number: int) -> int:
        if number == options["at"] and (options["always"] or not marker.exists()):
            marker.touch()
            raise ValueError(f"no {number} today")
        return number

    job = sc.Job(
        "failing",
        checkpoints=sc.Checkpoints(to=folder / "checkpoints", every="20ms", mode=options["mode"]),
        channel_capacity=100,
        restart=sc.Restart.fixed_delay(attempts=3, delay="50ms"),
    )

    async def wait(number: int) -> int:
        await asyncio.sleep(0.02)
        return number

    numbers = job.source(sc.items(range(options["records"])), name="numbers")
    slow = numbers.map(wait, name="wait", concurrency=50)
    slow.map(explode, name="explode").sink(sc.files.json_lines(folder / "out"), name="out")
    try:
        async with job.start() as running:
            running.events.subscribe(say_event)
            result = await running.wait_finished()
        say(event="ended", outcome=result.outcome, attempts=result.attempts)
    except sc.JobFailed as error:
        say(event="ended", outcome="failed", error=str(error))


# ---- short of disk


async def short_of_disk(folder: Path, options: Options) -> None:
    """Run until told on the standard input, with checkpoints at a place that the parent spoils."""
    job = sc.Job(
        "short",
        checkpoints=sc.Checkpoints(to=folder, every="100ms", mode="unaligned"),
        channel_capacity=64,
        restart=sc.Restart.none(),
    )
    consumer = Consumer(1e9)
    job.source(endless(), name="records").for_each(consumer.take, name="sink", concurrency=1)
    async with job.start() as running:

        def tell(event: Event) -> None:
            say(**event.as_dict(), taken=consumer.taken)

        running.events.subscribe(tell)
        await asyncio.to_thread(sys.stdin.readline)
        result = await running.stop()
    say(event="ended", outcome=result.outcome)


CHILDREN: Mapping[str, Callable[[Path, Options], Awaitable[None]]] = {
    "killed": killed,
    "stuck": stuck,
    "failing": failing,
    "short_of_disk": short_of_disk,
}


async def main(name: str, folder: str, options: str) -> None:
    """Run one of them."""
    await CHILDREN[name](Path(folder), json.loads(options))


if __name__ == "__main__":
    run_blocking(lambda: main(*sys.argv[1:4]))
