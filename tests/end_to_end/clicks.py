"""What users click on, at which time: the records of jobs with event time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import streamcp as sc

START = 1_700_000_000_000


@dataclass(frozen=True)
class Click:
    user: int
    ts: int


def one_at_a_time(times: list[int]) -> sc.Source[Click]:
    """A record is worked off, with its watermark, before the next one comes."""

    @sc.source
    async def each(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
        for place in range(position, len(times)):
            yield Click(1, START + times[place]), place + 1
            await asyncio.sleep(1)

    return each()
