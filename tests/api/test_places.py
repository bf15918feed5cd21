"""A step remembers the user's line, not the framework's."""

from __future__ import annotations

import inspect

import streamcp as sc
from streamcp.api.places import calling_place


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_direct_call_gives_this_line() -> None:
    place, line = calling_place(), _line()
    assert (place.file, place.line) == (__file__, line)


def test_step_remembers_the_line_of_the_verb() -> None:
    job = sc.Job("x")
    source, line = job.source(sc.items([1])), _line()
    step = source.map(str)
    step.sink(sc.discard())
    assert [node.place.line for node in job.graph.nodes] == [line, line + 1, line + 2]
    assert {node.place.file for node in job.graph.nodes} == {__file__}


def test_call_from_a_shipped_example_counts_as_the_users() -> None:
    """Examples are inside the package, but written as users write."""
    scope: dict[str, object] = {"__name__": "streamcp.examples.words", "f": calling_place}
    exec(compile("\nplace = f()", "words.py", "exec"), scope)
    assert str(scope["place"]) == "words.py:2"


def test_call_from_inside_the_framework_is_skipped() -> None:
    scope: dict[str, object] = {"__name__": "streamcp.api.other", "f": calling_place}
    exec(compile("\nplace = f()", "other.py", "exec"), scope)
    assert str(scope["place"]).startswith(__file__)
