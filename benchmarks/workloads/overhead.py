"""W12: what checkpoints cost a job in which nothing waits.

Source → key_by → count → sink, four subtasks each, in all of one core: what checkpoints take,
records lose. 256 records per channel keep it busy, and are worked off in a hundredth of a second:
with many more the core would be a bottleneck behind long queues, and adaptive checkpoints
unaligned.

Windows with and without checkpoints take turns in one job: short ones, for a shared machine drifts
by more than checkpoints cost within a second. A window has time for a few checkpoints, and each of
them lies in it as a whole. At an interval of a second the cost is less than any machine drifts: it
is calculated from that of ten a second.

Flink lost 7.6 % to unaligned checkpoints every 100 ms (`remoteRebalance`, error bars overlap).
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import streamcp as sc
from benchmarks.harness import (
    Row,
    Run,
    Suite,
    Target,
    at_most,
    in_fresh_process,
    median_row,
    paired,
    ratio_of_medians,
    timed,
)
from benchmarks.workloads.saturation import JOB, channel_records, end_at_once
from benchmarks.workloads.topology import Record, records
from streamcp.config import Mode
from streamcp.storage.reading import StoredJob

PARALLELISM = 4
CAPACITY = 256
KEYS = 1000
MODES: tuple[Mode, ...] = ("adaptive", "aligned", "unaligned")
EVERY = "100ms"
BEAT = 0.1  # the same in seconds
LIMIT = 8.0  # per cent of the throughput
SELDOM: Mapping[str, float] = {"1s": 0.1, "10s": 0.01}  # as a share of those
LIMIT_SELDOM = 2.0
NOISE = Target(0.98, 1.02)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per process and mode: pairs of windows, without and with checkpoints; seconds before the
    first one; and how many checkpoints a window has time for."""

    processes: int
    warm_up: float
    pairs: int
    beats: int


FULL = Sizes(processes=3, warm_up=1.0, pairs=25, beats=3)
QUICK = Sizes(processes=1, warm_up=0.3, pairs=2, beats=3)


async def overhead(run: Run[Sizes]) -> Sequence[Row]:
    """What does a checkpoint every 100 ms, 1 s or 10 s cost where nothing waits, in each mode?"""
    windows: list[dict[str, Any]] = []
    for process in range(run.sizes.processes):
        run.say(f"process {process + 1} of {run.sizes.processes}")
        modes = MODES if process % 2 == 0 else MODES[::-1]
        spec = {"modes": modes} | asdict(run.sizes)
        taken = await in_fresh_process(take_windows, spec)
        windows += [window | {"process": process} for window in taken]
    run.keep("windows", windows)
    rows = [row for mode in MODES for row in _lost_rows(_of(windows, mode), mode)]
    rows += [_seldom_row(_of(windows, mode), mode, every) for mode in MODES for every in SELDOM]
    return rows + _switched_off_rows(windows)


