"""The table of options, and the words of their errors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import streamcp as sc
from streamcp.api.options import ALLOWED, did_you_mean


def test_every_verb_with_options_is_in_the_table() -> None:
    """A verb that takes options and is missing in the table would fail when it is used."""
    classes = (sc.Job, sc.Stream, sc.KeyedStream, sc.Windowed)
    verbs = {
        name
        for cls in classes
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if "options" in inspect.signature(method).parameters and not name.startswith("_")
    }
    assert verbs == set(ALLOWED)


def test_near_word_is_suggested_and_far_words_are_listed() -> None:
    known = frozenset({"timeout", "retry"})
    assert did_you_mean("timout", known) == "; did you mean 'timeout'?"
    assert did_you_mean("x", known) == "; there are: retry, timeout"


def test_journal_is_for_calls_and_is_on_or_off() -> None:
    numbers = sc.Job("x").source(sc.items([1]))

    async def ask(number: int) -> int:
        return number

    untyped: Any = numbers.map
    with pytest.raises(sc.DefinitionError, match="journal= is for coroutine functions"):
        untyped(named, journal=True)
    with pytest.raises(sc.DefinitionError, match="write journal=True"):
        untyped(ask, journal="yes")
    untyped(named, journal=False)


def named(number: int) -> int:
    return number
