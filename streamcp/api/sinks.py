"""Which contract a sink keeps (see `operators.sinks`), found out when the step is described."""

from __future__ import annotations

import inspect
import io
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal, TypeAlias

from streamcp.api.functions import accepts, innermost, kind_of, name_of
from streamcp.errors import DefinitionError

Contract: TypeAlias = Literal["at_least_once", "plain", "transactional", "staged"]


@dataclass(frozen=True, slots=True)
class SinkFound:
    """A sink as the user gave it: how to open it, and whether it is one shared object."""

    open: Callable[[], Any]
    kind: Contract
    single: bool = False


class CoroutineSink:
    """A coroutine function as a sink object. An attribute, no method: one frame less per write."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        self.write = write


def find_sink(sink: Any) -> SinkFound:
    """Tell how to open `sink`: a coroutine function, a sink object, or a class or function that
    makes one per subtask.

    A function is called once here, to see what it makes: opening belongs into `__aenter__`.
    Raises DefinitionError for anything else, naming the remedy."""
    if isinstance(innermost(sink), type):
        return _made_by(sink, innermost(sink), bound=False)
    if isinstance(sink, io.IOBase):
        raise DefinitionError(
            f"sink({name_of(sink)}) is an open file, which takes text and no lists of records; "
            "write sink(sc.stdout()), sink(sc.files.json_lines(...)), or an object with "
            "write(records)"
        )
    if hasattr(sink, "write"):
        return SinkFound(lambda: sink, contract_of(sink, bound=True), single=True)
    if callable(sink) and kind_of(sink) == "coroutine":
        return _coroutine_sink(sink)
    if callable(sink) and not inspect.isbuiltin(sink) and accepts(sink, 0):
        return _made_by(sink, _made_once(sink), bound=True)
    raise DefinitionError(_no_sink(sink))


def contract_of(sink: Any, *, bound: bool) -> Contract:
    """Tell which contract the methods of `sink` keep; `bound` is False for a class."""
    described = f"sink({name_of(sink)})"
    has_prepare, has_commit, has_abort = (
        hasattr(sink, method) for method in ("prepare", "commit", "abort")
    )
    if has_prepare != has_commit or (has_abort and not has_prepare):
        have, lack = ("prepare", "commit") if has_prepare else ("commit or abort", "prepare")
        raise DefinitionError(
            f"{described} has {have} but no {lack}: exactly once needs write(records, "
            "transaction), prepare, commit (and abort); at least once needs write(records) only"
        )
    arguments = {"write": 2, "prepare": 1, "commit": 2, "abort": 1} if has_prepare else {"write": 1}
    for method, count in arguments.items():
        if hasattr(sink, method):
            may_be_plain = method == "write" and not has_prepare
            _check_method(described, method, getattr(sink, method), count, bound, may_be_plain)
    if has_prepare:
        return "transactional" if has_abort else "staged"
    return "at_least_once" if kind_of(sink.write) == "coroutine" else "plain"


def _check_method(
    described: str, method: str, fn: Any, count: int, bound: bool, may_be_plain: bool
) -> None:
    allowed = ("coroutine", "plain") if may_be_plain else ("coroutine",)
    if not callable(fn) or kind_of(fn) not in allowed:
        raise DefinitionError(f"{described}: {method} is no coroutine; write async def {method}")
    if not accepts(fn, count + (not bound)):
        wanted = {"write": "records, transaction" if count == 2 else "records"}.get(
            method, "transaction, token" if method == "commit" else "transaction"
        )
        raise DefinitionError(
            f"{described}: {method} is called as {method}({wanted}), which it does not accept"
        )


def _made_by(factory: Callable[[], Any], made: Any, *, bound: bool) -> SinkFound:
    if not hasattr(made, "write"):
        raise DefinitionError(f"sink({name_of(factory)}): {name_of(made)} has no write(records)")
    if not accepts(factory, 0):
        raise DefinitionError(
            f"sink({name_of(factory)}) is made once per subtask, without arguments; write "
            f"sink(lambda: {name_of(factory)}(...)), or give one object"
        )
    return SinkFound(factory, contract_of(made, bound=bound))


def _made_once(factory: Callable[[], Any]) -> Any:
    try:
        return factory()
    except Exception as error:  # whatever it is, the user's own function raised it: the cause
        raise DefinitionError(f"sink({name_of(factory)}) raised when it was called") from error


def _coroutine_sink(write: Any) -> SinkFound:
    if not accepts(write, 1):
        raise DefinitionError(f"sink({name_of(write)}) is called with one argument, the records")
    return SinkFound(lambda: CoroutineSink(write), "at_least_once")


def _no_sink(sink: Any) -> str:
    if callable(sink):
        return (
            f"sink({name_of(sink)}) is a plain function; a sink is async def "
            f"{name_of(sink)}(records), or an object with async def write(records). For a plain "
            f"function per record write .for_each({name_of(sink)})"
        )
    if isinstance(sink, str | PathLike):
        path = fspath(sink)
        return (
            f"sink({sink!r}) is no sink, but the name of a place; to write JSON lines there, write "
            f"sink(sc.files.json_lines({path!r}))"
        )
    return f"sink({sink!r}) is no sink: it has no async def write(records)"
