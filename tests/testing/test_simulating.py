from __future__ import annotations

import asyncio

import pytest

import streamcp as sc
from streamcp.testing.simulating import simulate


async def slowly(number: int) -> int:
    await asyncio.sleep(0.005)
    return number


def good() -> sc.Job:
    job = sc.Job("good")
    numbers = job.source(sc.items(range(1000)), name="numbers").map(slowly, name="slowly")
    numbers.key_by(lambda n: n % 3).count(name="count").sink(sc.discard(), name="out")
    return job


def test_sound_job_passes() -> None:
    simulate(good, seeds=range(6), limit=30)


def test_job_that_keeps_state_outside_of_its_state_fails_with_a_case_and_a_trace() -> None:
    kept: list[int] = []

    def first_time(number: int) -> bool:
        kept.append(number)
        return kept.count(number) == 1

    def forgets() -> sc.Job:
        job = sc.Job("forgets")
        numbers = job.source(sc.items(range(5)), name="numbers")
        numbers.filter(first_time, name="once").sink(sc.discard(), name="out")
        return job

    with pytest.raises(AssertionError, match=r"seed 0: .*I1: out has.*too few") as caught:
        simulate(forgets, seeds=range(3))
    assert "storage    start an attempt" in str(caught.value)


def test_job_that_fails_undisturbed_is_told_so() -> None:
    def broken() -> sc.Job:
        job = sc.Job("broken")
        job.source(sc.items([0]), name="zero").map(lambda n: 1 // n).sink(sc.discard(), name="o")
        return job

    with pytest.raises(AssertionError, match="fails when nothing disturbs it"):
        simulate(broken)


def test_fake_of_a_source_needs_a_source() -> None:
    with pytest.raises(sc.DefinitionError, match="a source's name needs a source"):
        sc.Job("x", fakes={"numbers": [1, 2]})


def test_fake_of_a_service_needs_a_function() -> None:
    with pytest.raises(sc.DefinitionError, match="the function of a uses="):
        sc.Job("x", fakes={slowly: 7})
