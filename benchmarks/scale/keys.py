"""Does a record cost the same, however many keys there are?

A running count behind an exchange, of keys that are drawn at random, and beside it a loop that
counts the same keys in a plain dict: with 10^6 keys hardly anything that either touches is in the
processor's caches, which no engine can help. So two factors are shown: how much longer a record
takes than with the fewest keys, and how much longer than the loop's own factor explains.

Each number of keys has a process of its own (see `keys_child`), since the objects of one would lie
between those of another. The processes take turns; processor time is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.harness import Child, Row, Run, Suite
from benchmarks.scale.factors import Costs, cost_row, factor_rows


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, windows per number of keys, and the numbers; the first is the base."""

    records: int
    rounds: int
    keys: tuple[int, ...]


FULL = Sizes(400_000, 21, (1_000, 10_000, 100_000, 1_000_000))
QUICK = Sizes(100_000, 7, (1_000, 100_000))


async def keys(run: Run[Sizes]) -> Sequence[Row]:
    """Does a record cost the same, however many keys there are?"""
    costs = {count: Costs() for count in run.sizes.keys}
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
    own = costs[count]
    row = cost_row(f"{count:,} keys", own, "loop with a dict")
    if count == first:
        return [row]
    name = f"time per record with {count:,} keys / with {first:,}"
    return [row, *factor_rows(name, own, costs[first])]


SUITE = Suite("keys", {"keys": keys}, FULL, QUICK)
