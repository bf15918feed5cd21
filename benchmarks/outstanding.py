"""Hundreds of calls under way, the queues behind them full, and a kill -9 in the middle.

The job runs in a child process; its service is this module's too, and logs to a file what is called
and what returns. The log also gets a line when a checkpoint is triggered. Nothing else can run
between that line and the cut, so the log tells which calls had not returned at the cut: exactly
these must be made again by the restored job, each once, and none of the others before the cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamcp as sc
from benchmarks.harness import Child, Row, Run, Suite, at_most, check, fsync_time, median_row
from streamcp.observability import events


@dataclass(frozen=True, slots=True)
class Sizes:
    """So many calls at once, of so many seconds; records in all; checkpoints to be measured."""

    calls: int
    seconds: float
    records: int
    checkpoints: int


FULL = Sizes(500, 2.0, 2500, 12)
QUICK = Sizes(500, 1.0, 2000, 6)


async def calls(run: Run[Sizes]) -> Sequence[Row]:
    """500 calls under way: how fast are they durable, and which are made again after kill -9?"""
    return await measure(run.sizes, run.say, run.seed)


async def measure(sizes: Sizes, say: Callable[[str], None], seed: int) -> Sequence[Row]:
    """Take checkpoints of a child, kill it, start it again, and compare the log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["benchmarks.outstanding", name, _options(sizes, seed)]
        say("calls under way")
        async with Child(command) as child:
            taken = [json.loads(await child.line()) for _ in range(sizes.checkpoints)]
            cut = int(await child.line())
            child.kill()
            await child.wait()
        say("restored")
        async with Child([*command, "finish"]) as child:
            restored_from = int(await child.line())
            code = await child.wait()
        rows = _durable_rows(sizes, taken)
        rows.append(check("restored run ended well", code == 0, f"exit code {code}"))
        rows.append(
            check(
                "restored from the last complete checkpoint",
                restored_from == cut,
                f"checkpoint {restored_from}",
            )
        )
        return rows + _call_rows(sizes, folder, cut)


def _options(sizes: Sizes, seed: int) -> str:
    return json.dumps([sizes.calls, sizes.seconds, sizes.records, sizes.checkpoints, seed])


def _durable_rows(sizes: Sizes, taken: Sequence[dict[str, Any]]) -> list[Row]:
    ratios = [one["durable"] / one["plain"] for one in taken]
    plain = statistics.median(one["plain"] for one in taken) * 1000
    size = statistics.median(one["bytes"] for one in taken)
    in_flight = statistics.median(one["records"] for one in taken)
    name = f"{sizes.calls} outstanding calls of {sizes.seconds:g} s"
    return [
        median_row(
            f"{name}: durable / plain write and fsync",
            ratios,
            "×",
            target=at_most(10.0),
            detail=f"{size / 1000:,.0f} kB, {in_flight:,.0f} records; plainly {plain:.2f} ms",
        ),
        median_row(f"{name}: durable delay", [one["durable"] * 1000 for one in taken], "ms"),
        median_row(f"{name}: barrier delay", [one["barrier"] * 1000 for one in taken], "ms"),
    ]


@dataclass(frozen=True, slots=True)
class Log:
    """What the service saw: before the cut, and in the restored run."""

    called: Counter[int]
    returned: set[int]
    again: Counter[int]


def read_log(file: Path, cut: int) -> Log:
    """Read the lines before the trigger of checkpoint `cut`, and those of the second process."""
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    at = lines.index(["trigger", str(cut)])
    starts = [number for number, line in enumerate(lines) if line[0] == "start"]
    before, after = lines[:at], lines[starts[1] :]
    return Log(
        Counter(int(line[1]) for line in before if line[0] == "call"),
        {int(line[1]) for line in before if line[0] == "return"},
        Counter(int(line[1]) for line in after if line[0] == "call"),
    )


