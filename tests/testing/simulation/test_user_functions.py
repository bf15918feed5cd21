"""Users' functions fail where that changes no output, before or behind their effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

import pytest

from streamcp.config import Retry
from streamcp.operators.steps import AsyncOptions, FlatMapStep, MapStep
from streamcp.testing.simulation.branches import Branch
from streamcp.testing.simulation.faults import Action, Fault
from streamcp.testing.simulation.user_functions import with_faults
from streamcp.testing.simulation.world import InjectedFailure, Life, World


class LifeOf(Protocol):
    """Makes a life in which users' functions fail at these calls."""

    def __call__(self, *at: int, action: Action = "fail") -> Life: ...


@pytest.fixture
def life_of() -> Iterator[LifeOf]:
    world = World("a schedule")

    def make(*at: int, action: Action = "fail") -> Life:
        return Life(world, 0, tuple(Fault(0, "user", n, action) for n in at), Branch())

    yield make
    world.close()


def _calls(fn: Callable[[int], Any]) -> list[Any]:
    """What four calls gave, or that they failed."""
    results: list[Any] = []
    for n in range(4):
        try:
            results.append(fn(n))
        except InjectedFailure:
            results.append("failed")
    return results


@pytest.mark.parametrize("action", ["fail", "lose"])
def test_plain_function_fails_at_the_nth_call(life_of: LifeOf, action: Action) -> None:
    called: list[int] = []
    spec = with_faults(MapStep(called.append), "step", life_of(2, 4, action=action))
    assert _calls(spec.fn) == [None, "failed", None, "failed"]
    assert called == ([0, 2] if action == "fail" else [0, 1, 2, 3])


@pytest.mark.parametrize("action", ["fail", "lose"])
def test_coroutine_fails_at_the_nth_call(life_of: LifeOf, action: Action) -> None:
    called: list[int] = []

    async def fn(record: int) -> int:
        called.append(record)
        return record

    step = MapStep(fn, AsyncOptions())
    spec = with_faults(step, "step", life_of(1, action=action))
    assert asyncio.iscoroutinefunction(spec.fn)
    assert _calls(lambda n: asyncio.run(spec.fn(n))) == ["failed", 1, 2, 3]
    assert called == ([1, 2, 3] if action == "fail" else [0, 1, 2, 3])


def test_async_generator_fails_behind_its_last_value(life_of: LifeOf) -> None:
    async def fn(record: int) -> AsyncIterator[int]:
        yield record
        yield record

    spec = with_faults(FlatMapStep(fn, AsyncOptions()), "step", life_of(1, action="lose"))
    given: list[int] = []

    async def read(record: int) -> None:
        given.extend([each async for each in spec.fn(record)])

    assert _calls(lambda n: asyncio.run(read(n)))[:2] == ["failed", None]
    assert given == [1, 1, 2, 2, 3, 3]


def test_step_that_drops_what_fails_never_does(life_of: LifeOf) -> None:
    spec = with_faults(MapStep(abs, on_error="drop"), "step", life_of(1, 2))
    assert _calls(spec.fn) == [0, 1, 2, 3]


def test_step_that_tries_again_fails_once_in_alife_of(life_of: LifeOf) -> None:
    calls = AsyncOptions(retry=Retry(attempts=2))
    spec = with_faults(MapStep(abs, calls, on_error="drop"), "step", life_of(1, 2))
    assert _calls(spec.fn) == ["failed", 1, 2, 3]


def test_step_that_retries_other_errors_only_never_fails(life_of: LifeOf) -> None:
    calls = AsyncOptions(retry=Retry(attempts=2, on=TimeoutError))
    spec = with_faults(MapStep(abs, calls, on_error="divert"), "step", life_of(1, 2))
    assert _calls(spec.fn) == [0, 1, 2, 3]


def test_replaced_function_has_the_annotations_of_the_original(life_of: LifeOf) -> None:
    def fn(record: int) -> str:
        return str(record)

    assert with_faults(MapStep(fn), "step", life_of()).fn.__annotations__ == fn.__annotations__
