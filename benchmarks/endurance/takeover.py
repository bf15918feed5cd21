"""A process that is stopped, replaced, and continued: it must not do anything any more.

The first copy gets SIGSTOP in the middle of its work. A second one is refused while the first
holds the job, and takes over when told to. Then the first is continued, while the second works.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.endurance.kills import Load, left_over, read_lines, undisturbed
from benchmarks.harness import Child, Row, check
from streamcp.config import Mode

# So many checkpoints each copy completes before it is stopped, or the other one continued.
CHECKPOINTS = 2
# The first copy looks at the log at its next checkpoint: it must end soon after it is continued.
PATIENCE = 30.0
FIRST_ATTEMPT = "1"


async def measure(load: Load, modes: Sequence[Mode], say: Callable[[str], None]) -> list[Row]:
    """Stop, take over, continue, in each mode."""
    say(f"{load.name}, undisturbed")
    expected, _ = await undisturbed(load)
    rows: list[Row] = []
    for mode in modes:
        say(f"{load.name}, {mode}")
        with tempfile.TemporaryDirectory() as folder:
            rows += await _taken_over(load, mode, Path(folder), expected)
    return rows


async def _taken_over(load: Load, mode: Mode, folder: Path, expected: Sequence[bytes]) -> list[Row]:
    name = f"{load.name}, {mode}"
    async with Child(load.command(folder, mode, 2)) as first:
        await _completed(first, CHECKPOINTS)
        os.kill(first.pid, signal.SIGSTOP)
        refused = await _refused(load, mode, folder)
        async with Child(load.command(folder, mode, 3, take_over=True)) as second:
            await _completed(second, CHECKPOINTS)
            os.kill(first.pid, signal.SIGCONT)
            afterwards, code, errors = await _rest_of(first)
            ended = [json.loads(line) for line in await second.lines()]
            second_code = await second.wait()
    completed = [line for line in afterwards if line.get("event") == "CheckpointCompleted"]
    written = read_lines(folder / "out")
    left = [file for file in left_over(folder) if not _of_fenced_copy(file)]
    return [
        check(f"{name}: a copy beside a stopped one is refused, by name", *refused),
        check(
            f"{name}: continued, it ends as fenced",
            code == 1 and "Fenced" in errors,
            f"exit code {code}: {_last_line(errors)}",
        ),
        check(f"{name}: continued, it completes no checkpoint", not completed),
        check(
            f"{name}: output equals the undisturbed output",
            written == expected and second_code == 0 and ended[-1].get("outcome") == "finished",
            f"{len(written):,} of {len(expected):,} lines",
        ),
        check(
            f"{name}: nothing left over, but hidden output of the first copy",
            not left,
            ", ".join(left[:3]),
        ),
    ]


def _of_fenced_copy(file: str) -> bool:
    """A copy that is fenced deletes nothing, not even what it was writing (rule P34)."""
    parts = file.split(".")
    return file.startswith(".") and parts[-1] == "pending" and parts[-3] == FIRST_ATTEMPT


async def _completed(child: Child, count: int) -> None:
    while count:
        count -= json.loads(await child.line()).get("event") == "CheckpointCompleted"


async def _refused(load: Load, mode: Mode, folder: Path) -> tuple[bool, str]:
    """Start without leave to take over."""
    async with Child(load.command(folder, mode, 2)) as child:
        await child.lines()
        code = await child.wait()
        errors = child.errors
    return code == 1 and "another copy" in errors, f"exit code {code}: {_last_line(errors)}"


def _last_line(errors: str) -> str:
    return next(reversed(errors.strip().splitlines()), "nothing was said")


async def _rest_of(child: Child) -> tuple[list[dict[str, Any]], int, str]:
    """Everything that a continued child still says. What it had said before it was stopped, and
    nobody had read, is not told apart: those are events of before."""
    async with asyncio.timeout(PATIENCE):
        lines = [json.loads(line) for line in await child.lines()]
        code = await child.wait()
    return lines, code, child.errors
