"""Does a record cost the same, however many keys there are?

A running count behind an exchange, of keys that are drawn at random, and beside it a loop that
counts the same keys in a plain dict: with 10^6 keys hardly anything that either touches is in the
processor's caches, which no engine can help. So two factors are shown: how much longer a record
takes than with the fewest keys, and how much longer than the loop's own factor explains.

Each number of keys has a process of its own (see `keys_child`), since the objects of one would lie
between those of another. The processes take turns; processor time is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.harness import Child, Row, Run, Suite, at_most, median_row


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, windows per number of keys, and the numbers; the first is the base."""

    records: int
    rounds: int
    keys: tuple[int, ...]


FULL = Sizes(400_000, 21, (1_000, 10_000, 100_000, 1_000_000))
QUICK = Sizes(100_000, 7, (1_000, 100_000))


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds of the processor per record, window by window."""

    job: list[float]
    loop: list[float]


async def keys(run: Run[Sizes]) -> Sequence[Row]:
    """Does a record cost the same, however many keys there are?"""
    costs = {count: Costs([], []) for count in run.sizes.keys}
    async with AsyncExitStack() as stack:
        children: dict[int, Child] = {}
        for count in run.sizes.keys:
            run.say(f"{count:,} keys are made")
            options = [str(count), str(run.sizes.records), str(run.seed)]
            child = Child(["benchmarks.scale.keys_child", *options])
            children[count] = await stack.enter_async_context(child)
            await child.line()
        for number in range(-1, run.sizes.rounds):
            run.say(f"round {number + 1} of {run.sizes.rounds}")
            for count, child in children.items():
                await child.tell()
                job, loop = map(float, (await child.line()).split())
                if number >= 0:  # the first round only warms up
                    costs[count].job.append(job)
                    costs[count].loop.append(loop)
    return [row for count in costs for row in _rows(count, costs)]


def _rows(count: int, costs: dict[int, Costs]) -> list[Row]:
    first = min(costs)
    own, base = costs[count], costs[first]
    rows = [
        median_row(
            f"processor time per record, {count:,} keys",
            own.job,
            "ns",
            detail=f"loop with a dict: {statistics.median(own.loop):,.0f} ns",
        )
    ]
    if count == first:
        return rows
    raw = [a / b for a, b in zip(own.job, base.job, strict=True)]
    bare = [a / b for a, b in zip(own.loop, base.loop, strict=True)]
    name = f"time per record with {count:,} keys / with {first:,}"
    return [
        *rows,
        median_row(
            name,
            raw,
            "×",
            target=at_most(1.5),
            detail=f"the loop's own factor is {statistics.median(bare):.2f}",
        ),
        median_row(
            f"{name}, beside the loop's own factor",
            [a / b for a, b in zip(raw, bare, strict=True)],
            "×",
            target=at_most(1.5),
        ),
    ]


SUITE = Suite("keys", {"keys": keys}, FULL, QUICK)
