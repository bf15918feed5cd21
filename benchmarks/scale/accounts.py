"""A job with a large keyed state: one account per key, which each record of the key updates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamcp as sc
from benchmarks.scale.feed import Feed, same


@dataclass
class Account:
    """The state of a key."""

    owner: str = ""
    count: int = 0
    total: float = 0.0


def update(key: int, state: Account, context: sc.KeyContext[int]) -> Sequence[int]:
    """Update the account of a key; the result says only that it was done."""
    state.owner = f"customer {key}"
    state.count += 1
    state.total += key / 7
    return (key,)


class Accounts:
    """The job, and what feeds it. `order` may be changed between two windows."""

    def __init__(
        self, keys: int, folder: Path | str | None, seed: int = 0, *, capacity: int | None = None
    ) -> None:
        self.order = list(range(keys))
        self.feed = Feed(lambda split: self.order, 1)
        self._chance = random.Random(seed)
        checkpoints = None
        if folder is not None:
            checkpoints = sc.Checkpoints(to=folder, mode="unaligned", timeout="1h")
        self.job = sc.Job(
            "accounts", checkpoints=checkpoints, types=[Account], channel_capacity=capacity
        )
        keyed = self.job.source(self.feed.source(), name="keys").key_by(same)
        accounts = keyed.process(update, state=Account, name="accounts")
        accounts.sink(lambda: self.feed, name="out")

    async def make_all(self) -> None:
        """Give every key its account; from then on keys come in another order: what was made
        together lies together in memory."""
        await self.feed.give(len(self.order))
        self._chance.shuffle(self.order)
