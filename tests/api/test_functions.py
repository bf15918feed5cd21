"""Rule 2: what counts as a coroutine function, a generator, a plain function."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from streamcp.api.functions import accepts, is_lambda, kind_of, name_of


def plain(record: object) -> object:
    return record


def generator(record: object) -> Iterator[object]:
    yield record


async def coroutine(record: object) -> object:
    return record


async def async_generator(record: object) -> AsyncIterator[object]:
    yield record


class Called:
    async def __call__(self, record: object) -> object:
        return record

    async def method(self, record: object) -> object:
        return record

    @staticmethod
    async def static(record: object) -> object:
        return record


class CalledAsGenerator:
    async def __call__(self, record: object) -> AsyncIterator[object]:
        yield record


@pytest.mark.parametrize(
    "fn",
    [
        coroutine,
        Called(),
        Called().method,
        Called.static,
        functools.partial(coroutine),
        functools.partial(functools.partial(coroutine), 1),
        functools.partial(Called()),
        functools.partial(Called().method),
        AsyncMock(),
    ],
)
def test_every_form_of_coroutine_function_is_recognised(fn: Callable[..., Any]) -> None:
    assert kind_of(fn) == "coroutine"


@pytest.mark.parametrize(
    "fn", [plain, str.split, len, int, Called, lambda record: coroutine(record), "".join]
)
def test_what_only_may_return_a_coroutine_is_plain(fn: Callable[..., Any]) -> None:
    assert kind_of(fn) == "plain"


def test_generators_are_told_apart() -> None:
    assert kind_of(generator) == "generator"
    assert kind_of(async_generator) == "async generator"
    assert kind_of(CalledAsGenerator()) == "async generator"
    assert kind_of(functools.partial(async_generator)) == "async generator"


def test_partial_of_a_lambda_is_a_lambda() -> None:
    assert is_lambda(lambda record: record)
    assert is_lambda(functools.partial(lambda a, b: a, 1))
    assert not is_lambda(plain)


def test_names_are_those_of_the_author() -> None:
    assert name_of(functools.partial(plain)) == "plain"
    assert name_of(Called()) == "Called"
    assert name_of(lambda record: record) == "lambda"


def test_accepts_counts_required_and_optional_arguments() -> None:
    assert accepts(plain, 1)
    assert not accepts(plain, 2)
    assert accepts(print, 7)
    assert accepts(str.split, 1)
    assert not accepts(lambda a, *, b: a, 1)


def test_function_without_a_signature_accepts_anything() -> None:
    assert accepts(dict.fromkeys, 1)
    assert accepts(int, 1)
