"""`@source`: from an async generator function to something that makes sources."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, overload

from typing_extensions import TypeVar

from streamcp.api.functions import accepts, kind_of, name_of
from streamcp.errors import DefinitionError
from streamcp.operators.sources import Source

A = ParamSpec("A")
P = TypeVar("P")
T = TypeVar("T")
Split = TypeVar("Split")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@overload
def source(
    fn: Callable[Concatenate[P, A], AsyncIterator[tuple[T, P]]], /
) -> Callable[A, Source[T]]: ...
@overload
def source(
    *, splits: Callable[[], Iterable[Split]]
) -> Callable[
    [Callable[Concatenate[Split, P, A], AsyncIterator[tuple[T, P]]]], Callable[A, Source[T]]
]: ...
@overload
def source(
    *, batches: Literal[True]
) -> Callable[
    [Callable[Concatenate[P, A], AsyncIterator[tuple[Sequence[T], P]]]], Callable[A, Source[T]]
]: ...
@overload
def source(
    *, splits: Callable[[], Iterable[Split]], batches: Literal[True]
) -> Callable[
    [Callable[Concatenate[Split, P, A], AsyncIterator[tuple[Sequence[T], P]]]],
    Callable[A, Source[T]],
]: ...
def source(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    splits: Callable[[], Iterable[Any]] | None = None,
    batches: bool = False,
) -> Any:
    """Make a source of an async generator function that can start at a position.

    The function's first parameter is the position; its default is where a fresh job starts. It
    yields `(record, position after it)`: a restored job opens it again at the last position of its
    checkpoint. Its other parameters are those of the decorated function: `ticks(symbol="BTC")`.

    - `splits`: gives the parts that are divided among the subtasks; the function gets its split
      as first argument, before the position. Without splits a source has one subtask.
    - `batches=True`: it yields `(records, position after them)`.

    Raises DefinitionError if it is no async generator function, or has no position to start at."""
    if fn is None:
        return functools.partial(_decorated, splits=splits, batches=batches)
    return _decorated(fn, splits=splits, batches=batches)


def _decorated(
    fn: Callable[..., Any], *, splits: Callable[[], Iterable[Any]] | None, batches: bool
) -> Callable[..., Source[Any]]:
    _check_generator(fn)
    _check_splits(fn, splits)
    start, signature = _start_and_rest(fn, leading=0 if splits is None else 1)

    @functools.wraps(fn)
    def bound(*args: Any, **kwargs: Any) -> Source[Any]:
        signature.bind(*args, **kwargs)
        return Source(fn, name_of(fn), start, args, kwargs, splits, batches)

    return bound


def _check_generator(fn: Callable[..., Any]) -> None:
    if not callable(fn):
        raise DefinitionError(f"@source on {fn!r}: write it above an async generator function")
    kind = kind_of(fn)
    remedy = {
        "coroutine": "it never yields; write yield record, position",
        "generator": "write async def",
    }.get(kind)
    if remedy is not None:
        raise DefinitionError(
            f"@source on {name_of(fn)}: a {kind} function is no async generator; {remedy}"
        )


def _check_splits(fn: Callable[..., Any], splits: Any) -> None:
    if splits is None:
        return
    if not callable(splits) or kind_of(splits) not in ("plain", "generator"):
        raise DefinitionError(
            f"@source(splits={splits!r}) on {name_of(fn)}: write a plain function without "
            "arguments that gives the splits"
        )
    if not accepts(splits, 0):
        raise DefinitionError(
            f"@source(splits={name_of(splits)}) on {name_of(fn)}: splits is called without "
            "arguments, which it does not accept"
        )


def _start_and_rest(fn: Callable[..., Any], leading: int) -> tuple[Any, inspect.Signature]:
    """Find the default of the position, and the signature of what comes after it."""
    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())
    wanted = "split, position=0" if leading else "position=0"
    if len(parameters) <= leading or parameters[leading].kind not in _POSITIONAL:
        raise DefinitionError(
            f"@source on {name_of(fn)}: it takes no position; write async def "
            f"{name_of(fn)}({wanted}, ...)"
        )
    position = parameters[leading]
    if position.default is inspect.Parameter.empty:
        raise DefinitionError(
            f"@source on {name_of(fn)}: the position parameter {position.name!r} has no default, "
            f"which is where a fresh job starts; write async def {name_of(fn)}({wanted}, ...)"
        )
    return position.default, signature.replace(parameters=parameters[leading + 1 :])
