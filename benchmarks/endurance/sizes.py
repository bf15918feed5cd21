"""How much of everything: in full, and in a minute or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcp.config import EXACTLY_ONCE_MODES, Mode
from streamcp.coordinator.coordinator import COMMIT_TIME


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many kills in how many records (of the flights example: none leaves it out); seconds of
    every stuck job, of its stop, and of the sinks' commits in it; records that fail."""

    kills: int
    flight_kills: int
    records: int
    flights: int
    latency: float
    stuck_seconds: float
    stop_within: float
    commit_time: float
    failing_records: int
    modes: Sequence[Mode] = EXACTLY_ONCE_MODES


FULL = Sizes(10, 20, 60_000, 120_000, 0.02, 120.0, 20.0, COMMIT_TIME, 5_000)
QUICK = Sizes(4, 5, 12_000, 20_000, 0.02, 8.0, 20.0, COMMIT_TIME, 1_000)
