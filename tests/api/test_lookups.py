"""Lookups are described rightly, and refused at their line where they cannot work."""

from __future__ import annotations

from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.validation import find_problems
from streamcp.operators.steps import LookupStep


async def fetch(key: int) -> str:
    return str(key)


async def fetch_from(key: int, service: object) -> str:
    return str(key)


def plain(key: int) -> str:
    return str(key)


def half(number: int) -> int:
    return number // 2


def both(number: int, answer: str) -> tuple[int, str]:
    return number, answer


def opens() -> Any:
    raise AssertionError("it is not opened here")


def stream() -> Any:
    """As a type checker would not let it be used wrongly."""
    return sc.Job("l").source(sc.items([1, 2, 3]), name="numbers")


def test_lookup_is_one_step_with_what_was_said_of_it() -> None:
    made = stream().lookup(
        half, fetch_from, both, uses=opens, cache=5, ttl="2s", concurrency=3, name="ask"
    )
    node = made._connections[0].node
    spec = node.spec
    assert isinstance(spec, LookupStep)
    assert (node.label, node.verb) == ("ask", "lookup")
    assert (spec.key, spec.fn, spec.combine, spec.uses) == (half, fetch_from, both, opens)
    assert (spec.cache, spec.ttl, spec.annotated) == (5, 2.0, (half, both))
    assert spec.calls is not None
    assert spec.calls.concurrency == 3


def test_lookup_needs_a_name_with_checkpoints() -> None:
    made = stream().lookup(half, fetch, both)
    made.sink(sc.discard(), name="out")
    (problem,) = find_problems(made._graph, checkpoints=True)
    assert 'lookup(…, name="fetch")' in problem


REFUSED: list[tuple[Any, str]] = [
    (lambda s: s.lookup(half, plain, both), r"lookup\(plain\) is a plain function.*async def"),
    (lambda s: s.lookup(half, 5, both), r"lookup\(5\): a function is needed"),
    (lambda s: s.lookup("id", fetch, both), r"lookup\('id'\): a function is needed"),
    (lambda s: s.lookup(half, fetch, fetch), r"lookup\(fetch\) is a coroutine function"),
    (lambda s: s.lookup(fetch, fetch, both), r"lookup\(fetch\) is a coroutine function"),
    (lambda s: s.lookup(half, fetch, half), r"called as half\(record, answer\)"),
    (lambda s: s.lookup(half, fetch_from, both), r"give its service with uses="),
    (lambda s: s.lookup(half, fetch, both, uses=opens), r"called as fetch\(key, the service"),
    (lambda s: s.lookup(half, fetch, both, cache=0), r"lookup\(cache=0\): write how many answers"),
    (lambda s: s.lookup(half, fetch, both, cache="1"), r"lookup\(cache='1'\)"),
    (lambda s: s.lookup(half, fetch, both, ttl="0s"), r"lookup\(ttl='0s'\) would keep no answer"),
    (lambda s: s.lookup(half, fetch, both, tll="1s"), r"no option 'tll'"),
    (lambda s: s.lookup(half, fetch, both, journal=True), r"no option 'journal'"),
    (lambda s: s.lookup(half, fetch, both, executor="thread"), r"no option 'executor'"),
    (lambda s: s.lookup(half, fetch, both, concurrency=0), r"concurrency=0, write 1 or more"),
]


@pytest.mark.parametrize(("describe", "message"), REFUSED)
def test_what_cannot_work_is_refused_at_its_line(describe: Any, message: str) -> None:
    with pytest.raises(sc.DefinitionError, match=message):
        describe(stream())


@pytest.mark.parametrize("ttl", [5, "5", "-1s"])
def test_lifetime_that_is_no_duration_is_refused(ttl: Any) -> None:
    with pytest.raises(sc.SettingsError, match=r"lookup\(ttl\)"):
        stream().lookup(half, fetch, both, ttl=ttl)
