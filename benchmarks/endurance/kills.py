"""A job that is killed with -9 again and again, and started again with another parallelism.

Its output, once it has ended, must be that of an undisturbed run, line by line. The jobs are in
`children`; the moments of the kills are drawn from the seed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Child, Row, check, skipped
from streamcp.config import Mode

CHILD = "benchmarks.endurance.children"
PARALLELISM = (1, 2, 3)
EVERY = "150ms"
CONCURRENCY = 50


@dataclass(frozen=True, slots=True)
class Load:
    """A job and its input; a call of its coroutine step takes `latency` seconds."""

    name: str
    kills: int
    latency: float
    records: int
    flights: bool = False

    @property
    def longest_life(self) -> float:
        """Seconds between a start's first sign and its kill, at most: not all calls can be made
        before the last kill, however fast the machine is."""
        return self.records * self.latency / CONCURRENCY / max(1, self.kills)

    @property
    def missing(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        if self.flights and not _has_flights():
            return 'needs pip install "streamcp[examples]"'
        return None

    def command(self, folder: Path, mode: Mode, parallelism: int, **more: object) -> list[str]:
        """What starts it; the same job, whatever the parallelism."""
        options = {
            "mode": mode,
            "every": EVERY,
            "latency": self.latency,
            "concurrency": CONCURRENCY,
            "records": self.records,
            "flights": self.flights,
            "parallelism": parallelism,
        }
        return [CHILD, "killed", str(folder), json.dumps(options | more)]


@dataclass(frozen=True, slots=True)
class Killed:
    """What was seen of a job that was killed and started again until it ended."""

    kills: int
    restarts: int
    restarts_that_said: int
    replayed: tuple[int, ...]
    outcome: str


async def measure(
    load: Load, modes: Sequence[Mode], seed: int, say: Callable[[str], None]
) -> list[Row]:
    """Kill the job as often as wanted, in each mode."""
    say(f"{load.name}, undisturbed")
    expected, start = await undisturbed(load)
    rows: list[Row] = []
    for mode in modes:
        rows += await _kill(load, mode, expected, start + load.longest_life, seed, say)
    return rows


async def undisturbed(load: Load) -> tuple[list[bytes], float]:
    """Run to the end; return the output, and the seconds until the first sign of life."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        command = load.command(Path(folder), "unaligned", 2, latency=0.001)
        async with Child(command) as child:
            await child.line()
            start = time.monotonic() - started
            await child.lines()
        return read_lines(Path(folder) / "out"), start


async def _kill(
    load: Load,
    mode: Mode,
    expected: Sequence[bytes],
    longest_life: float,
    seed: int,
    say: Callable[[str], None],
) -> list[Row]:
    name = f"{load.name}, {mode}"
    chance = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory() as folder:
        killed = await _kill_until_done(load, mode, Path(folder), chance, longest_life, say)
        written = read_lines(Path(folder) / "out")
        left = left_over(Path(folder))
    return [
        check(
            f"{name}: killed as often as wanted",
            killed.kills == load.kills,
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
    load: Load,
    mode: Mode,
    folder: Path,
    chance: random.Random,
    longest_life: float,
    say: Callable[[str], None],
) -> Killed:
    """Start, kill at a random moment (the start-up included), start again; at last let it end."""
    restarts = said = count = 0
    replayed: list[int] = []
    complete = False  # some checkpoint is known to be complete: a restart must tell of it
    for number in itertools.count():
        say(f"{load.name}, {mode}, {count} kills")
        async with Child(load.command(folder, mode, chance.choice(PARALLELISM))) as child:
            if number < load.kills:
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


def left_over(folder: Path) -> list[str]:
    """Files that should not be there once the job has ended."""
    left = [file.name for file in (folder / "out").iterdir() if not file.name.endswith(".jsonl")]
    left += [file.name for file in (folder / "out").glob(".*")]
    checkpoints = [file for file in (folder / "checkpoints").rglob("*") if file.is_file()]
    return left + [file.name for file in checkpoints if file.name.startswith((".", "tmp"))]


def _spread(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none"
    return f"{min(numbers):,} … {max(numbers):,} (median {statistics.median(numbers):,.0f})"
