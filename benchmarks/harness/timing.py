"""Measuring in one process: in turns, by the clock and by the processor's time; and the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

M = TypeVar("M")


async def paired(
    floor: Callable[[], Awaitable[M]],
    subject: Callable[[], Awaitable[M]],
    rounds: int,
) -> list[tuple[M, M]]:
    """Measure both in turn, `rounds` times, after one unmeasured turn; the order changes each
    round, so that a drift of the machine's speed hits both alike."""
    await floor()
    await subject()
    pairs = []
    for number in range(rounds):
        if number % 2:
            of_subject = await subject()
            pairs.append((await floor(), of_subject))
        else:
            of_floor = await floor()
            pairs.append((of_floor, await subject()))
    return pairs


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long something took: by the clock, and of the processor's time of this process. The
    latter leaves out what other processes took, but also every moment of waiting."""

    clock: float
    processor: float


async def timed(run: Callable[[], Awaitable[object]]) -> Seconds:
    """Measure a coroutine."""
    started, used = time.perf_counter(), time.process_time()
    await run()
    return Seconds(time.perf_counter() - started, time.process_time() - used)


def fsync_time(data: bytes, folder: Path) -> float:
    """Seconds to write `data` to a new file in `folder` plainly, and fsync it."""
    file = folder / "plain-write"
    started = time.perf_counter()
    with open(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    seconds = time.perf_counter() - started
    file.unlink()
    return seconds
