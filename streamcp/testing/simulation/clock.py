"""The clock of a simulated run: every reading costs a little virtual time, drawn from the seed.

So slices, shares and timeouts have random lengths, as on a busy machine, and yet the same ones
for the same seed. Knows nothing of jobs.
"""

from __future__ import annotations

import random

from streamcp.testing.clock import ManualClock

# A reading costs mostly a microsecond; now and then the machine was busy with something else.
_COSTS = (1_000, 1_000, 1_000, 10_000, 200_000)
# Drawing for each reading would cost more than most of the work in between.
_TABLE = 1021


class SimulatedClock(ManualClock):
    """A `Clock` that moves by a random cost at each reading, and by `advance`.

    `slowness` scales the cost: 0 for a machine that is never busy."""

    __slots__ = ("_at", "_table")

    def __init__(self, rnd: random.Random, *, slowness: float = 1.0) -> None:
        super().__init__()
        costs = [round(cost * slowness) + 1 for cost in _COSTS]
        self._table = rnd.choices(costs, k=_TABLE)
        self._at = 0

    def monotonic(self) -> float:
        """Seconds since the start; moves the clock."""
        at = self._at
        self._at = at + 1 if at + 1 < _TABLE else 0
        self._nanoseconds += self._table[at]
        return self._nanoseconds / 1_000_000_000
