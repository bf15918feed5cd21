"""Sources whose records tell their place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import streamcp as sc


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for number in count(position):
        yield number, number + 1


def batches_of(sizes: list[int]) -> sc.Source[int]:
    """Numbers in batches; the position is the number of the next batch."""

    @sc.source(batches=True)
    async def batched(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
        for number in range(position, len(sizes)):
            first = sum(sizes[:number])
            yield list(range(first, first + sizes[number])), number + 1

    return batched()
