"""W6: bids → key_by(bidder) → count → slow sink, with keys that are more or less hot.

As in CheckMate: a share of the bids comes from one hot bidder, the second of the newest hundred
people, and one event in fifty is a new person; so a key is hot for 4,600 bids, and then another
one is. The other bidders are drawn evenly from the newest thousand. Besides, a thousand bidders by
Zipf's law, whose first one stays hot.

1 ms per record, I/O-slow, 50 records per channel. One slow channel holds the barrier: that of the
hottest subtask, before which p channels of the exchange and one from its count are full, whatever
the others have; so the law is (p + 1)·C/μ, with the μ of one subtask.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import streamcp as sc
from benchmarks.harness import Row, Run, Suite
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    UNALIGNED,
    Entry,
    Stay,
    completed,
    in_processes,
    take,
    visits_of,
)
from benchmarks.workloads.topology import BATCH, Gate, Record, Service, filling

SERVICE = 0.001
CAPACITY = 50
PAYLOAD = 100
BIDDERS = 1000  # among whom a bidder is drawn
BIDS_PER_PERSON = 46
HOT_AMONG = 100  # one in so many people is hot

DrawBidders: TypeAlias = Callable[[random.Random, range], list[int]]


@dataclass(frozen=True, slots=True)
class Bids:
    """Bids of hot bidders (`hot`: their share) or, with `zipf`, by Zipf's law of that exponent."""

    hot: float = 0.0
    zipf: float | None = None
    service: float = SERVICE
    capacity: int = CAPACITY
    parallelism: int = 4
    hops: int = 2

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        service = Service(self.service)
        draw = moving(self.hot) if self.zipf is None else by_zipf(self.zipf)
        keyed = job.source(bids(self.parallelism, draw), name="bids").key_by(bidder_of)
        keyed.count(name="count").for_each(service.take, name="slow", concurrency=1)
        # Only the hottest subtask never waits.
        return service, Gate(("bids",), "slow", idle=1 - 0.9 / self.parallelism)

    def aligned_delay(self, rate: float) -> float:
        """By the rate of the hottest subtask, which waits for nothing; `rate` is the mean."""
        return (self.parallelism + 1) * self.capacity * self.service


def bids(parallelism: int, draw: DrawBidders) -> Any:
    """An endless source of (bidder, payload); each batch is drawn anew from its position."""

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def drawn(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        while True:
            numbers = range(position * parallelism, (position + BATCH) * parallelism, parallelism)
            bidders = draw(random.Random(f"bids {split} {position}"), numbers)
            yield [(bidder, filling(bidder, PAYLOAD)) for bidder in bidders], position + BATCH
            position += BATCH

    return drawn()


def bidder_of(bid: Record) -> int:
    return bid[0]


def moving(hot: float) -> DrawBidders:
    """Bidders of bids with these numbers, a share of them hot, and hot for a while."""

    def draw(chance: random.Random, numbers: range) -> list[int]:
        return [_bidder(chance, number // BIDS_PER_PERSON, hot) for number in numbers]

    return draw


def _bidder(chance: random.Random, newest: int, hot: float) -> int:
    if chance.random() < hot:
        return newest // HOT_AMONG * HOT_AMONG + 1
    return newest - chance.randrange(BIDDERS)


def by_zipf(exponent: float) -> DrawBidders:
    """Bidders by Zipf's law: the n-th one bids n^-exponent times as often as the first."""
    weights = list(accumulate(rank**-exponent for rank in range(1, BIDDERS + 1)))

    def draw(chance: random.Random, numbers: range) -> list[int]:
        return chance.choices(range(BIDDERS), cum_weights=weights, k=len(numbers))

    return draw


# ---- the benchmark


@dataclass(frozen=True, slots=True)
class Sizes:
    """How skewed; per process and skew, checkpoints of each kind."""

    hot: tuple[float, ...]
    zipf: tuple[float, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes((0.0, 0.1, 0.2, 0.3), (0.8, 1.0, 1.2), 3, unaligned=10, adaptive=4, aligned=4)
QUICK = Sizes((0.0, 0.3), (), 1, unaligned=4, adaptive=2, aligned=2)


async def skew(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a checkpoint take when one key, and so one subtask, gets more than others?"""
    sizes = run.sizes
    topologies = {f"hot ratio {hot:g}": Bids(hot=hot) for hot in sizes.hot}
    topologies |= {f"Zipf {exponent:g}": Bids(zipf=exponent) for exponent in sizes.zipf}
    visits = visits_of(sizes.unaligned, sizes.adaptive, sizes.aligned)
    stays = [Stay(name, asdict(topology), visits) for name, topology in topologies.items()]
    entries = await in_processes(run, take_of_bids, stays, sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for setting in topologies:
        rows += judging.setting_rows(entries, setting, overtaking=3 * SERVICE)
        rows.append(_busy_row(entries, setting))
    return rows + judging.sanity_rows(entries)


async def take_of_bids(spec: Any) -> list[Entry]:
    """The cell."""
    return await take(spec, Bids)


def _busy_row(entries: Sequence[Entry], setting: str) -> Row:
    """What skew costs while nobody takes a checkpoint: most sinks wait for the hottest one."""
    taken = completed(entries, UNALIGNED, setting)
    share = [entry["rate"] * SERVICE for entry in taken]
    return Row(f"share of the sinks' time that is used, {setting}", sum(share) / len(share))


SUITE = Suite("skew", {"skew": skew}, FULL, QUICK)