def _of(windows: Sequence[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    return [one for one in windows if one["mode"] == mode]


def _lost_rows(windows: Sequence[dict[str, Any]], mode: str) -> list[Row]:
    rate = 1e6 / statistics.median(one["without"]["clock"] for one in windows)
    name = f"throughput lost to a checkpoint every {EVERY}, {mode}"
    completed = sum(one["completed"] for one in windows)
    detail = f"{rate:,.0f} records/s without; {completed} checkpoints completed"
    return [
        median_row(name, _lost(windows, "clock"), "%", target=at_most(LIMIT), detail=detail),
        median_row(f"{name}, of processor time", _lost(windows, "processor"), "%"),
    ]


def _lost(windows: Sequence[dict[str, Any]], of: str) -> list[float]:
    return [(1 - one["without"][of] / one["with"][of]) * 100 for one in windows]


def _seldom_row(windows: Sequence[dict[str, Any]], mode: str, every: str) -> Row:
    lost = [value * SELDOM[every] for value in _lost(windows, "clock")]
    return median_row(
        f"throughput lost to a checkpoint every {every}, {mode}",
        lost,
        "%",
        target=at_most(LIMIT_SELDOM),
        detail=f"calculated: what those every {EVERY} cost, {SELDOM[every]:g} times as often",
    )


def _switched_off_rows(windows: Sequence[dict[str, Any]]) -> list[Row]:
    """Adaptive that never has to escalate is aligned."""
    beside = {
        mode: [one["with"]["processor"] / one["without"]["processor"] for one in _of(windows, mode)]
        for mode in MODES
    }
    adaptive = [one for one in windows if one["mode"] == "adaptive"]
    return [
        ratio_of_medians(
            f"time per record with adaptive / aligned checkpoints every {EVERY}, of processor time",
            beside["adaptive"],
            beside["aligned"],
            target=NOISE,
            detail="each by the windows without checkpoints beside it",
        ),
        Row(
            "adaptive checkpoints that were escalated",
            sum(one["escalated"] for one in adaptive),
            target=at_most(0),
            detail=f"of {sum(one['completed'] for one in adaptive)}",
        ),
        Row(
            "records captured of channels by adaptive checkpoints",
            sum(one["channel_records"] for one in adaptive),
            target=at_most(0),
            detail=f"of the {sum(one['looked_at'] for one in adaptive)} that were kept",
        ),
    ]


# ---- the cell


class Counted:
    """A sink that counts, for all its subtasks."""

    def __init__(self) -> None:
        self.records = 0

    async def write(self, records: Sequence[object], /) -> None:
        self.records += len(records)


def key_of(record: Record) -> int:
    return record[0] % KEYS


async def take_windows(spec: Any) -> list[dict[str, Any]]:
    """Make pairs of windows, in one mode after the other."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Counted()
        job = sc.Job(
            JOB,
            checkpoints=sc.Checkpoints(to=folder),
            parallelism=PARALLELISM,
            channel_capacity=CAPACITY,
        )
        stream = job.source(records(PARALLELISM, 100), name="records").key_by(key_of)
        stream.count(name="count").sink(lambda: counted, name="sink")
        windows: list[dict[str, Any]] = []
        async with end_at_once(job) as running:
            await asyncio.sleep(spec["warm_up"])
            running.set_interval(None)
            job_of = _Windows(running, counted, Path(folder))
            for mode in spec["modes"]:
                running.set_mode(mode)
                windows += await job_of.take(mode, spec["beats"], spec["pairs"])
        return windows


class _Windows:
    """Measures pairs of windows of a running job."""

    def __init__(self, running: sc.Running, counted: Counted, folder: Path) -> None:
        self._running = running
        self._counted = counted
        self._folder = folder
        self._seen = 0

    async def take(self, mode: Mode, beats: int, pairs: int) -> list[dict[str, Any]]:
        taken = await paired(lambda: self._without(beats), lambda: self._with(beats), pairs)
        return [{"mode": mode, "without": without} | with_ for without, with_ in taken]

    async def _without(self, beats: int) -> dict[str, float]:
        return await self._window(lambda: asyncio.sleep(beats * BEAT))

    async def _with(self, beats: int) -> dict[str, Any]:
        """A checkpoint at each beat; they are looked at behind the window."""

        async def checkpoints() -> None:
            for _ in range(beats):
                await asyncio.gather(asyncio.sleep(BEAT), self._running.checkpoint())

        return {"with": await self._window(checkpoints)} | self._checkpoints()

    async def _window(self, pause: Callable[[], Awaitable[object]]) -> dict[str, float]:
        """Seconds per million records meanwhile."""
        before = self._counted.records
        took = await timed(pause)
        millions = (self._counted.records - before) / 1e6
        return {"clock": took.clock / millions, "processor": took.processor / millions}

    def _checkpoints(self) -> dict[str, Any]:
        taken = self._running.view().checkpoints
        new = [one for one in taken if one.checkpoint_id > self._seen]
        self._seen = max((one.checkpoint_id for one in new), default=self._seen)
        stored = StoredJob(self._folder / JOB)
        kept = {one.checkpoint_id for one in stored.completed()}
        manifests = [
            stored.load_manifest(one.checkpoint_id) for one in new if one.checkpoint_id in kept
        ]
        return {
            "completed": sum(one.outcome == "completed" for one in new),
            "escalated": sum(one.escalated_after is not None for one in new),
            "looked_at": len(manifests),
            "channel_records": sum(map(channel_records, manifests)),
            "durable_delays": [one.durable_delay for one in new],
            "state_bytes": [one.state_bytes for one in new],
        }


SUITE = Suite("overhead", {"overhead": overhead}, FULL, QUICK)
