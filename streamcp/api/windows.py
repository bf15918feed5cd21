"""Windows of keyed streams: what `window` makes, and what is made of the records of each window.

Describes only, as `streams` does. A window step is a keyed `process` step whose functions are those
of a window machine; the late records are a side output of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, Unpack, overload

from typing_extensions import TypeVar

from streamcp.api.functions import name_of
from streamcp.api.options import AsyncCallOptions, PlainOptions, check_function, check_plain
from streamcp.api.streams import AsyncMany, Many, Opens, Step, Stream, add_node
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection, LogicalGraph, Node
from streamcp.operators.aggregates import Aggregate, Count, Several
from streamcp.operators.collecting import Fold, Records, Reduce
from streamcp.operators.steps import FlatMapStep, WindowStep
from streamcp.operators.windowing.making import make_window_machine, needs_merge, needs_time
from streamcp.operators.windows import LATE, Emit, WindowResult, Windows

K = TypeVar("K", bound=Hashable)
K_co = TypeVar("K_co", bound=Hashable, covariant=True)
T_co = TypeVar("T_co", covariant=True)
U_co = TypeVar("U_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
X = TypeVar("X")
V1 = TypeVar("V1")
V2 = TypeVar("V2")
V3 = TypeVar("V3")
V4 = TypeVar("V4")
V5 = TypeVar("V5")


class Windowed(Stream[WindowResult[K_co, V_co]], Generic[K_co, T_co, V_co]):
    """The results of windows over records of type T: `key`, `start`, `end` and `value`."""

    __slots__ = ()

    def __init__(self, graph: LogicalGraph, node: Node) -> None:
        super().__init__(graph, (Connection(node),))

    @property
    def late(self) -> Stream[T_co]:
        """The records that came too late for all their windows. Those that nobody reads are
        dropped, counted, and warned about once."""
        return Stream(self._graph, (Connection(self._connections[0].node, LATE.output),))


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

    __slots__ = ("_connections", "_emit", "_graph", "_lateness", "_options", "_windows")

    def __init__(
        self,
        graph: LogicalGraph,
        connections: tuple[Connection, ...],
        windows: Windows,
        emit: Emit,
        lateness: int,
        options: Mapping[str, Any],
    ) -> None:
        self._graph = graph
        self._connections = connections
        self._windows = windows
        self._emit = emit
        self._lateness = lateness
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
        elif needs_merge(self._windows):
            raise DefinitionError(
                f"fold({name_of(start)}, {name_of(add)}): the values of {self._windows!r} are "
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

    def _windowed(
        self, aggregate: Aggregate[Any, Any], annotated: Iterable[Callable[..., Any]]
    ) -> Windowed[Any, Any, Any]:
        machine = make_window_machine(self._windows, aggregate, self._emit, self._lateness, LATE)
        spec = WindowStep(
            machine.fn,
            state=machine.state,
            on_timer=machine.timer,
            needs_time=needs_time(self._windows, self._emit),
            annotated=tuple(annotated),
        )
        return Windowed(self._graph, add_node(self._graph, spec, self._connections, self._options))


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
