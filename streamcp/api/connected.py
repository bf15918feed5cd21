"""Two streams that one step works on together: what `connect` makes, and its `process`.

Two keyed streams share a state per key; a stream that is connected with a broadcast one reads a
state that every subtask has. Describes only, as `streams` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Generic, Literal, Never, Unpack, overload

from typing_extensions import TypeVar

from streamcp.api.options import (
    KEYED,
    Called,
    KeyedOptions,
    KeyedPooledOptions,
    PlainOptions,
    check_call,
    check_function,
    check_options,
    check_plain,
    check_timer,
    refuse_async_options,
)
from streamcp.api.states import check_state
from streamcp.api.streams import AsyncMany, Many, Opens, Step, add_node
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection, LogicalGraph
from streamcp.operators.context import BroadcastContext, KeyContext
from streamcp.operators.steps import (
    BroadcastStep,
    ConnectStep,
    KeyedBroadcastStep,
    OnError,
    StepSpec,
)
from streamcp.operators.ttl import ttl_of

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
B = TypeVar("B")
X = TypeVar("X")
L_co = TypeVar("L_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
# What the functions of both inputs and on_timer emit; none needs to emit anything.
LN = TypeVar("LN", default=Never)
RN = TypeVar("RN", default=Never)
WN = TypeVar("WN", default=Never)


class _TwoInputs:
    """The connections of both inputs."""

    __slots__ = ("_connections", "_graph")

    def __init__(
        self,
        graph: LogicalGraph,
        first: tuple[Connection, ...],
        second: tuple[Connection, ...],
    ) -> None:
        self._graph = graph
        self._connections = first + tuple(replace(one, port=1) for one in second)

    def _check(self, options: Mapping[str, Any]) -> None:
        check_options("process", options, max_parallelism=self._graph.max_parallelism)

    def _add(self, spec: StepSpec, options: Mapping[str, Any]) -> Step[Any, Any]:
        return Step(self._graph, add_node(self._graph, spec, self._connections, options))


class ConnectedStreams(_TwoInputs, Generic[K, L_co, R_co]):
    """Two keyed streams with keys of one type; `process` gives them one state per key."""

    __slots__ = ()

    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K]], Many[LN]],
        on_right: Callable[[R_co, S, KeyContext[K]], Many[RN]],
        *,
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN]] | None = None,
        **options: Unpack[KeyedOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K]], Many[LN]],
        on_right: Callable[[R_co, S, KeyContext[K]], Many[RN]],
        *,
        executor: Literal["thread"],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K]], AsyncMany[LN]],
        on_right: Callable[[R_co, S, KeyContext[K]], AsyncMany[RN]],
        *,
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN] | AsyncMany[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K], X], AsyncMany[LN]],
        on_right: Callable[[R_co, S, KeyContext[K], X], AsyncMany[RN]],
        *,
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN] | AsyncMany[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K], X], Many[LN]],
        on_right: Callable[[R_co, S, KeyContext[K], X], Many[RN]],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_left: Callable[[L_co, S, KeyContext[K], X], Many[LN]],
        on_right: Callable[[R_co, S, KeyContext[K], X], Many[RN]],
        *,
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN]] | None = None,
        **options: Unpack[KeyedOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    def process(
        self,
        on_left: Callable[..., Any],
        on_right: Callable[..., Any],
        *,
        state: Callable[[], Any],
        on_timer: Callable[..., Any] | None = None,
        uses: Opens[Any] | None = None,
        **options: Any,
    ) -> Step[Any, Any]:
        """Call `on_left(record, state, context)` or `on_right(record, state, context)`, whichever
        stream the record came by, and emit what it gives, as `KeyedStream.process` does.

        Both share the state and the timers of the record's key, and run one after another for it;
        the records of one stream and key keep their order, those of two streams have none. Either
        both are plain functions or both are coroutine functions. A record that fails and is
        diverted comes out of `.errors` whichever stream it came by. `ttl` is as there; a call of
        either function updates the state."""
        self._check(options)
        called = check_call("process", on_left, options, uses=uses, arguments=KEYED)
        right = check_call("process", on_right, options, uses=uses, arguments=KEYED)
        _check_same_kind(on_left, called, on_right, right)
        described = check_function("process", on_left)
        check_state(described, state)
        if on_timer is not None:
            check_timer(described, on_timer, called)
        spec = ConnectStep(
            on_left,
            called.calls,
            called.uses,
            called.on_error,
            state=state,
            on_timer=on_timer,
            on_right=on_right,
            ttl=ttl_of(described, options.get("ttl")),
        )
        return self._add(spec, options)


class ConnectedBroadcast(_TwoInputs, Generic[L_co, R_co]):
    """A stream and a broadcast one: the records of the first read what those of the second have
    written, on every subtask."""

    __slots__ = ()

    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_record: Callable[[L_co, B], Many[LN]],
        on_broadcast: Callable[[R_co, B], Many[RN]],
        *,
        broadcast_state: Callable[[], B],
        **options: Unpack[PlainOptions],
    ) -> Step[L_co | R_co, LN | RN]:
        """Call `on_record(record, shared)` for each record of the stream, on one subtask, and
        `on_broadcast(record, shared)` for each of the broadcast one, on every subtask; emit what
        they give, as `flat_map` does.

        `broadcast_state` makes `shared`, once per subtask; `on_broadcast` changes it in place, and
        what it makes of it must depend on the record and `shared` only, so that all subtasks have
        the same. `on_record` only reads it: a change there fails the job when it is found, which
        is looked for in some of the slices. What `on_broadcast` emits comes once per subtask.
        Both are plain functions. The two streams have no order between them."""
        self._check(options)
        _refuse_ttl(options)
        return self._add(self._unkeyed(on_record, on_broadcast, broadcast_state, options), options)

    def _unkeyed(
        self,
        on_record: Callable[..., Any],
        on_broadcast: Callable[..., Any],
        broadcast_state: Callable[[], Any],
        options: Mapping[str, Any],
    ) -> BroadcastStep:
        on_error = _check_broadcast(
            (on_record, "record, shared"),
            (on_broadcast, "record, shared"),
            broadcast_state,
            options,
        )
        return BroadcastStep(
            on_record,
            on_error=on_error,
            on_broadcast=on_broadcast,
            broadcast_state=broadcast_state,
        )


class KeyedConnectedBroadcast(ConnectedBroadcast[L_co, R_co], Generic[K, L_co, R_co]):
    """The same of a keyed stream, whose records have a state per key as well."""

    __slots__ = ()

    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_record: Callable[[L_co, S, B, KeyContext[K]], Many[LN]],
        on_broadcast: Callable[[R_co, B, BroadcastContext[K, S]], Many[RN]],
        *,
        state: Callable[[], S],
        broadcast_state: Callable[[], B],
        on_timer: Callable[[int, S, B, KeyContext[K]], Many[WN]] | None = None,
        **options: Unpack[KeyedOptions],
    ) -> Step[L_co | R_co, LN | RN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        on_record: Callable[[L_co, B], Many[LN]],
        on_broadcast: Callable[[R_co, B], Many[RN]],
        *,
        broadcast_state: Callable[[], B],
        **options: Unpack[PlainOptions],
    ) -> Step[L_co | R_co, LN | RN]: ...
    def process(
        self,
        on_record: Callable[..., Any],
        on_broadcast: Callable[..., Any],
        *,
        broadcast_state: Callable[[], Any],
        state: Callable[[], Any] | None = None,
        on_timer: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Step[Any, Any]:
        """Call `on_record(record, state, shared, context)` for each record of the keyed stream, on
        the subtask of its key, and `on_broadcast(record, shared, context)` for each of the
        broadcast one, on every subtask.

        `state`, `ttl` and `on_timer(timestamp, state, shared, context)` are as in
        `KeyedStream.process`, `shared` is as in the unkeyed form, which is the one without `state`.
        The context of `on_broadcast` shows the states of the subtask's keys and can change none."""
        self._check(options)
        if state is None:
            if on_timer is not None:
                raise DefinitionError("process(on_timer=) needs state=: timers belong to a key")
            _refuse_ttl(options)
            spec = self._unkeyed(on_record, on_broadcast, broadcast_state, options)
            return self._add(spec, options)
        on_error = _check_broadcast(
            (on_record, "record, state, shared, context"),
            (on_broadcast, "record, shared, context"),
            broadcast_state,
            options,
        )
        described = check_function("process", on_record)
        check_state(described, state)
        if on_timer is not None:
            called = Called(None, None, on_error)
            check_timer(described, on_timer, called, arguments="timestamp, state, shared, context")
        return self._add(
            KeyedBroadcastStep(
                on_record,
                on_error=on_error,
                state=state,
                on_timer=on_timer,
                on_broadcast=on_broadcast,
                broadcast_state=broadcast_state,
                ttl=ttl_of(described, options.get("ttl")),
            ),
            options,
        )


