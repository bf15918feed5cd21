"""Every run reads the same records, also a restored one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.compare.limits import Quota, limited
from tests.compare.sources import batches_of, numbers


async def read(source: sc.Source[Any], position: Any, most: int | None = None) -> list[Any]:
    """What a reader yields from `position` on."""
    found: list[Any] = []
    async with aclosing(source.open(position)) as opened:  # type: ignore[type-var]
        while most is None or len(found) < most:
            try:
                found.append(await anext(opened))
            except StopAsyncIteration:
                break
    return found


async def test_source_ends_after_the_limit_of_its_reader() -> None:
    quota = Quota({"numbers": 3})
    source = limited(numbers(), "numbers", quota)

    found = await read(source, source.start)

    assert [record for record, _ in found] == [0, 1, 2]
    assert quota.read == {"numbers": 3}


async def test_limited_source_asks_for_no_record_beyond_its_limit() -> None:
    asked = []

    @sc.source
    async def watched(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for number in count(position):
            asked.append(number)
            yield number, number + 1

    source = limited(watched(), "watched", Quota({"watched": 2}))
    await read(source, source.start)

    assert asked == [0, 1]


async def test_closed_quota_ends_a_source_and_counts_what_it_gave_out() -> None:
    quota = Quota()
    source = limited(numbers(), "numbers", quota)

    async with aclosing(source.open(source.start)) as opened:  # type: ignore[type-var]
        given_out = [await anext(opened), await anext(opened)]
        quota.close()
        rest = [record async for record in opened]

    assert [record for record, _ in given_out] == [0, 1]
    assert rest == []
    assert quota.read == {"numbers": 2}


@given(
    sizes=st.lists(st.integers(0, 5), max_size=8),
    limit=st.integers(0, 30),
    before=st.integers(0, 8),
)
async def test_restored_batches_end_at_the_record_of_an_undisturbed_run(
    sizes: list[int], limit: int, before: int
) -> None:
    whole = list(range(min(limit, sum(sizes))))
    undisturbed = limited(batches_of(sizes), "rows", Quota({"rows": limit}))
    interrupted = limited(batches_of(sizes), "rows", Quota({"rows": limit}))

    everything = await read(undisturbed, undisturbed.start)
    first = await read(interrupted, interrupted.start, before)
    restored = limited(batches_of(sizes), "rows", Quota({"rows": limit}))
    second = await read(restored, first[-1][1] if first else restored.start)

    assert [record for batch, _ in everything for record in batch] == whole
    assert [record for batch, _ in [*first, *second] for record in batch] == whole


@sc.source(splits=lambda: ["a", "b", "c"])
async def split_numbers(split: str, position: int = 0) -> AsyncIterator[tuple[str, int]]:
    for number in count(position):
        yield f"{split}{number}", number + 1


async def test_records_of_a_source_are_divided_among_its_splits() -> None:
    quota = Quota(records=7)
    source = limited(split_numbers(), "parts", quota)

    found = [
        record
        for split in ("a", "b", "c")
        async for record, _ in source.open_split(split, source.start)
    ]

    assert found == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]
    assert quota.read == {"parts['a']": 3, "parts['b']": 3, "parts['c']": 3}


def test_limited_source_keeps_the_annotations_that_declare_types() -> None:
    source = limited(numbers(), "numbers", Quota())

    assert inspect.unwrap(source.fn).__annotations__ == inspect.get_annotations(numbers().fn)
    assert inspect.unwrap(source.fn) is numbers().fn
