"""What event time makes impossible is told with place and remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import streamcp as sc
from streamcp.graph.time_problems import find_time_problems


@sc.source(splits=lambda: range(2))
async def divided(split: int, position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


def problems(*groups: str, source: sc.Source[int] | None = None) -> list[str]:
    job = sc.Job("job")
    for number, group in enumerate(groups):
        marks = sc.Watermarks[int](lambda at: at, align=group, max_drift="1m")
        read = job.source(source or sc.items([1]), name=f"s{number}", watermarks=marks)
        read.sink(sc.discard(), name=f"out{number}")
    return list(find_time_problems(job.graph))


def test_source_that_is_alone_in_its_group_is_told_with_the_others() -> None:
    found = problems("clicks", "click", "clicks")
    assert len(found) == 1
    assert "source 's1'" in found[0]
    assert "test_time_problems.py:" in found[0]
    assert "(there are: 'clicks')" in found[0]


@pytest.mark.parametrize("groups", [("clicks", "clicks"), ("a", "b", "b", "a")])
def test_groups_of_several_sources_are_good(groups: tuple[str, ...]) -> None:
    assert problems(*groups) == []


def test_splits_of_one_source_are_a_group() -> None:
    assert problems("clicks", source=divided()) == []