def _refuse_ttl(options: Mapping[str, Any]) -> None:
    if options.get("ttl") is not None:
        raise DefinitionError(
            "process(ttl=) needs state=: what expires is the state of a key; a broadcast state is "
            "the same on all subtasks, and stays"
        )


def _check_same_kind(
    on_left: Callable[..., Any], left: Called, on_right: Callable[..., Any], right: Called
) -> None:
    if (left.calls is None) != (right.calls is None):
        names = [check_function("process", fn) for fn in (on_left, on_right)]
        plain, other = names if left.calls is None else reversed(names)
        raise DefinitionError(
            f"{plain} is a plain function, but {other} of the other input is a coroutine "
            "function; write both with async def, or neither"
        )


def _check_broadcast(
    on_record: tuple[Callable[..., Any], str],
    on_broadcast: tuple[Callable[..., Any], str],
    broadcast_state: Callable[[], Any],
    options: Mapping[str, Any],
) -> OnError:
    """Check both functions, each with its arguments, and what makes the state."""
    reason = "the functions of a step with a broadcast input are called inline"
    refuse_async_options("process", options, reason)
    for fn, arguments in (on_record, on_broadcast):
        check_plain("process", fn, arguments=arguments, generators=True)
    check_state(check_function("process", on_record[0]), broadcast_state, "broadcast_state")
    on_error: OnError = options.get("on_error", "fail")
    return on_error
