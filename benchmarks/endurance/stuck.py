"""Steps that are stuck or slow: the job goes on, takes checkpoints, stays small, can be stopped."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.endurance.sizes import Sizes
from benchmarks.harness import Child, Row, Run, at_most, check, skipped
from streamcp.config import Mode

CHILD = "benchmarks.endurance.children"
# What an interpreter's memory may grow by itself: caches, fragmentation, freed but not returned.
GROWTH = 12e6

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
