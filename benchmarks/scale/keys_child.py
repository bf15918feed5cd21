"""The process of one number of keys: `python -m benchmarks.scale.keys_child KEYS RECORDS SEED`.

It says "ready" when every key is there. For each line that it reads it works off one window with
the job and one with the loop, and writes the nanoseconds per record of both.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time

from benchmarks.scale.feed import Feed, count_by_hand, counting_job
from streamcp.runners.local import run_blocking

PARALLELISM = 4


def divided(order: list[int]) -> list[list[int]]:
    """The keys of each split."""
    return [order[split::PARALLELISM] for split in range(PARALLELISM)]


async def measure(count: int, records: int, seed: int) -> None:
    """Make all keys, then windows as they are asked for. Keys come in another order than they were
    made in: what was made together lies together."""
    order = list(range(count))
    splits = divided(order)  # not at each window: to divide a million keys takes its time
    feed, counts = Feed(lambda split: splits[split], PARALLELISM), dict[int, int]()
    async with counting_job(feed, PARALLELISM).start():
        await feed.give(count)
        count_by_hand(order, counts)
        random.Random(seed).shuffle(order)
        splits[:] = divided(order)
        coming = itertools.cycle(order)
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            window = list(itertools.islice(coming, records))
            started = time.process_time()
            await feed.give(records)
            between = time.process_time()
            count_by_hand(window, counts)
            ended = time.process_time()
            print((between - started) / records * 1e9, (ended - between) / records * 1e9)
            sys.stdout.flush()


if __name__ == "__main__":
    count, records, seed = map(int, sys.argv[1:])
    run_blocking(lambda: measure(count, records, seed))
