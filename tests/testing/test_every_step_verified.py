"""Every built-in step does the same whatever happens to it between two elements.

Whoever adds a verb, a kind of step, a window or an aggregate adds a case for it: to
`verified_steps`, or to `verified_windows` where it needs event time.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import Node
from streamcp.operators import steps, windows
from streamcp.testing.given import Inputs
from streamcp.testing.verifying import verify_operator
from tests.testing import verified_steps, verified_windows
from tests.testing.verified_steps import Case

CASES = [*verified_steps.CASES, *verified_windows.CASES]

NOT_STEPS = {
    "Stream.take": "runs a job",
    "Stream.ahead": "an output of a source, which is tested with it",
}


@pytest.mark.parametrize("verified", CASES, ids=lambda one: one.name.replace(" ", "_"))
def test_step_does_the_same_however_it_is_run(verified: Case) -> None:
    options = {"seeds": (0,), **verified.options}
    verify_operator(verified.add, verified.given, verified.expected, **options)


def test_cases_have_names_of_their_own() -> None:
    assert len({one.name for one in CASES}) == len(CASES)


# ---- nothing is left out


def _steps_of(verified: Case) -> list[Node]:
    job = sc.Job("drawn")
    inputs = Inputs(verified.given, verified.options.get("inputs", 1))
    verified.add(*inputs.add_to(job))
    return job.graph.nodes


@contextmanager
def _called() -> Iterator[set[CodeType]]:
    """The code of all functions that are called meanwhile."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield codes
    finally:
        sys.setprofile(before)


def _verbs() -> dict[str, CodeType]:
    """The public methods and properties of what users draw a job with."""
    classes = [getattr(sc, name) for name in sc.__all__]
    drawn = [one for one in classes if inspect.isclass(one) and _is_drawn_with(one)]
    return {
        f"{cls.__name__}.{name}": code
        for cls in drawn
        for name, member in vars(cls).items()
        if not name.startswith("_") and (code := _code_of(member)) is not None
    }


def _is_drawn_with(cls: type) -> bool:
    return cls.__module__.startswith("streamcp.api.") and cls not in (sc.Job, sc.JobFactory)


def _code_of(member: Any) -> CodeType | None:
    function: Callable[..., Any] | None = member.fget if isinstance(member, property) else member
    return getattr(function, "__code__", None)


def test_every_verb_has_a_case() -> None:
    verbs = _verbs()
    with _called() as codes:
        for verified in CASES:
            _steps_of(verified)
    assert sorted(verb for verb, code in verbs.items() if code not in codes) == sorted(NOT_STEPS)


def test_every_kind_of_step_has_a_case() -> None:
    there_are = {name for name, kind in vars(steps).items() if _is_step(kind)}
    used = {type(node.spec).__name__ for verified in CASES for node in _steps_of(verified)}
    assert sorted(there_are - used) == []


def _is_step(kind: object) -> bool:
    return inspect.isclass(kind) and kind.__name__.endswith("Step")


def test_every_window_has_a_case() -> None:
    text = inspect.getsource(verified_windows)
    there_are = {kind.__name__ for kind in windows.Windows.__subclasses__()}
    assert sorted(name for name in there_are if f"sc.{name}(" not in text) == []


def test_every_aggregate_has_a_case() -> None:
    words = {name: getattr(sc, name) for name in sc.__all__ if name != "Aggregate"}
    there_are = {name for name, value in words.items() if hasattr(value, "create")}
    used = {type(aggregate).__name__ for aggregate, _ in verified_windows.AGGREGATES}
    assert there_are - used == set()
