"""What a job withstands: kill -9, steps that are stuck, slow or failing, damaged files, full disks.

Real processes and real time. Jobs are in `endured`, run as child processes; what is random is
drawn from the seed that is printed, and `--seed` replays it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import damage, disk
from benchmarks.children import Child
from benchmarks.harness import Row, Run, Suite, at_most, check, main, skipped
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
    records: int
    flights: int
    latency: float
    longest_life: float
    stuck_seconds: float
    stop_within: float
    commit_time: float
    failing_records: int
    modes: Sequence[Mode] = EXACTLY_ONCE_MODES


FULL = Sizes(10, 80_000, 120_000, 0.02, 4.0, 120.0, 20.0, COMMIT_TIME, 5_000)
QUICK = Sizes(4, 12_000, 20_000, 0.02, 2.5, 8.0, 20.0, COMMIT_TIME, 1_000)


# ---- kills


@dataclass(frozen=True, slots=True)
class Killed:
    """What was seen of a job that was killed and started again until it ended."""

    kills: int
    restarts: int
    restarts_that_said: int
    replayed: tuple[int, ...]
    outcome: str


async def kills(run: Run[Sizes]) -> Sequence[Row]:
    """Kill -9 at random moments, start again by the same command, compare the output."""
    rows: list[Row] = []
    jobs = [("own job", {"records": run.sizes.records})]
    if run.sizes.flights and _has_flights():
        jobs.append(("flights", {"records": run.sizes.flights, "flights": True}))
    elif run.sizes.flights:
        rows.append(skipped("flights", 'needs pip install "streamcp[examples]"'))
    for job, options in jobs:
        with tempfile.TemporaryDirectory() as folder:
            run.say(f"{job}, undisturbed")
            undisturbed = _options(run.sizes, "unaligned", options | {"latency": 0.001})
            started = time.monotonic()
            async with Child([CHILD, "killed", folder, undisturbed]) as child:
                await child.line()
                longest_life = time.monotonic() - started + run.sizes.longest_life
                await child.lines()
            expected = read_lines(Path(folder) / "out")
        for mode in run.sizes.modes:
            rows += await _kill(run, job, mode, options, expected, longest_life)
    return rows


async def _kill(
    run: Run[Sizes],
    job: str,
    mode: Mode,
    options: Mapping[str, Any],
    expected: Sequence[bytes],
    longest_life: float,
) -> list[Row]:
    name = f"{job}, {mode}"
    chance = random.Random(f"{run.seed} {name}")
    with tempfile.TemporaryDirectory() as folder:
        command = [CHILD, "killed", folder, _options(run.sizes, mode, options)]
        killed = await _kill_until_done(run, name, command, chance, longest_life)
        written = read_lines(Path(folder) / "out")
        left = _left_over(Path(folder))
    return [
        check(
            f"{name}: killed as often as wanted",
            killed.kills == run.sizes.kills,
            f"{killed.kills} kills within {longest_life:.2f} s after each start",
        ),
        check(
            f"{name}: output after {killed.kills} kills equals the undisturbed output",
            written == expected and killed.outcome == "finished",
            f"{len(written):,} of {len(expected):,} lines; {killed.outcome}",
        ),
        check(f"{name}: nothing left over", not left, ", ".join(left[:3])),
        _restarts_row(name, killed),
    ]


def _restarts_row(name: str, killed: Killed) -> Row:
    name = f"{name}: every restart said which checkpoint and how many in-flight records"
    if not killed.restarts:
        return skipped(name, "no kill came after a checkpoint was complete")
    return check(
        name,
        killed.restarts_that_said == killed.restarts,
        f"{killed.restarts} restarts with a checkpoint; replayed {_spread(killed.replayed)}",
    )


async def _kill_until_done(
    run: Run[Sizes],
    name: str,
    command: Sequence[str],
    chance: random.Random,
    longest_life: float,
) -> Killed:
    """Start, kill at a random moment (the start-up included), start again; at last let it end."""
    restarts = said = count = 0
    replayed: list[int] = []
    complete = False  # some checkpoint is known to be complete: a restart must tell of it
    for number in itertools.count():
        run.say(f"{name}, {count} kills")
        async with Child(command) as child:
            if number < run.sizes.kills:
                await asyncio.sleep(chance.uniform(0.0, longest_life))
                child.kill()
            lines = [json.loads(line) for line in await child.lines() if line.endswith("}")]
            code = await child.wait()
            errors = child.errors
        restored = [line for line in lines if line.get("event") == "JobRestored"]
        if complete and any(line.get("event") in ("JobRestored", "JobStarted") for line in lines):
            restarts += 1
            said += len(restored)
        replayed += [line["in_flight_records"] for line in restored]
        complete = complete or any(line.get("event") == "CheckpointCompleted" for line in lines)
        if code == -9:
            count += 1
            continue
        ended = [line["outcome"] for line in lines if line.get("event") == "ended"]
        outcome = ended[0] if ended else f"exit code {code}: {errors[-500:]}"
        if outcome == "already_finished":
            outcome = "finished"
        return Killed(count, restarts, said, tuple(replayed), outcome)
    raise AssertionError


def _options(sizes: Sizes, mode: Mode, options: Mapping[str, Any]) -> str:
    base = {"mode": mode, "every": "150ms", "latency": sizes.latency, "concurrency": 50}
    return json.dumps(base | dict(options))


def _has_flights() -> bool:
    try:
        import aiohttp  # noqa: F401

        from streamcp.examples.nycflights import data_file

        data_file("flights.csv.zip")
    except Exception:  # whatever an extra that is not installed, or only half, raises
        return False
    return True


def read_lines(folder: Path) -> list[bytes]:
    """All lines of the final output files, sorted."""
    return sorted(
        line for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()
    )


def _left_over(folder: Path) -> list[str]:
    """Files that should not be there once the job has ended."""
    left = [file.name for file in (folder / "out").iterdir() if not file.name.endswith(".jsonl")]
    left += [file.name for file in (folder / "out").glob(".*")]
    checkpoints = [file for file in (folder / "checkpoints").rglob("*") if file.is_file()]
    return left + [file.name for file in checkpoints if file.name.startswith((".", "tmp"))]


def _spread(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none"
    return f"{min(numbers):,} … {max(numbers):,} (median {statistics.median(numbers):,.0f})"


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
        written = sorted(int(line) for line in read_lines(Path(folder) / "out"))
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
        sizes = dataclasses.replace(sizes, kills=options.kills, records=records)
    return sizes


SUITE = Suite(
    "endurance",
    {
        "kills": kills,
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

if __name__ == "__main__":
    sys.exit(main([SUITE]))