def _call_rows(sizes: Sizes, folder: Path, cut: int) -> list[Row]:
    log = read_log(folder / "calls.log", cut)
    open_calls = set(log.called) - log.returned
    missing = sum(1 for number in open_calls if log.again[number] == 0)
    twice = sum(1 for count in log.again.values() if count > 1)
    captured = sum(1 for number in log.returned if log.again[number])
    new = set(range(sizes.records)) - set(log.called)
    never = sum(1 for number in new if log.again[number] == 0)
    written = Counter(
        json.loads(line)[0]
        for file in sorted((folder / "out").glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    )
    under_way = f"{len(open_calls)} under way and {len(log.returned)} returned at the cut"
    return [
        check("as many calls as allowed were under way", len(open_calls) == sizes.calls, under_way),
        Row("calls under way at the cut, not made again", missing, target=at_most(0)),
        Row("calls made again more than once", twice, target=at_most(0)),
        Row("calls made again although their result was captured", captured, target=at_most(0)),
        Row("calls that were still to be made, not made", never, target=at_most(0)),
        check(
            "every result written exactly once",
            written == Counter(range(sizes.records)),
            f"{written.total():,} lines for {sizes.records:,} records",
        ),
    ]


# ---- the child


class Service:
    """Answers after a while, and logs calls and answers at once and for good."""

    def __init__(self, file: Path, seconds: float, seed: int) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._open_calls = 0

    async def wait_busy(self, calls: int) -> None:
        """Return when so many calls are under way."""
        while self._open_calls < calls:  # noqa: ASYNC110 - an event per call would cost more
            await asyncio.sleep(0)

    def log(self, *words: object) -> None:
        """Append a line. A write of this size is not torn by a kill."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    async def call(self, record: tuple[int, str]) -> tuple[int, str]:
        """Take the time, give or take a quarter, so that results come out of order."""
        number, text = record
        self.log("call", number)
        self._open_calls += 1
        try:
            await asyncio.sleep(self._seconds * self._chance.uniform(0.75, 1.25))
        finally:
            self._open_calls -= 1
        self.log("return", number)
        return number, text


async def child(folder: Path, options: str, *, finish: bool) -> None:
    """Run the job; unless `finish`, take checkpoints, and then wait to be killed."""
    calls, seconds, count, checkpoints, seed = json.loads(options)
    service = Service(folder / "calls.log", seconds, seed)
    service.log("start")
    job = sc.Job(
        "outstanding",
        checkpoints=sc.Checkpoints(to=folder / "checkpoints", mode="unaligned"),
        restart=sc.Restart.none(),
    )
    records = [(number, f"{number:0100d}") for number in range(count)]
    answers = job.source(sc.items(records), name="records").map(
        service.call, name="calls", concurrency=calls
    )
    answers.sink(sc.files.json_lines(folder / "out"), name="answers")
    async with job.start() as running:
        if finish:
            print((await running.wait_finished()).restored_from, flush=True)
            return
        running.events.subscribe(lambda event: _log_trigger(service, event))
        await _take_checkpoints(running, service, calls, seconds, checkpoints, folder)


def _log_trigger(service: Service, event: events.Event) -> None:
    if isinstance(event, events.CheckpointTriggered):
        service.log("trigger", event.checkpoint_id)


async def _take_checkpoints(
    running: sc.Running,
    service: Service,
    calls: int,
    seconds: float,
    checkpoints: int,
    folder: Path,
) -> None:
    await asyncio.sleep(seconds)  # some of the first calls have returned: out of order, kept back
    taken = None
    for _ in range(checkpoints):
        await service.wait_busy(calls)
        taken = await running.checkpoint()
        data = os.urandom(taken.state_bytes + taken.in_flight_bytes)
        plain = await asyncio.to_thread(fsync_time, data, folder)
        figures = {
            "barrier": taken.barrier_delay,
            "durable": taken.durable_delay,
            "plain": plain,
            "bytes": len(data),
            "records": taken.in_flight_records,
        }
        print(json.dumps(figures), flush=True)
        await asyncio.sleep(seconds / 10 / checkpoints)
    assert taken is not None
    print(taken.checkpoint_id, flush=True)
    await asyncio.sleep(3600)


SUITE = Suite("outstanding", {"calls": calls}, FULL, QUICK)


if __name__ == "__main__":
    from streamcp.runners.local import run_blocking

    run_blocking(lambda: child(Path(sys.argv[1]), sys.argv[2], finish="finish" in sys.argv[3:]))
