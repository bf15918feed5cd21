"""What a job withstands: kill -9, steps that are stuck, slow or failing, damaged files, full disks.

Real processes and real time. Jobs are in `endured`, run as child processes; what is random is
drawn from the seed that is printed, and `--seed` replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import damage, disk, kills, takeover
from benchmarks.harness import Child, Row, Run, Suite, at_most, check, skipped
from streamcp.config import EXACTLY_ONCE_MODES, Mode
from streamcp.coordinator.coordinator import COMMIT_TIME

CHILD = "benchmarks.endured"
# What an interpreter's memory may grow by itself: caches, fragmentation, freed but not returned.
GROWTH = 12e6


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many kills in how many records (of the flights example: none leaves it out); seconds of
    every stuck job, of its stop, and of the sinks' commits in it; records that fail."""

    kills: int
    flight_kills: int
    records: int
    flights: int
    latency: float
    longest_life: float
    stuck_seconds: float
    stop_within: float
    commit_time: float
    failing_records: int
    modes: Sequence[Mode] = EXACTLY_ONCE_MODES


FULL = Sizes(10, 50, 80_000, 120_000, 0.02, 4.0, 120.0, 20.0, COMMIT_TIME, 5_000)
QUICK = Sizes(4, 5, 12_000, 20_000, 0.02, 2.5, 8.0, 20.0, COMMIT_TIME, 1_000)


# ---- kills


async def killed(run: Run[Sizes]) -> Sequence[Row]:
    """Kill -9 at random moments, start again with another parallelism, compare the output."""
    rows: list[Row] = []
    for load in _loads(run.sizes):
        if load.missing:
            rows.append(skipped(load.name, load.missing))
        else:
            rows += await kills.measure(load, run.sizes.modes, run.seed, run.say)
    return rows


async def frozen(run: Run[Sizes]) -> Sequence[Row]:
    """SIGSTOP a job, let a second copy take over, and continue the first."""
    rows: list[Row] = []
    for load in _loads(run.sizes):
        if load.missing:
            rows.append(skipped(load.name, load.missing))
        else:
            rows += await takeover.measure(load, run.sizes.modes, run.say)
    return rows


def _loads(sizes: Sizes) -> list[kills.Load]:
    own = kills.Load("own job", sizes.kills, sizes.longest_life, sizes.latency, sizes.records)
    if not sizes.flights:
        return [own]
    flights = kills.Load(
        "flights",
        sizes.flight_kills,
        sizes.longest_life,
        sizes.latency,
        sizes.flights,
        flights=True,
    )
    return [own, flights]


# ---- stuck

SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "sink never returns": {},
    "staged sink never returns": {},
    "source stops yielding": {"until": 2048},
    "consumer ten times slower for a while": {},
}


async def stuck(run: Run[Sizes]) -> Sequence[Row]:
    """Checkpoints keep completing, memory stays bounded, and stop works. All at the same time:
    these jobs hardly do anything."""
    modes = [mode for mode in run.sizes.modes if mode != "aligned"]
    run.say(f"{len(SCENARIOS) * len(modes)} jobs for {run.sizes.stuck_seconds:g} s")
    cases = [(scenario, mode) for scenario in SCENARIOS for mode in modes]
    results = await asyncio.gather(*(_stuck(run.sizes, *case) for case in cases))
    return [row for rows in results for row in rows]


async def _stuck(sizes: Sizes, scenario: str, mode: Mode) -> list[Row]:
    options = {
        "scenario": scenario,
        "mode": mode,
        "every": "500ms" if sizes.stuck_seconds >= 5 else "50ms",
        "capacity": 200,
        "seconds": sizes.stuck_seconds,
        "stop_within": sizes.stop_within,
        "commit_time": sizes.commit_time,
        **SCENARIOS[scenario],
    }
    with tempfile.TemporaryDirectory() as folder:
        async with Child([CHILD, "stuck", folder, json.dumps(options)]) as child:
            ran = json.loads(await child.line(timeout=sizes.stuck_seconds + 60))
            ended = json.loads(await child.line(timeout=sizes.stop_within + 60))
    return _stuck_rows(f"{scenario}, {mode}", sizes, ran, ended)


