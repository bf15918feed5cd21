"""How much of everything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records or calls per window, and windows per figure."""

    records: int
    calls: int
    rounds: int


FULL = Sizes(500_000, 20_000, 61)
QUICK = Sizes(100_000, 5_000, 7)
