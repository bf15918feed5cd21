"""`KeyedStream`: the verbs that work per key, and draw steps with a state.

They draw as those of `Stream` do (see `streams`), which knows this class only to make one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Unpack, overload

from typing_extensions import TypeVar

from streamcp.api.options import (
    KEYED,
    KeyedOptions,
    KeyedPooledOptions,
    StepOptions,
    check_call,
    check_function,
    check_plain,
    check_timer,
)
from streamcp.api.states import check_state
from streamcp.api.streams import AsyncMany, BroadcastStream, Many, Opens, Step, Stream
from streamcp.config import Duration
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection
from streamcp.operators.context import KeyContext
from streamcp.operators.steps import (
    CountStep,
    DeduplicateStep,
    ProcessStep,
    ReduceStep,
    ScanStep,
    StepSpec,
)
from streamcp.operators.ttl import ttl_of
from streamcp.operators.windows import ON_CLOSE, Emit, Windows, whole_ms

if TYPE_CHECKING:
    from streamcp.api.connected import ConnectedStreams, KeyedConnectedBroadcast
    from streamcp.api.joins import Joined
    from streamcp.api.windows import WindowedStream

U = TypeVar("U")
V = TypeVar("V")
S = TypeVar("S")
X = TypeVar("X")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
T_co = TypeVar("T_co", covariant=True)
# What fn and what on_timer emit; neither needs to emit anything.
UN = TypeVar("UN", default=Never)
WN = TypeVar("WN", default=Never)


class KeyedStream(Stream[T_co], Generic[K, T_co]):
    """Records divided by a key of type K; the verbs of `Stream` give unkeyed streams."""

    __slots__ = ()

    def reduce(
        self, fn: Callable[[T_co, T_co], T_co], **options: Unpack[StepOptions]
    ) -> Stream[T_co]:
        """Per key: start with the first record, then `fn(value, record)`; emit each new value."""
        self._check("reduce", options)
        check_plain("reduce", fn, arguments="value, record")
        return self._keyed(ReduceStep(fn), options)

    def scan(
        self, start: Callable[[], V], fn: Callable[[V, T_co], V], **options: Unpack[StepOptions]
    ) -> Stream[V]:
        """Per key: start with `start()`, then `fn(value, record)`; emit each new value.

        `fn` must return a new value, not a changed one: each is emitted and kept."""
        self._check("scan", options)
        check_plain("scan", start, arguments="")
        check_plain("scan", fn, arguments="value, record")
        return self._keyed(ScanStep(start, fn), options)

    def count(self, **options: Unpack[StepOptions]) -> Stream[tuple[K, int]]:
        """Per key: emit `(key, number of records so far)` for each record."""
        self._check("count", options)
        return self._keyed(CountStep(), options)

    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K]], Many[UN]],
        *,
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN]] | None = None,
        **options: Unpack[KeyedOptions],
    ) -> Step[T_co, UN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K]], Many[UN]],
        *,
        executor: Literal["thread"],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[T_co, UN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K], X], Many[UN]],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[T_co, UN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K]], AsyncMany[UN]],
        *,
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K]], Many[WN] | AsyncMany[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[T_co, UN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K], X], AsyncMany[UN]],
        *,
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN] | AsyncMany[WN]] | None = None,
        **options: Unpack[KeyedPooledOptions],
    ) -> Step[T_co, UN | WN]: ...
    @overload
    def process(  # pyright: ignore[reportInvalidTypeVarUse]
        self,
        fn: Callable[[T_co, S, KeyContext[K], X], Many[UN]],
        *,
        uses: Opens[X],
        state: Callable[[], S],
        on_timer: Callable[[int, S, KeyContext[K], X], Many[WN]] | None = None,
        **options: Unpack[KeyedOptions],
    ) -> Step[T_co, UN | WN]: ...
    def process(
        self,
        fn: Callable[..., Any],
        *,
        state: Callable[[], Any],
        on_timer: Callable[..., Any] | None = None,
        uses: Opens[Any] | None = None,
        **options: Any,
    ) -> Step[Any, Any]:
        """Call `fn(record, state, context)` and emit what it gives, as `flat_map` does.

        `state` makes a fresh state per key, which the function changes in place; it belongs to the
        call. `on_timer(timestamp, state, context)` is called for each timer that is due. Records
        and timers of one key run one after another, in order; a coroutine function works for
        different keys at the same time.

        With `ttl` the state of a key is dropped that no call has updated for so long, which each
        call does that returns: the next record finds a fresh one, and the memory is freed. Time is
        event time on a stream with watermarks, else processing time; `ttl=sc.Ttl("7d",
        clock="processing")` chooses. Timers are kept, and fire with a fresh state."""
        self._check("process", options)
        called = check_call("process", fn, options, uses=uses, arguments=KEYED)
        described = check_function("process", fn)
        check_state(described, state)
        if on_timer is not None:
            check_timer(described, on_timer, called)
        spec = ProcessStep(
            fn,
            called.calls,
            called.uses,
            called.on_error,
            state=state,
            on_timer=on_timer,
            ttl=ttl_of(described, options.get("ttl")),
        )
        return Step(self._graph, self._add(spec, options))

    @overload
    def connect(self, other: KeyedStream[K, U], /) -> ConnectedStreams[K, T_co, U]: ...
    @overload
    def connect(self, other: BroadcastStream[U], /) -> KeyedConnectedBroadcast[K, T_co, U]: ...
    def connect(self, other: Any, /) -> Any:
        """Read this stream together with another keyed one, whose keys are of the same type, or
        with a broadcast one, in one step: `.process(...)`."""
        from streamcp.api.connected import ConnectedStreams, KeyedConnectedBroadcast

        if isinstance(other, BroadcastStream):
            return KeyedConnectedBroadcast(self._graph, self._connections, other.connections)
        if not isinstance(other, KeyedStream):
            raise DefinitionError(_not_keyed(other))
        return ConnectedStreams(self._graph, self._connections, other._connections)

    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R], U],
        /,
        *,
        before: Duration = ...,
        after: Duration = ...,
        how: Literal["inner"] = ...,
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R | None], U],
        /,
        *,
        before: Duration = ...,
        after: Duration = ...,
        how: Literal["left"],
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co | None, R], U],
        /,
        *,
        before: Duration = ...,
        after: Duration = ...,
        how: Literal["right"],
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co | None, R | None], U],
        /,
        *,
        before: Duration = ...,
        after: Duration = ...,
        how: Literal["outer"],
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    def join(
        self,
        other: Any,
        fn: Callable[..., Any],
        /,
        *,
        before: Duration = "0s",
        after: Duration = "0s",
        how: Any = "inner",
        **options: Any,
    ) -> Joined[Any, Any]:
        """Emit `fn(left, right)` for each record of this stream (left) and each of the `other`
        (right) with the same key that came between `before` it and `after` it in event time, both
        inclusive.

        A pair comes as soon as both are there, and its timestamp is the later one of both. With
        `how` "left", "right" or "outer", a record of that input (or of both) that has met none
        comes as well, with None in place of the other one, when the watermark has shown that none
        can come. A record that is late goes to `.late`."""
        from streamcp.api.joins import join_interval

        return join_interval(self, other, fn, before, after, how, options)

    @overload
    def join_asof(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R], U],
        /,
        *,
        tolerance: Duration | None = ...,
        how: Literal["inner"] = ...,
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    @overload
    def join_asof(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R | None], U],
        /,
        *,
        tolerance: Duration | None = ...,
        how: Literal["left"],
        **options: Unpack[StepOptions],
    ) -> Joined[T_co | R, U]: ...
    def join_asof(
        self,
        other: Any,
        fn: Callable[..., Any],
        /,
        *,
        tolerance: Duration | None = None,
        how: Any = "inner",
        **options: Any,
    ) -> Joined[Any, Any]:
        """Emit `fn(left, right)` for each record of this stream (left) with the newest of the
        `other` (right) with the same key whose timestamp is not later than that of left, nor older
        by more than `tolerance`; of equally new ones with the one that came last.

        It comes when the watermark has reached left's timestamp, and has that timestamp. With
        `how="left"` a record comes with None if there is no such one. A record that is late goes to
        `.late`. Without `tolerance` the newest record of every key of `other` is kept for good."""
        from streamcp.api.joins import join_asof

        return join_asof(self, other, fn, tolerance, how, options)

    def deduplicate(
        self, *, within: Duration | None = None, **options: Unpack[StepOptions]
    ) -> Stream[T_co]:
        """Per key: emit the first record, and none behind it; with `within`, none whose timestamp
        is less than so long after that of the one that was emitted (without event time: that comes
        less than so long after it). Then the key is forgotten; without `within` it never is.

        Which of two records is the first is a question of their arrival, not of timestamps."""
        from streamcp.operators.deduplicating import Deduplication, Passed

        self._check("deduplicate", options)
        least = None if within is None else whole_ms(within, setting="deduplicate(within)", least=1)
        machine = Deduplication(least)
        on_timer = None if least is None else machine.on_timer
        return self._keyed(DeduplicateStep(machine.fn, state=Passed, on_timer=on_timer), options)

    def window(
        self,
        windows: Windows,
        /,
        *,
        allowed_lateness: Duration = "0s",
        emit: Emit = ON_CLOSE,
        **options: Unpack[StepOptions],
    ) -> WindowedStream[K, T_co]:
        """Divide each key's records into windows by event time (count windows: by number); what is
        made of a window is said next: `.window(...).aggregate(...)`. The options are the step's.

        A window's result is emitted when the watermark has passed its end, or as `emit` says
        (`early(every=...)`, `on_each()`). A record that comes later, within `allowed_lateness`,
        lets it be emitted again; one that is too late for all its windows goes to `.late`."""
        from streamcp.api.windows import Division, WindowedStream
        from streamcp.operators.windowing.making import check_windows

        self._check("window", options)
        lateness = whole_ms(allowed_lateness, setting="window(allowed_lateness)")
        if not isinstance(emit, Emit):
            raise DefinitionError(
                f"window(emit={emit!r}): write early(every=...) or on_each(), or leave it out"
            )
        check_windows(windows, emit, lateness)
        return WindowedStream(self, Division(windows, emit, lateness), options)

    def _keyed(self, spec: StepSpec, options: Mapping[str, Any]) -> Stream[Any]:
        return Stream(self._graph, (Connection(self._add(spec, options)),))


def _not_keyed(other: object) -> str:
    remedy = "only a keyed or a broadcast stream can be connected"
    if isinstance(other, Stream):
        remedy = "give it the same kind of key, other.key_by(...), or write other.broadcast()"
    return f"connect({type(other).__name__}): {remedy}"
