"""Many seeds, here or side by side in several processes; results come in the order of seeds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from streamcp.testing.simulation.run import Outcome

Run: TypeAlias = Callable[[int], Outcome]
"""Runs one seed. To be run in other processes it must be picklable."""

# A process is asked for so many seeds at once.
_CHUNK = 10


@dataclass(frozen=True)
class SeedResult:
    """The outcome of one seed."""

    seed: int
    outcome: Outcome


def run_seeds(run: Run, seeds: range, *, jobs: int = 1) -> Generator[SeedResult, None, None]:
    """Run every seed, in `jobs` processes; give the results one by one.

    Closing the iterator ends the work that nobody has asked for yet."""
    if jobs <= 1:
        for seed in seeds:
            yield SeedResult(seed, run(seed))
        return
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    # Not forked: a copy of a process that runs threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            for results in pool.map(partial(_run_chunk, run), chunks):
                yield from results
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run_chunk(run: Run, seeds: Sequence[int]) -> list[SeedResult]:
    return [SeedResult(seed, run(seed)) for seed in seeds]
