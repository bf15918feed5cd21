"""Made-up records as a source: any number of them, at any rate, with any skew.

Record i is a function of i alone, so the position is the index of the next record, and a restored
job makes the same records again. Knows nothing of where they go.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import accumulate, count, islice
from typing import TypeVar, overload

from streamcp.clock import Clock, SystemClock
from streamcp.errors import SettingsError
from streamcp.operators.sources import Source

T = TypeVar("T")
Make = Callable[[int, int], list[T]]
"""Makes the records with indices from the first number up to the second."""

# The user's function runs once per record before the event loop gets its turn: with 10 µs a call
# this is half of a turn of 5 ms.
_BATCH = 256
# Timers cannot pace single records: everything that is due is emitted per tick.
_TICK = 0.001


@overload
def generator(
    fn: Callable[[int], T], /, *, count: int | None = None, rate: float | None = None
) -> Source[T]: ...
@overload
def generator(
    fn: Callable[[int, int], T],
    /,
    *,
    keys: int,
    skew: float = 0.0,
    seed: int = 0,
    count: int | None = None,
    rate: float | None = None,
) -> Source[T]: ...
def generator(
    fn: Callable[..., T],
    /,
    *,
    keys: int | None = None,
    skew: float = 0.0,
    seed: int = 0,
    count: int | None = None,
    rate: float | None = None,
) -> Source[T]:
    """Emit `fn(0)`, `fn(1)`, … : `count` records, or without end.

    `rate` is in records per second (default: as fast as they are taken). Record i is due i/`rate`
    seconds after the start; what is late because the pipeline was slow is emitted as soon as the
    pipeline takes it, so the rate holds on average (an open loop).

    With `keys`, `fn` gets a second argument, a key from 0 to `keys` - 1, drawn with a probability
    proportional to 1/(key + 1)**`skew` (Zipf): `skew=0` for all alike, 1 or more for a few hot
    ones. The draw is a function of `seed` and the index alone.

    Raises SettingsError for values that make no sense."""
    _check(count, rate, keys, skew)
    make = _plain(fn) if keys is None else _keyed(fn, keys, skew, seed)
    kwargs: dict[str, object] = {"make": make, "count": count}
    if rate is None:
        return Source(fn=_unpaced, name="generator", start=0, kwargs=kwargs, batches=True)
    kwargs |= {"rate": rate, "clock": SystemClock(), "sleep": asyncio.sleep}
    return Source(fn=_paced, name="generator", start=0, kwargs=kwargs, batches=True)


def _check(count: int | None, rate: float | None, keys: int | None, skew: float) -> None:
    if count is not None and count < 0:
        raise SettingsError(f"generator(count={count}): write 0 or more, or None for no end")
    if rate is not None and not rate > 0:
        raise SettingsError(f"generator(rate={rate}): write more than 0, or None for full speed")
    if keys is not None and keys < 1:
        raise SettingsError(f"generator(keys={keys}): write 1 or more")
    if keys is None and skew:
        raise SettingsError(f"generator(skew={skew}) says how keys are drawn: add keys=")
    if not skew >= 0:
        raise SettingsError(f"generator(skew={skew}): write 0.0 or more")


async def _unpaced(
    position: int, *, make: Make[T], count: int | None
) -> AsyncIterator[tuple[list[T], int]]:
    while count is None or position < count:
        end = _end(position, _BATCH, count)
        yield make(position, end), end
        position = end


async def _paced(
    position: int,
    *,
    make: Make[T],
    count: int | None,
    rate: float,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]],
) -> AsyncIterator[tuple[list[T], int]]:
    first, started = position, clock.monotonic()
    while count is None or position < count:
        elapsed = clock.monotonic() - started
        # The record at `first` is due at once.
        due = first + int(elapsed * rate) + 1 - position
        if due > 0:
            end = _end(position, min(due, _BATCH), count)
            yield make(position, end), end
            position = end
        else:
            await sleep(max(_TICK, (position - first) / rate - elapsed))


def _end(position: int, length: int, count: int | None) -> int:
    end = position + length
    return end if count is None else min(end, count)


def _plain(fn: Callable[[int], T]) -> Make[T]:
    return lambda start, end: [fn(index) for index in range(start, end)]


def _keyed(fn: Callable[[int, int], T], keys: int, skew: float, seed: int) -> Make[T]:
    weights = list(accumulate((key + 1) ** -skew for key in range(keys)))

    def make(start: int, end: int) -> list[T]:
        drawn = islice(_draws(seed, start), end - start)
        return [fn(index, key) for index, key in enumerate(_chosen(drawn, weights), start)]

    return make


def _chosen(draws: Iterable[float], weights: Sequence[float]) -> Iterable[int]:
    total, last = weights[-1], len(weights) - 1
    return (bisect(weights, draw * total, 0, last) for draw in draws)


def _draws(seed: int, start: int) -> Iterable[float]:
    """Draw numbers from 0 up to 1 from index `start` on.

    Each block of indices has a stream of its own, so that starting anywhere costs one block."""
    block, skipped = divmod(start, _BATCH)
    for number in count(block):
        stream = random.Random(f"{seed}/{number}")  # text: hashed, so that near seeds differ
        draws = [stream.random() for _ in range(_BATCH)]
        yield from draws[skipped:]
        skipped = 0
