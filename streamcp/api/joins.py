"""Joins of keyed streams: what `join` and `join_asof` check, and what they make.

Describes only, as `streams` does. A join is a keyed step with two inputs whose functions are those
of a state machine; late records are a side output of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, get_args

from typing_extensions import TypeVar

from streamcp.api.functions import name_of
from streamcp.api.keyed import KeyedStream
from streamcp.api.options import check_options, check_plain
from streamcp.api.streams import Stream, add_node
from streamcp.api.windows import Division, Windowed
from streamcp.config import Duration
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection, LogicalGraph, Node
from streamcp.operators.joining.asof import AsofJoin
from streamcp.operators.joining.intervals import IntervalJoin
from streamcp.operators.joining.sides import How
from streamcp.operators.joining.window_pairs import WindowJoin
from streamcp.operators.steps import JoinAsofStep, JoinStep
from streamcp.operators.windows import LATE, ON_CLOSE, CountWindow, whole_ms

In_co = TypeVar("In_co", covariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Joined(Stream[Out_co], Generic[In_co, Out_co]):
    """What a function makes of the pairs of a join; In is the type of what comes in, of both."""

    __slots__ = ()

    def __init__(self, graph: LogicalGraph, node: Node) -> None:
        super().__init__(graph, (Connection(node),))

    @property
    def late(self) -> Stream[In_co]:
        """The records of both inputs that came too late: their partners may have been forgotten.
        Those that nobody reads are dropped, counted, and warned about once."""
        return Stream(self._graph, (Connection(self._connections[0].node, LATE.output),))


def join_interval(
    left: KeyedStream[Any, Any],
    right: Any,
    fn: Callable[..., Any],
    before: Duration,
    after: Duration,
    how: How,
    options: Mapping[str, Any],
) -> Joined[Any, Any]:
    """Add an interval join to the graph; see `KeyedStream.join`."""
    _check("join", left, right, fn, how, options)
    ms_before = whole_ms(before, setting="join(before)")
    ms_after = whole_ms(after, setting="join(after)")
    if not ms_before and not ms_after:
        raise DefinitionError(
            f"join({name_of(fn)}): only records of the same millisecond would meet; say how far "
            'apart they may be, before="5m" or after="5m" (after="1ms" at least)'
        )
    machine = IntervalJoin(fn, ms_before, ms_after, how)
    return Joined(left._graph, _add(JoinStep, machine, fn, left, right, options))


def join_asof(
    left: KeyedStream[Any, Any],
    right: Any,
    fn: Callable[..., Any],
    tolerance: Duration | None,
    how: How,
    options: Mapping[str, Any],
) -> Joined[Any, Any]:
    """Add an as-of join to the graph; see `KeyedStream.join_asof`."""
    _check("join_asof", left, right, fn, how, options, offered=("inner", "left"))
    least = None if tolerance is None else whole_ms(tolerance, setting="join_asof(tolerance)")
    machine = AsofJoin(fn, least, how)
    return Joined(left._graph, _add(JoinAsofStep, machine, fn, left, right, options))


def join_windows(
    left: Stream[Any],
    right: Any,
    fn: Callable[..., Any],
    how: How,
    division: Division,
    options: Mapping[str, Any],
) -> Windowed[Any, Any, Any]:
    """Add a join of what is in one window to the graph; see `WindowedStream.join`."""
    _check("join", left, right, fn, how, options)
    _check_division(division)
    machine = WindowJoin(division.windows, fn, how)
    return Windowed(
        left._graph, _add(JoinStep, machine, fn, left, right, options), Division(division.windows)
    )


def _check_division(division: Division) -> None:
    described = f"window({division.windows!r}"
    if isinstance(division.windows, CountWindow):
        raise DefinitionError(
            f"{described}).join(...): which records of two streams are in one window would depend "
            'on how they come; write windows of time, e.g. Tumbling("1h")'
        )
    if division.emit != ON_CLOSE:
        raise DefinitionError(
            f"{described}, emit=...).join(...): the pairs of a window are emitted once, when it "
            "closes; leave emit= out"
        )
    if division.lateness:
        raise DefinitionError(
            f"{described}, allowed_lateness=...).join(...): the pairs of a window are emitted "
            "once; leave it out, and read .late, or write more out_of_orderness= at the source"
        )


def _check(
    verb: str,
    left: Stream[Any],
    right: Any,
    fn: Callable[..., Any],
    how: str,
    options: Mapping[str, Any],
    offered: Sequence[str] = get_args(How),
) -> None:
    """Raise DefinitionError for what no join can work with."""
    check_options(verb, options, max_parallelism=left._graph.max_parallelism)
    if not isinstance(right, KeyedStream):
        raise DefinitionError(_not_keyed(verb, right))
    if how not in offered:
        raise DefinitionError(f"{verb}(how={how!r}): choose one of {', '.join(offered)}")
    check_plain(verb, fn, arguments="left, right")


class _Machine(Protocol):
    """What every join is."""

    @property
    def state(self) -> Callable[[], Any]: ...
    @property
    def on_left(self) -> Callable[..., Any]: ...
    @property
    def on_right(self) -> Callable[..., Any]: ...
    @property
    def on_timer(self) -> Callable[..., Any]: ...


def _add(
    kind: type[JoinStep],
    machine: _Machine,
    fn: Callable[..., Any],
    left: Stream[Any],
    right: Stream[Any],
    options: Mapping[str, Any],
) -> Node:
    """Add a join to the graph, with both inputs."""
    spec = kind(
        machine.on_left,
        state=machine.state,
        on_timer=machine.on_timer,
        on_right=machine.on_right,
        annotated=(fn,),
    )
    second = tuple(replace(one, port=1) for one in right._connections)
    return add_node(left._graph, spec, left._connections + second, options)


def _not_keyed(verb: str, right: object) -> str:
    remedy = "only another keyed stream can be joined"
    if isinstance(right, Stream):
        remedy = "give it the same kind of key: other.key_by(...)"
    elif hasattr(right, "aggregate"):
        remedy = "the windows are said once, on the left: give the keyed stream itself"
    return f"{verb}({type(right).__name__}): {remedy}"
