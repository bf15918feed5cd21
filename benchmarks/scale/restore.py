"""How long a job takes to be back, beside reading the same content with pickle.

A checkpoint of a million accounts and a hundred thousand records on their way is made once. Then
two processes take turns, each of them fresh: one starts the job, from the start of the restore
until its first source is asked for records; the other reads a file with the same accounts in a dict
and the same records in a list by `pickle.load` (protocol 5), which does nothing for safety and
makes no state of it. Both files lie in the same folder, and in the page cache.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Child, Row, Run, Seconds, Suite, at_most, median_row, paired


@dataclass(frozen=True, slots=True)
class Sizes:
    """Keys, records on their way, and how often it is restored."""

    keys: int
    in_flight: int
    rounds: int


FULL = Sizes(1_000_000, 100_000, 9)
QUICK = Sizes(50_000, 5_000, 3)


async def restore(run: Run[Sizes]) -> Sequence[Row]:
    """How long is a job with a million keys not back, beside unpickling the same content?"""
    sizes = run.sizes
    with tempfile.TemporaryDirectory() as folder:

        async def child(what: str) -> Seconds:
            run.say(what)
            options = [what, folder, str(sizes.keys), str(sizes.in_flight)]
            async with Child(["benchmarks.scale.restore_child", *options]) as process:
                clock, processor = map(float, (await process.line(600)).split())
                return Seconds(clock, processor)

        await child("make")
        pairs = await paired(lambda: child("read"), lambda: child("restore"), sizes.rounds)
    read = statistics.median(one.clock for one, _ in pairs)
    restored = statistics.median(one.clock for _, one in pairs)
    detail = (
        f"{sizes.keys:,} keys, {sizes.in_flight:,} records: {restored:.2f} s; pickle {read:.2f} s"
    )
    name = "restore until the job runs / unpickling the same"
    return [
        median_row(
            name, [b.clock / a.clock for a, b in pairs], "×", target=at_most(2.0), detail=detail
        ),
        median_row(
            f"{name}, of processor time", [b.processor / a.processor for a, b in pairs], "×"
        ),
    ]


SUITE = Suite("restore", {"start": restore}, FULL, QUICK)
