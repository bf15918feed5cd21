from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.connectors.items import items
from streamcp.operators.sources import Source
from tests.recovery.world import run_job


async def read(source: Source[Any], position: Any) -> list[tuple[Sequence[Any], Any]]:
    return [batch async for batch in source.open(position)]


async def test_list_is_read_in_order_and_in_batches() -> None:
    batches = await read(items(list(range(5000))), 0)

    assert [len(values) for values, _ in batches] == [2048, 2048, 904]
    assert [value for values, _ in batches for value in values] == list(range(5000))
    assert [position for _, position in batches] == [2048, 4096, 5000]


@given(count=st.integers(0, 6000), position=st.integers(0, 6000))
async def test_opened_at_a_position_gives_the_same_tail(count: int, position: int) -> None:
    batches = await read(items(range(count)), position)

    assert [value for values, _ in batches for value in values] == list(range(count))[position:]


async def test_range_is_not_spelled_out() -> None:
    source = items(range(10**15))

    values, position = await anext(source.open(10**14))

    assert values == range(10**14, position)
    assert position > 10**14


def countdown() -> Iterator[int]:
    yield from (3, 2, 1)


@pytest.mark.parametrize(
    "values", [countdown(), deque([3, 2, 1]), {3: "c", 2: "b", 1: "a"}, (3, 2, 1)]
)
async def test_any_iterable_can_be_read_again_and_again(values: Any) -> None:
    source = items(values)

    assert await read(source, 0) == [((3, 2, 1), 3)]
    assert await read(source, 2) == [((1,), 3)]


async def test_position_at_the_end_gives_nothing() -> None:
    assert await read(items([1, 2, 3]), 3) == []
    assert await read(items([]), 0) == []


async def test_batches_are_lists_of_their_own() -> None:
    mine = [1, 2, 3]

    values, _ = await anext(items(mine).open(0))

    assert type(values) is list
    assert values is not mine


def test_source_says_that_it_yields_batches() -> None:
    source = items("abc")

    assert (source.batches, source.start, source.splits) == (True, 0, None)


@dataclass(frozen=True)
class View:
    page: str


def test_class_that_only_lambdas_see_can_be_in_flight(tmp_path: Path) -> None:
    job = sc.Job("views", checkpoints=sc.Checkpoints(to=tmp_path, every=None))
    views = job.source(sc.items([View(page) for page in "abc"]), name="views")
    pages = views.key_by(lambda view: view.page).process(
        lambda view, state, ctx: [view], state=list, name="pages"
    )
    pages.map(slowly, name="slowly").sink(sc.discard(), name="out")

    async def use(running: Any) -> None:
        await asyncio.sleep(0.5)
        await running.checkpoint()

    run_job(job, use=use)


async def slowly(view: Any) -> Any:
    await asyncio.sleep(1)
    return view
