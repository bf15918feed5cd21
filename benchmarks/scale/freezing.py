"""What a checkpoint of a million keys costs those who go on working.

Taking a snapshot takes no time; then every key's state is turned into bytes, in slices between
those of the work, and whoever touches a key before its turn keeps its old value. Shown are

- the pause: what statistics call `sync`, and how long a ticker of a millisecond waits for its turn
  in an idle job, beyond what it waits without a checkpoint;
- the throughput that is lost while it goes on, of a job that updates keys as fast as it can: drawn
  from all keys, which is the worst (nearly every update is the first one of its key), and from one
  key in a hundred;
- what that is on average at a checkpoint per ten seconds and per second.

One job in a fresh process (`freezing_child`). Throughput is records per second of the processor.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Child, Row, Run, Suite, at_most, median_row


@dataclass(frozen=True, slots=True)
class Sizes:
    """Keys; checkpoints that are taken of an idle job, and of each of two busy ones; seconds
    without a checkpoint, before and behind each."""

    keys: int
    idle: int
    busy: int
    window: float = 1.0


FULL = Sizes(1_000_000, 9, 6)
QUICK = Sizes(50_000, 7, 6)


async def freezing(run: Run[Sizes]) -> Sequence[Row]:
    """What does a checkpoint of a million keys cost those who go on working?"""
    sizes = run.sizes
    options = [str(sizes.keys), str(run.seed), str(sizes.window)]
    async with Child(["benchmarks.scale.freezing_child", *options]) as child:
        run.say(f"{sizes.keys:,} keys are made")
        await child.line(600)
        idle = await _ask(run, child, "idle", sizes.idle)
        everywhere = await _ask(run, child, "all", sizes.busy)
        few = await _ask(run, child, "few", sizes.busy)
    return [
        *_pauses(idle),
        *_losses("keys drawn from all", everywhere),
        *_losses("from one in a hundred", few),
    ]


async def _ask(run: Run[Sizes], child: Child, kind: str, count: int) -> list[dict[str, Any]]:
    answers = []
    for number in range(count):
        run.say(f"{kind}: checkpoint {number + 1} of {count}")
        await child.tell(kind)
        answers.append(json.loads(await child.line(600)))
    return answers


def _pauses(taken: Sequence[dict[str, Any]]) -> list[Row]:
    quiet = statistics.median(one["gap_without"] for one in taken) * 1000
    return [
        median_row("sync", [one["sync"] * 1000 for one in taken], "ms", target=at_most(2.0)),
        median_row(
            "longest wait of a ticker, beyond that without a checkpoint",
            [max(0.0, one["gap"] * 1000 - quiet) for one in taken],
            "ms",
            target=at_most(2.0),
            detail=f"without: {quiet:.2f} ms; idle job",
        ),
        median_row(
            "processor time of a checkpoint per key, idle job",
            [one["processor"] / one["keys"] * 1e6 for one in taken],
            "µs",
            detail=f"durable after {statistics.median(one['durable'] for one in taken):.2f} s, "
            f"{taken[0]['bytes'] / 1e6:.0f} MB",
        ),
    ]


def _losses(name: str, taken: Sequence[dict[str, Any]]) -> list[Row]:
    cost = [one["extra"] for one in taken]
    durable = statistics.median(one["durable"] for one in taken)
    return [
        median_row(
            f"throughput lost while it goes on, {name}",
            [one["lost"] * 100 for one in taken],
            "%",
            target=at_most(10.0),
            detail=f"durable after {durable:.2f} s",
        ),
        median_row(
            f"on average, at one every 10 s, {name}",
            [one * 10 for one in cost],
            "%",
            detail=f"{statistics.median(cost):.2f} s of the processor each; at one every second "
            f"{min(1.0, statistics.median(cost)):.0%}",
        ),
    ]


SUITE = Suite("freezing", {"checkpoint": freezing}, FULL, QUICK)
