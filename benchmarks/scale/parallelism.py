"""Does a record cost the same, however many subtasks there are?

One job: sources → exchange by key → running count → sink, every step with as many subtasks as the
row says, so that the exchange has as many channels as their square. All in one process: more
subtasks can make nothing faster, and shall make nothing slower. Processor time is judged.

Beside it a loop that deals as many senders' records out to as many receivers, by plain lists:
a processor's caches do not hold what 64 senders and 64 receivers touch in turn, which
no engine can help. So two factors are shown: how much longer a record takes than without an
exchange, and how much longer than the loop's own factor explains.

The jobs run beside each other and take turns: one works off a window of records while the others
wait. Before anything is measured every sender has seen every key.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.harness import Row, Run, Suite, timed
from benchmarks.scale.factors import Costs, cost_row, factor_rows
from benchmarks.scale.feed import BATCH, Feed, count_by_hand, counting_job, same

KEYS = 10_000
STRIDE = 7919  # a prime: keys that come one after the other are far apart


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, windows per parallelism, and the parallelisms; the first is the base."""

    records: int
    rounds: int
    parallelisms: tuple[int, ...]


FULL = Sizes(256 * 1024, 21, (1, 2, 4, 16, 64))
QUICK = Sizes(64 * 1024, 7, (1, 16))


@functools.cache
def keys_of(split: int) -> list[int]:
    """All keys once, in an order in which neighbours are far apart, each split from another on.
    Made once: a feed asks before each window."""
    return [(number + 157 * split) * STRIDE % KEYS for number in range(KEYS)]


class Loop:
    """Does by hand what a job with so many subtasks does: senders deal their records out, then
    receivers count; a single one counts what it reads."""

    def __init__(self, subtasks: int) -> None:
        self._keys = [keys_of(number) for number in range(subtasks)]
        self._dealt: list[list[list[int]]] = [
            [[] for _ in range(subtasks)] for _ in range(subtasks)
        ]
        self._receiver = {key: key % subtasks for key in range(KEYS)}
        self._counts: list[dict[int, int]] = [{} for _ in range(subtasks)]
        self._at = 0

    async def window(self, records: int) -> None:
        """Work a window off, an equal share of each sender."""
        share = records // len(self._keys)
        for keys, dealt in zip(self._keys, self._dealt, strict=True):
            for start in range(self._at, self._at + share, BATCH):
                end = min(start + BATCH, self._at + share)
                self._send([keys[place % KEYS] for place in range(start, end)], dealt)
        self._at = (self._at + share) % KEYS
        for receiver, counts in enumerate(self._counts):
            for dealt in self._dealt:
                count_by_hand(dealt[receiver], counts)
                dealt[receiver].clear()

    def _send(self, batch: list[int], dealt: list[list[int]]) -> None:
        if len(dealt) == 1:
            count_by_hand(batch, self._counts[0])
            return
        receiver = self._receiver
        for key in batch:
            dealt[receiver[same(key)]].append(key)


async def subtasks(run: Run[Sizes]) -> Sequence[Row]:
    """Does a record cost the same, however many parallel subtasks there are?"""
    costs = {p: Costs() for p in run.sizes.parallelisms}
    loops = {p: Loop(p) for p in costs}
    async with AsyncExitStack() as stack:
        feeds: dict[int, Feed] = {}
        for parallelism, loop in loops.items():
            run.say(f"{parallelism} subtasks see all keys")
            feed = feeds[parallelism] = Feed(keys_of, parallelism)
            await stack.enter_async_context(counting_job(feed, parallelism).start())
            await feed.give(KEYS * parallelism)
            await loop.window(KEYS * parallelism)
        for number in range(-1, run.sizes.rounds):
            run.say(f"round {number + 1} of {run.sizes.rounds}")
            for parallelism, feed in feeds.items():
                job = await timed(functools.partial(feed.give, run.sizes.records))
                by_hand = await timed(
                    functools.partial(loops[parallelism].window, run.sizes.records)
                )
                if number >= 0:  # the first round only warms up
                    own = costs[parallelism]
                    own.job.append(job.processor / run.sizes.records * 1e9)
                    own.loop.append(by_hand.processor / run.sizes.records * 1e9)
    return [row for p in costs for row in _rows(p, costs)]


def _rows(parallelism: int, costs: dict[int, Costs]) -> list[Row]:
    first = min(costs)
    own = costs[parallelism]
    row = cost_row(f"parallelism {parallelism}", own, "loop with lists and dicts")
    if parallelism == first:
        return [row]
    name = f"time per record at parallelism {parallelism} / {first}"
    return [row, *factor_rows(name, own, costs[first])]


SUITE = Suite("parallelism", {"subtasks": subtasks}, FULL, QUICK)
