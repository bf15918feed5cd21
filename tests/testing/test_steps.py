from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import streamcp as sc
from streamcp.testing.steps import run_step


@dataclass
class Sum:
    total: int = 0


def test_step_gets_the_records_and_its_output_comes_back_in_order() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(3600 / (number + 1))
        return number * 2

    assert run_step(lambda s: s.map(double, name="double"), range(5)) == [0, 2, 4, 6, 8]


def test_keyed_step_keeps_its_state_between_records() -> None:
    def add(number: int, state: Sum, ctx: sc.KeyContext[int]) -> list[int]:
        state.total += number
        return [state.total]

    totals = run_step(
        lambda s: s.key_by(lambda n: n % 2).process(add, state=Sum, name="add"), [1, 2, 3, 4]
    )
    assert totals == [1, 2, 4, 6]


def test_failing_step_fails_the_test() -> None:
    with pytest.raises(sc.JobFailed, match="ZeroDivisionError"):
        run_step(lambda s: s.map(lambda n: 1 // n, name="divide"), [1, 0])
