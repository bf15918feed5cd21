"""What a key and an idle channel take of the memory.

The difference of a process's resident memory before and behind the making of them, divided by
their number; each figure in a fresh process (`memory_child`), since memory that was freed is not
given back. So everything counts that comes with a key (its object, its place in lists and
dictionaries, what the allocator loses) or with a channel (also its share of the subtasks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Child, Row, Run, Suite, median_row


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many keys; subtasks on each side of the exchange; processes per figure."""

    keys: int
    parallelism: int
    rounds: int


FULL = Sizes(1_000_000, 64, 6)
QUICK = Sizes(100_000, 16, 1)


async def memory(run: Run[Sizes]) -> Sequence[Row]:
    """What do a key and an idle channel take of the memory?"""
    sizes = run.sizes
    figures = [
        ("a key of a dataclass with three fields", "accounts", sizes.keys),
        ("the same in a plain dict", "dict", sizes.keys),
        ("a key that is counted", "counts", sizes.keys),
        (f"an idle channel of {sizes.parallelism**2:,}", "channels", sizes.parallelism),
    ]
    return [
        median_row(f"resident memory of {name}", await _bytes(run, kind, count), "B")
        for name, kind, count in figures
    ]


async def _bytes(run: Run[Sizes], kind: str, count: int) -> list[float]:
    found = []
    for number in range(run.sizes.rounds):
        run.say(f"{kind}: process {number + 1} of {run.sizes.rounds}")
        async with Child(["benchmarks.scale.memory_child", kind, str(count)]) as child:
            found.append(float(await child.line(600)))
    return found


SUITE = Suite("memory", {"resident": memory}, FULL, QUICK)
