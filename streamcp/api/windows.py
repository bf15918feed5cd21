"""Windows of keyed streams: what `window` makes, and what is made of the records of each window.

Describes only, as `streams` does. A window step is a keyed `process` step whose functions are those
of a window machine; the late records are a side output of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Unpack, overload

from typing_extensions import TypeVar

from streamcp.api.functions import name_of
from streamcp.api.keyed import KeyedStream
from streamcp.api.options import (
    AsyncCallOptions,
    PlainOptions,
    StepOptions,
    check_function,
    check_plain,
)
from streamcp.api.streams import AsyncMany, Many, Opens, Step, Stream, add_node
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection, LogicalGraph, Node
from streamcp.operators.aggregates import Aggregate, Count, Several
from streamcp.operators.collecting import Fold, Records, Reduce
from streamcp.operators.steps import FlatMapStep, WindowStep
from streamcp.operators.windowing.making import make_window_machine, needs_merge, needs_time
from streamcp.operators.windows import LATE, ON_CLOSE, Emit, WindowResult, Windows

K = TypeVar("K", bound=Hashable)
K_co = TypeVar("K_co", bound=Hashable, covariant=True)
T_co = TypeVar("T_co", covariant=True)
U_co = TypeVar("U_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
G = TypeVar("G", bound=Hashable)
R = TypeVar("R")
U = TypeVar("U")
V = TypeVar("V")
X = TypeVar("X")
V1 = TypeVar("V1")
V2 = TypeVar("V2")
V3 = TypeVar("V3")
V4 = TypeVar("V4")
V5 = TypeVar("V5")


@dataclass(frozen=True, slots=True)
class Division:
    """How records are divided into windows, and when the results of these come; `lateness` is in
    milliseconds."""

    windows: Windows
    emit: Emit = ON_CLOSE
    lateness: int = 0

    @property
    def refined(self) -> bool:
        """The result of a window may come again."""
        return self.lateness > 0 or self.emit.kind != "on_close"


class Windowed(Stream[WindowResult[K_co, V_co]], Generic[K_co, T_co, V_co]):
    """The results of windows over records of type T: `key`, `start`, `end` and `value`."""

    __slots__ = ("_division",)

    def __init__(self, graph: LogicalGraph, node: Node, division: Division) -> None:
        super().__init__(graph, (Connection(node),))
        self._division = division

    @property
    def late(self) -> Stream[T_co]:
        """The records that came too late for all their windows. Those that nobody reads are
        dropped, counted, and warned about once."""
        return Stream(self._graph, (Connection(self._connections[0].node, LATE.output),))

    @overload
    def top(
        self,
        n: int,
        /,
        *,
        by: Callable[[WindowResult[K_co, V_co]], Any],
        **options: Unpack[StepOptions],
    ) -> Stream[WindowResult[None, list[WindowResult[K_co, V_co]]]]: ...
    @overload
    def top(
        self,
        n: int,
        /,
        *,
        by: Callable[[WindowResult[K_co, V_co]], Any],
        per: Callable[[WindowResult[K_co, V_co]], G],
        **options: Unpack[StepOptions],
    ) -> Stream[WindowResult[G, list[WindowResult[K_co, V_co]]]]: ...
    def top(
        self,
        n: int,
        /,
        *,
        by: Callable[..., Any],
        per: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Stream[Any]:
        """Emit, when a window closes, the `n` results of all keys with the largest `by(result)`,
        largest first, as the value of one result; its key is None, or with `per` the group
        `per(result)`, each of which has a result of its own.

        Equal ones are ordered by a stable hash of their keys: always the same, but no meaningful
        order; for one of your own let `by` return a tuple. Where results may come again (allowed
        lateness, early, on each) the last one of a key counts; after the close the best are emitted
        again when they are others."""
        from streamcp.api.top import top_of

        return top_of(self, self._division, n, by, per, options)


class WindowProcess(Step[WindowResult[K_co, list[T_co]], U_co], Generic[K_co, T_co, U_co]):
    """What a function makes of all records of each window."""

    __slots__ = ("_windows",)

    def __init__(self, graph: LogicalGraph, node: Node, windows: Node) -> None:
        super().__init__(graph, node)
        self._windows = windows

    @property
    def late(self) -> Stream[T_co]:
        """The records that came too late for all their windows; see `Windowed.late`."""
        return Stream(self._graph, (Connection(self._windows, LATE.output),))


class WindowedStream(Generic[K, T_co]):
    """A keyed stream whose records are divided into windows; each verb says what is made of them.

    Every verb raises DefinitionError at its line for an argument that cannot work."""

    __slots__ = ("_division", "_graph", "_keyed", "_options")

    def __init__(
        self, keyed: KeyedStream[K, T_co], division: Division, options: Mapping[str, Any]
    ) -> None:
        self._graph = keyed._graph
        self._keyed = keyed
        self._division = division
        self._options = options

    @overload
    def aggregate(self, a: Aggregate[T_co, V1], /) -> Windowed[K, T_co, V1]: ...
    @overload
    def aggregate(
        self, a: Aggregate[T_co, V1], b: Aggregate[T_co, V2], /, *, into: Callable[[V1, V2], V]
    ) -> Windowed[K, T_co, V]: ...
    @overload
    def aggregate(
        self,
        a: Aggregate[T_co, V1],
        b: Aggregate[T_co, V2],
        c: Aggregate[T_co, V3],
        /,
        *,
        into: Callable[[V1, V2, V3], V],
    ) -> Windowed[K, T_co, V]: ...
    @overload
    def aggregate(
        self,
        a: Aggregate[T_co, V1],
        b: Aggregate[T_co, V2],
        c: Aggregate[T_co, V3],
        d: Aggregate[T_co, V4],
        /,
        *,
        into: Callable[[V1, V2, V3, V4], V],
    ) -> Windowed[K, T_co, V]: ...
    @overload
    def aggregate(
        self,
        a: Aggregate[T_co, V1],
        b: Aggregate[T_co, V2],
        c: Aggregate[T_co, V3],
        d: Aggregate[T_co, V4],
        e: Aggregate[T_co, V5],
        /,
        *,
        into: Callable[[V1, V2, V3, V4, V5], V],
    ) -> Windowed[K, T_co, V]: ...
    def aggregate(
        self, *aggregates: Aggregate[Any, Any], into: Callable[..., Any] | None = None
    ) -> Windowed[Any, Any, Any]:
        """Make one value of the records of each window; or several, of which `into` (a dataclass,
        or any function of the values in their order) makes one."""
        for aggregate in aggregates:
            _check_aggregate(aggregate)
        if into is None:
            if len(aggregates) != 1:
                raise DefinitionError(
                    f"aggregate() of {len(aggregates)} aggregates: write into=, a dataclass or a "
                    "function that takes their values"
                )
            return self._windowed(aggregates[0], _annotated(aggregates))
        check_plain("aggregate", into, arguments=", ".join(type(a).__name__ for a in aggregates))
        return self._windowed(Several(aggregates, into), [*_annotated(aggregates), into])

    def count(self) -> Windowed[K, T_co, int]:
        """Count the records of each window."""
        return self._windowed(Count(), ())

    def fold(
        self,
        start: Callable[[], V],
        add: Callable[[V, T_co], V],
        /,
        *,
        merge: Callable[[V, V], V] | None = None,
    ) -> Windowed[K, T_co, V]:
        """Begin each window with `start()`, then `add(value, record)`, which returns the new value
        (it may be the old one, changed in place). Windows that are made of parts (sliding ones,
        sessions, overlapping count windows) need `merge(left, right)`, which returns one value of
        two and changes neither."""
        check_plain("fold", start, arguments="")
        check_plain("fold", add, arguments="value, record")
        if merge is not None:
            check_plain("fold", merge, arguments="left, right")
        elif needs_merge(windows := self._division.windows):
            raise DefinitionError(
                f"fold({name_of(start)}, {name_of(add)}): the values of {windows!r} are "
                "merged of parts; write merge=, a function that makes one value of two"
            )
        fold: Fold[Any, Any] = Fold(start, add, merge)
        return self._windowed(fold, [start, add])

    def reduce(self, fn: Callable[[T_co, T_co], T_co], /) -> Windowed[K, T_co, T_co]:
        """Begin each window with its first record, then `fn(value, record)`, which returns a new
        value; it also makes one of two values."""
        check_plain("reduce", fn, arguments="value, record")
        reduce: Reduce[Any] = Reduce(fn)
        return self._windowed(reduce, [fn])

    @overload
    def process(
        self,
        fn: Callable[[WindowResult[K, list[T_co]]], Many[U]],
        **options: Unpack[PlainOptions],
    ) -> WindowProcess[K, T_co, U]: ...
    @overload
    def process(
        self,
        fn: Callable[[WindowResult[K, list[T_co]]], AsyncMany[U]],
        **options: Unpack[AsyncCallOptions],
    ) -> WindowProcess[K, T_co, U]: ...
    @overload
    def process(
        self,
        fn: Callable[[WindowResult[K, list[T_co]], X], AsyncMany[U]],
        *,
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> WindowProcess[K, T_co, U]: ...
    @overload
    def process(
        self,
        fn: Callable[[WindowResult[K, list[T_co]], X], Many[U]],
        *,
        uses: Opens[X],
        **options: Unpack[PlainOptions],
    ) -> WindowProcess[K, T_co, U]: ...
    def process(
        self, fn: Callable[..., Any], *, uses: Opens[Any] | None = None, **options: Any
    ) -> WindowProcess[Any, Any, Any]:
        """Keep all records of each window, and emit every value of what `fn(window)` gives for it,
        as `flat_map` does; `window.value` is the list of records. `name` and the other options are
        those of `fn`: it is a step of its own behind the window, and may be a coroutine function.
        Its parallelism is that of the window, unless told otherwise.

        The records are in the order in which they came; those of sessions that became one, and of
        the parts of sliding windows, follow one another in time."""
        check_function("process", fn)
        options.setdefault("parallelism", self._options.get("parallelism"))
        windows = self._windowed(Records(), ())
        node = windows._call_node("flat_map", FlatMapStep, fn, uses, options)
        return WindowProcess(self._graph, node, windows._connections[0].node)

    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R], V],
        /,
        *,
        how: Literal["inner"] = ...,
        **options: Unpack[StepOptions],
    ) -> Windowed[K, T_co | R, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co, R | None], V],
        /,
        *,
        how: Literal["left"],
        **options: Unpack[StepOptions],
    ) -> Windowed[K, T_co | R, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co | None, R], V],
        /,
        *,
        how: Literal["right"],
        **options: Unpack[StepOptions],
    ) -> Windowed[K, T_co | R, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, R],
        fn: Callable[[T_co | None, R | None], V],
        /,
        *,
        how: Literal["outer"],
        **options: Unpack[StepOptions],
    ) -> Windowed[K, T_co | R, V]: ...
    def join(
        self, other: Any, fn: Callable[..., Any], /, *, how: Any = "inner", **options: Any
    ) -> Windowed[Any, Any, Any]:
        """Emit, when a window closes, a result with the value `fn(left, right)` for each pair of a
        record of this stream (left) and one of the `other` (right) with the same key in the same
        window: for each left one in the order in which they came, all right ones in theirs. Of the
        parts of sliding windows and sessions, the records follow one another in time.

        With `how` "left", "right" or "outer", the records of that input (or of both) come with None
        where the other has none in the window. Sessions are those of both inputs together. The
        options may be said here or at the window. Results come on close only."""
        from streamcp.api.joins import join_windows

        options = {**self._options, **options}
        return join_windows(self._keyed, other, fn, how, self._division, options)

    def _windowed(
        self, aggregate: Aggregate[Any, Any], annotated: Iterable[Callable[..., Any]]
    ) -> Windowed[Any, Any, Any]:
        windows, emit = self._division.windows, self._division.emit
        machine = make_window_machine(windows, aggregate, emit, self._division.lateness, LATE)
        spec = WindowStep(
            machine.fn,
            state=machine.state,
            on_timer=machine.timer,
            shortcuts=machine.shortcuts,
            needs_time=needs_time(windows, emit),
            annotated=tuple(annotated),
        )
        node = add_node(self._graph, spec, self._keyed._connections, self._options)
        return Windowed(self._graph, node, self._division)


def _check_aggregate(aggregate: Any) -> None:
    if isinstance(aggregate, type):
        raise DefinitionError(
            f"aggregate({aggregate.__name__}): write {aggregate.__name__}(...), an object"
        )
    missing = [
        name
        for name in ("create", "add", "merge", "result")
        if not callable(getattr(aggregate, name, None))
    ]
    if missing:
        raise DefinitionError(
            f"aggregate({aggregate!r}): it has no {', '.join(missing)}; write sc.Count(), "
            "sc.Sum(lambda record: record.amount), or an object with create, add, merge and result"
        )


def _annotated(aggregates: Iterable[Any]) -> list[Callable[..., Any]]:
    """What of aggregates may be annotated with classes that are in accumulators and results."""
    found: list[Callable[..., Any]] = []
    for aggregate in aggregates:
        found += [aggregate.create, aggregate.add, aggregate.result]
        of = getattr(aggregate, "of", None)
        found += [of] if callable(of) else []
    return found