def _stuck_rows(
    name: str, sizes: Sizes, ran: Mapping[str, Any], ended: Mapping[str, Any]
) -> list[Row]:
    every = 0.5 if sizes.stuck_seconds >= 5 else 0.05
    failed = ran["failed"]
    return [
        check(
            f"{name}: checkpoints keep completing",
            ran["completed"] >= 2 and ran["longest_gap"] <= 6 * every + 1.0,
            f"{ran['completed']} completed, longest gap {ran['longest_gap']:.2f} s",
        ),
        check(f"{name}: none failed", not failed, f"{len(failed)} failed {failed[:1]}"),
        Row(
            f"{name}: fullest queue, of its capacity",
            ran["fullest"],
            target=at_most(1.0 + 64 / 200),  # a source may overshoot by the outputs of one slice
        ),
        _memory_row(name, ran["memory"]),
        check(
            f"{name}: stop works",
            ended["outcome"] == "stopped",
            f"{ended['outcome']} after {ended['seconds']:.2f} s",
        ),
    ]


def _memory_row(name: str, memory: Sequence[int | None]) -> Row:
    known = [size for size in memory if size is not None]
    if not known:
        return skipped(f"{name}: growth of memory", "only /proc tells the memory of a process")
    # The first third fills queues and caches.
    warm = known[len(known) // 3 :]
    growth = max(warm) - warm[0]
    return Row(
        f"{name}: growth of memory",
        growth / 1e6,
        "MB",
        target=at_most(GROWTH / 1e6),
        detail=f"{warm[0] / 1e6:.0f} → {warm[-1] / 1e6:.0f} MB, at most {max(known) / 1e6:.0f} MB",
    )


# ---- failing


async def failing(run: Run[Sizes]) -> Sequence[Row]:
    """A step that raises at one record, once or always."""
    rows: list[Row] = []
    for mode in run.sizes.modes:
        run.say(mode)
        rows += await _failing(run.sizes, mode, always=False)
    return rows + await _failing(run.sizes, "unaligned", always=True)


async def _failing(sizes: Sizes, mode: Mode, *, always: bool) -> list[Row]:
    n = sizes.failing_records
    options = {"records": n, "at": n // 2, "always": always, "mode": mode}
    with tempfile.TemporaryDirectory() as folder:
        async with Child([CHILD, "failing", folder, json.dumps(options)]) as child:
            lines = [json.loads(line) for line in await child.lines()]
            await child.wait()
        written = sorted(int(line) for line in kills.read_lines(Path(folder) / "out"))
    if not lines:
        return [check(f"failing step, {mode}: ran", False, child.errors[-500:])]
    restored = sum(line["event"] == "JobRestored" for line in lines)
    ended = lines[-1]
    if always:
        error = ended.get("error", "")
        return [
            check("failing always: gives up", ended["outcome"] == "failed", error),
            check("failing always: tried as often as allowed", restored == 3, f"{restored} times"),
            check(
                "failing always: the error names the step, the file and the record",
                all(part in error for part in ("explode", "endured.py", str(n // 2))),
            ),
        ]
    return [
        check(
            f"failing once, {mode}: restarted and finished",
            ended.get("outcome") == "finished" and ended.get("attempts") == 2 and restored == 1,
            json.dumps(ended),
        ),
        check(f"failing once, {mode}: every record once", written == list(range(n))),
    ]


async def damaged(run: Run[Sizes]) -> Sequence[Row]:
    """Truncate, change or delete each file of the newest checkpoint, and start again."""
    return await damage.measure(run.say)


async def short_of_disk(run: Run[Sizes]) -> Sequence[Row]:
    """Disk full, or writing forbidden: checkpoints fail by name, the job goes on."""
    return await disk.measure(run.say)


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endurance")
    group.add_argument("--stuck-seconds", type=float, help="how long each stuck job runs")
    group.add_argument("--kills", type=int, help="how often each job is killed")


def _resize(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    if options.stuck_seconds is not None:
        sizes = dataclasses.replace(sizes, stuck_seconds=options.stuck_seconds)
    if options.kills is not None:
        records = max(sizes.records, sizes.records * options.kills // sizes.kills)
        sizes = dataclasses.replace(
            sizes, kills=options.kills, flight_kills=options.kills, records=records
        )
    return sizes


SUITE = Suite(
    "endurance",
    {
        "kills": killed,
        "frozen": frozen,
        "stuck": stuck,
        "failing": failing,
        "damage": damaged,
        "disk": short_of_disk,
    },
    FULL,
    QUICK,
    _add_options,
    _resize,
    needs_loop=False,
)
