"""`@source` makes sources of async generator functions, and says what is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import streamcp as sc


@sc.source
async def ticks(position: int = 7, *, symbol: str = "BTC") -> AsyncIterator[tuple[str, int]]:
    """Ticks of a symbol."""
    yield f"{symbol}{position}", position + 1


@sc.source(splits=lambda: ["a", "b"])
async def parts(split: str, position: int = 0, limit: int = 1) -> AsyncIterator[tuple[str, int]]:
    for number in range(position, limit):
        yield f"{split}{number}", number + 1


@sc.source(batches=True)
async def pages(cursor: str | None = None) -> AsyncIterator[tuple[list[int], str]]:
    yield [1, 2], f"after {cursor}"


async def _all(records: AsyncIterator[Any]) -> list[Any]:
    return [record async for record in records]


async def test_arguments_come_after_the_position() -> None:
    source = ticks(symbol="ETH")
    assert (source.name, source.start, source.batches, source.splits) == ("ticks", 7, False, None)
    assert await _all(source.open(9)) == [("ETH9", 10)]


async def test_split_comes_before_the_position() -> None:
    source = parts(limit=2)
    assert source.splits is not None
    assert list(source.splits()) == ["a", "b"]
    assert await _all(source.open_split("a", 1)) == [("a1", 2)]
    assert await _all(parts(3).open_split("b", 2)) == [("b2", 3)]


async def test_batches_are_marked() -> None:
    source = pages()
    assert (source.batches, source.start) == (True, None)
    assert await _all(source.open("x")) == [([1, 2], "after x")]


async def test_splits_and_batches_go_together() -> None:
    @sc.source(splits=lambda: range(2), batches=True)
    async def both(split: int, position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
        yield [split], position + 1

    assert both().batches
    assert await _all(both().open_split(1, 0)) == [([1], 1)]


def test_decorated_function_keeps_name_and_docstring() -> None:
    assert (ticks.__name__, ticks.__doc__) == ("ticks", "Ticks of a symbol.")


def test_wrong_argument_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="symbl"):
        ticks(symbl="ETH")  # type: ignore[call-arg]


async def _without_position() -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


async def _keyword_position(*, position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


async def _without_start(position: int) -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


async def _without_yield(position: int = 0) -> None: ...


def _not_async(position: int = 0) -> Iterator[tuple[int, int]]:
    yield 1, 1


async def _only_split(split: str) -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


async def _good(split: str, position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield 1, 1


async def _slow_splits() -> list[str]:
    return []


def _splits_of(topic: str) -> list[str]:
    return [topic]


REFUSED: list[tuple[Callable[[Any], Any], Any, str]] = [
    (sc.source, _without_position, "takes no position"),
    (sc.source, _keyword_position, "takes no position"),
    (sc.source, _without_start, "'position' has no default"),
    (sc.source, _without_yield, "never yields"),
    (sc.source, _not_async, "write async def"),
    (sc.source, 5, "above an async generator function"),
    (sc.source(splits=list), _only_split, "split, position=0"),
    (sc.source(splits=["a"]), _good, "plain function without arguments"),  # type: ignore[call-overload]
    (sc.source(splits=_slow_splits), _good, "plain function without"),  # type: ignore[arg-type]
    (sc.source(splits=_splits_of), _good, "called without arguments"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("decorate", "fn", "remedy"), REFUSED)
def test_wrong_source_is_refused_at_its_definition(
    decorate: Callable[[Any], Any], fn: Any, remedy: str
) -> None:
    with pytest.raises(sc.DefinitionError, match=remedy):
        decorate(fn)
