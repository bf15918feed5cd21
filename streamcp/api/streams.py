"""Streams: the verbs with which users draw a job.

Each verb checks its arguments and adds one node to the job's logical graph, with the place of the
call; `key_by`, `rebalance`, `broadcast`, `union` and `connect` add none, they say how the next
step is connected. Nothing here runs anything. In the overloads of `map`, `filter` and `for_each`
coroutines come first (a plain result type would swallow them); in `flat_map` and `process` last
(clearer messages).
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeGuard,
    Unpack,
    overload,
)

from typing_extensions import TypeIs, TypeVar

from streamcp.api.functions import kind_of, name_of
from streamcp.api.options import (
    AsyncCallOptions,
    LookupOptions,
    PlainOptions,
    PooledOptions,
    SinkOptions,
    StepOptions,
    check_call,
    check_options,
    check_plain,
)
from streamcp.api.places import calling_place
from streamcp.api.sinks import Contract, find_sink
from streamcp.config import Duration, seconds
from streamcp.errors import DefinitionError
from streamcp.graph.logical import (
    Broadcast,
    Connection,
    Exchange,
    HashByKey,
    LogicalGraph,
    Node,
    Rebalance,
)
from streamcp.operators.failures import Failure
from streamcp.operators.sinks import PlainSink, Sink, StagedSink
from streamcp.operators.steps import (
    BatchStep,
    BranchStep,
    Executor,
    FilterStep,
    FlatMapStep,
    ForEachStep,
    InspectStep,
    IterateStep,
    MapStep,
    ProcessStep,
    SourceStep,
    StepSpec,
    UnbatchStep,
)
from streamcp.operators.steps import SinkStep as SinkSpec
from streamcp.operators.tags import Tag

if TYPE_CHECKING:
    from streamcp.api.connected import ConnectedBroadcast
    from streamcp.api.keyed import KeyedStream

U = TypeVar("U")
X = TypeVar("X")
A = TypeVar("A")
NewKey = TypeVar("NewKey", bound=Hashable)
In_co = TypeVar("In_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

Opens: TypeAlias = Callable[[], AbstractAsyncContextManager[X, Any]]
Many: TypeAlias = Iterable[U] | None
AsyncMany: TypeAlias = AsyncIterator[U] | Coroutine[Any, Any, Iterable[U] | None]

_PER_KEY = frozenset(
    ("reduce", "count", "scan", "process", "join", "join_asof", "deduplicate", "window")
)


def add_node(
    graph: LogicalGraph, spec: StepSpec, inputs: tuple[Connection, ...], options: Mapping[str, Any]
) -> Node:
    """Append a step to `graph` in the order of definition, with the place of the user's call."""
    node = Node(
        number=len(graph.nodes),
        spec=spec,
        inputs=inputs,
        place=calling_place(),
        name=options.get("name"),
        parallelism=options.get("parallelism"),
    )
    graph.nodes.append(node)
    return node


class Stream(Generic[T_co]):
    """Records of type T on their way from a step to whoever reads them.

    Made by `Job.source` and by the verbs; may be read by any number of steps, each of which gets
    every record. Records are shared, not copied: treat them as immutable.

    Options that every verb with a function has: `name` (unique in the job), `parallelism`,
    `on_error` ("fail" the job, "drop" the record and count it, or "divert" it to `.errors`).
    A coroutine function runs in a bounded pool and has more: `concurrency` (16 records at once per
    subtask), `ordered` (True: results leave in the order of the records), `timeout` per call, and
    `retry`, `rate` and `breaker`; so has a plain one with `executor="thread"`, for functions that
    block, or `executor="process"`, for functions that compute. `uses=` opens a service that
    becomes the function's last argument.

    Every verb raises DefinitionError at its line for an argument that cannot work.
    """

    __slots__ = ("_connections", "_graph")

    def __init__(self, graph: LogicalGraph, connections: tuple[Connection, ...]) -> None:
        self._graph = graph
        self._connections = connections

    if not TYPE_CHECKING:  # a type checker would take any word for an attribute

        def __getattr__(self, name: str) -> Any:
            """Lead from a verb that works per key to `key_by`."""
            told = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _PER_KEY:
                told += f": {name}() works per key; divide the stream first: .key_by(...).{name}()"
            raise AttributeError(told, name=name, obj=self)

    @overload
    def map(
        self, fn: Callable[[T_co], Coroutine[Any, Any, U]], **options: Unpack[AsyncCallOptions]
    ) -> Step[T_co, U]: ...
    @overload
    def map(
        self,
        fn: Callable[[T_co, X], Coroutine[Any, Any, U]],
        *,
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def map(
        self,
        fn: Callable[[T_co], U],
        *,
        executor: Executor,
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def map(
        self,
        fn: Callable[[T_co, X], U],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def map(self, fn: Callable[[T_co], U], **options: Unpack[PlainOptions]) -> Step[T_co, U]: ...
    @overload
    def map(
        self, fn: Callable[[T_co, X], U], *, uses: Opens[X], **options: Unpack[PlainOptions]
    ) -> Step[T_co, U]: ...
    def map(
        self, fn: Callable[..., Any], *, uses: Opens[Any] | None = None, **options: Any
    ) -> Step[Any, Any]:
        """Emit `fn(record)`, one result per record."""
        return self._call("map", MapStep, fn, uses, options)

    @overload
    def filter(
        self, fn: Callable[[T_co], TypeGuard[U]], **options: Unpack[PlainOptions]
    ) -> Step[T_co, U]: ...
    @overload
    def filter(
        self, fn: Callable[[T_co], TypeIs[U]], **options: Unpack[PlainOptions]
    ) -> Step[T_co, U]: ...
    @overload
    def filter(
        self,
        fn: Callable[[T_co], Coroutine[Any, Any, object]],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, T_co]: ...
    @overload
    def filter(
        self,
        fn: Callable[[T_co, X], Coroutine[Any, Any, object]],
        *,
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, T_co]: ...
    @overload
    def filter(
        self,
        fn: Callable[[T_co], object],
        *,
        executor: Executor,
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, T_co]: ...
    @overload
    def filter(
        self,
        fn: Callable[[T_co, X], object],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, T_co]: ...
    @overload
    def filter(
        self, fn: Callable[[T_co], object], **options: Unpack[PlainOptions]
    ) -> Step[T_co, T_co]: ...
    @overload
    def filter(
        self, fn: Callable[[T_co, X], object], *, uses: Opens[X], **options: Unpack[PlainOptions]
    ) -> Step[T_co, T_co]: ...
    def filter(
        self, fn: Callable[..., Any], *, uses: Opens[Any] | None = None, **options: Any
    ) -> Step[Any, Any]:
        """Emit the records for which `fn(record)` is true; a TypeGuard or TypeIs narrows their
        type."""
        return self._call("filter", FilterStep, fn, uses, options)

    @overload
    def flat_map(
        self, fn: Callable[[T_co], Many[U]], **options: Unpack[PlainOptions]
    ) -> Step[T_co, U]: ...
    @overload
    def flat_map(
        self,
        fn: Callable[[T_co], Many[U]],
        *,
        executor: Executor,
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def flat_map(
        self,
        fn: Callable[[T_co, X], Many[U]],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def flat_map(
        self, fn: Callable[[T_co], AsyncMany[U]], **options: Unpack[AsyncCallOptions]
    ) -> Step[T_co, U]: ...
    @overload
    def flat_map(
        self,
        fn: Callable[[T_co, X], AsyncMany[U]],
        *,
        uses: Opens[X],
        **options: Unpack[AsyncCallOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def flat_map(
        self, fn: Callable[[T_co, X], Many[U]], *, uses: Opens[X], **options: Unpack[PlainOptions]
    ) -> Step[T_co, U]: ...
    def flat_map(
        self, fn: Callable[..., Any], *, uses: Opens[Any] | None = None, **options: Any
    ) -> Step[Any, Any]:
        """Emit every value of what `fn(record)` gives: an iterable, a generator, an async
        generator, or None for nothing. A `str`, `bytes` or `dict` fails at that record."""
        return self._call("flat_map", FlatMapStep, fn, uses, options)

    @overload
    def lookup(
        self,
        key: Callable[[T_co], NewKey],
        fetch: Callable[[NewKey], Coroutine[Any, Any, A]],
        fn: Callable[[T_co, A], U],
        /,
        *,
        cache: int = ...,
        ttl: Duration | None = ...,
        **options: Unpack[LookupOptions],
    ) -> Step[T_co, U]: ...
    @overload
    def lookup(
        self,
        key: Callable[[T_co], NewKey],
        fetch: Callable[[NewKey, X], Coroutine[Any, Any, A]],
        fn: Callable[[T_co, A], U],
        /,
        *,
        uses: Opens[X],
        cache: int = ...,
        ttl: Duration | None = ...,
        **options: Unpack[LookupOptions],
    ) -> Step[T_co, U]: ...
    def lookup(
        self,
        key: Callable[..., Any],
        fetch: Callable[..., Any],
        fn: Callable[..., Any],
        /,
        *,
        uses: Opens[Any] | None = None,
        cache: int = 1000,
        ttl: Duration | None = "10m",
        **options: Any,
    ) -> Step[Any, Any]:
        """Emit `fn(record, answer)`, where the coroutine function `fetch(key(record))` gives the
        answer; `None` is one like any other.

        Each process keeps the last `cache` answers that were used, each for `ttl` of the machine's
        time (None: for good). Records that ask for the same at the same time share one call, and
        its failure, which is not kept. Answers are no state: after a restart all are asked for
        again. They are shared, so treat them as immutable. The options of coroutine functions are
        those of the calls that are made: `rate` and `breaker` do not hold up what is known."""
        from streamcp.api.lookups import look_up

        return look_up(self, key, fetch, fn, cache, ttl, uses, options)

    @overload
    def for_each(
        self, fn: Callable[[T_co], Coroutine[Any, Any, object]], **options: Unpack[PooledOptions]
    ) -> SinkStep[T_co]: ...
    @overload
    def for_each(
        self,
        fn: Callable[[T_co, X], Coroutine[Any, Any, object]],
        *,
        uses: Opens[X],
        **options: Unpack[PooledOptions],
    ) -> SinkStep[T_co]: ...
    @overload
    def for_each(
        self,
        fn: Callable[[T_co], object],
        *,
        executor: Executor,
        **options: Unpack[PooledOptions],
    ) -> SinkStep[T_co]: ...
    @overload
    def for_each(
        self,
        fn: Callable[[T_co, X], object],
        *,
        executor: Literal["thread"],
        uses: Opens[X],
        **options: Unpack[PooledOptions],
    ) -> SinkStep[T_co]: ...
    @overload
    def for_each(
        self, fn: Callable[[T_co], object], **options: Unpack[PlainOptions]
    ) -> SinkStep[T_co]: ...
    @overload
    def for_each(
        self, fn: Callable[[T_co, X], object], *, uses: Opens[X], **options: Unpack[PlainOptions]
    ) -> SinkStep[T_co]: ...
    def for_each(
        self, fn: Callable[..., Any], *, uses: Opens[Any] | None = None, **options: Any
    ) -> SinkStep[Any]:
        """Call `fn(record)` and emit nothing: at least once."""
        return SinkStep(self._graph, self._call_node("for_each", ForEachStep, fn, uses, options))

    @overload
    def sink(self, sink: Sink[T_co], /, **options: Unpack[SinkOptions]) -> SinkStep[T_co]: ...
    @overload
    def sink(
        self, sink: PlainSink[T_co] | StagedSink[T_co, Any], /, **options: Unpack[PlainOptions]
    ) -> SinkStep[T_co]: ...
    @overload
    def sink(
        self,
        sink: Callable[[], Sink[T_co] | PlainSink[T_co] | StagedSink[T_co, Any]],
        /,
        **options: Unpack[PlainOptions],
    ) -> SinkStep[T_co]: ...
    @overload
    def sink(
        self,
        sink: Callable[[Sequence[T_co]], Coroutine[Any, Any, None]],
        /,
        **options: Unpack[SinkOptions],
    ) -> SinkStep[T_co]: ...
    def sink(self, sink: Any, /, **options: Any) -> SinkStep[Any]:
        """Write the records to `sink`: a coroutine function of a list of records, a sink object
        (shared, so its parallelism is 1), or a class or function that makes one per subtask.

        What it promises depends on its methods, see `streamcp.Sink`, `PlainSink` and
        `TransactionalSink`."""
        self._check("sink", options)
        found = find_sink(sink)
        if options.get("retry") is not None:
            _check_retry(found.kind)
        if found.single and options.setdefault("parallelism", 1) not in (None, 1):
            raise DefinitionError(
                f"sink(parallelism={options['parallelism']}): one object is one subtask; give its "
                "class, or a function that makes one per subtask"
            )
        spec = SinkSpec(
            found.open, found.kind, options.get("retry"), options.get("on_error", "fail")
        )
        return SinkStep(self._graph, self._add(spec, options))

    def key_by(self, key: Callable[[T_co], NewKey], /) -> KeyedStream[NewKey, T_co]:
        """Divide the records by key: those with equal keys go to the same subtask, in order.

        Keys are hashable, serializable values; 1, 1.0 and True are one key."""
        from streamcp.api.keyed import KeyedStream  # adds verbs to a stream, so it is above

        check_plain("key_by", key, arguments="record")
        return KeyedStream(self._graph, self._exchanged(HashByKey(key)))

    def rebalance(self) -> Stream[T_co]:
        """Deal the records out to all subtasks of the next step in turn."""
        return Stream(self._graph, self._exchanged(Rebalance()))

    def broadcast(self) -> BroadcastStream[T_co]:
        """Send every record to every subtask of the step that it is connected with."""
        return BroadcastStream(self._graph, self._exchanged(Broadcast()))

    def connect(self, other: BroadcastStream[U], /) -> ConnectedBroadcast[T_co, U]:
        """Read this stream together with a broadcast one, in one step: `.process(...)`."""
        from streamcp.api.connected import ConnectedBroadcast  # describes steps, so it is above

        if not isinstance(other, BroadcastStream):
            raise DefinitionError(_not_broadcast(other))
        return ConnectedBroadcast(self._graph, self._connections, other.connections)

    def union(self, *others: Stream[U]) -> Stream[T_co | U]:
        """Merge streams of the same job: every record of each, in any order between them."""
        connections = self._connections
        for other in others:
            if not isinstance(other, Stream):
                raise DefinitionError(f"union({other!r}): only streams can be merged")
            connections += other._connections
        return Stream(self._graph, connections)

    @overload
    def branch(
        self, fn: Callable[[T_co], TypeGuard[U]], /, **options: Unpack[StepOptions]
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self, fn: Callable[[T_co], TypeIs[U]], /, **options: Unpack[StepOptions]
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self, fn: Callable[[T_co], object], /, **options: Unpack[StepOptions]
    ) -> tuple[Stream[T_co], Stream[T_co]]: ...
    def branch(
        self, fn: Callable[[Any], object], /, **options: Any
    ) -> tuple[Stream[Any], Stream[Any]]:
        """Split in two: the records for which `fn(record)` is true, and the others; a TypeGuard or
        TypeIs narrows the type of the former. For more than two, branch the others again.

        `fn` is called once per record."""
        self._check("branch", options)
        check_plain("branch", fn, arguments="record")
        node = self._add(BranchStep(fn), options)
        yes, no = (Stream[Any](self._graph, (Connection(node, side),)) for side in ("yes", "no"))
        return yes, no

    def inspect(
        self, fn: Callable[[T_co], object], /, **options: Unpack[PlainOptions]
    ) -> Step[T_co, T_co]:
        """Call `fn(record)` for its effect and pass the record on, as it is: to log or to count.

        What `fn` does is not undone by a restore, and is done again. A record at which it fails is
        one whose step failed: by default the job does, see `on_error`."""
        self._check("inspect", options)
        check_plain("inspect", fn, arguments="record")
        spec = InspectStep(fn, on_error=options.get("on_error", "fail"))
        return Step(self._graph, self._add(spec, options))

    def tap(self, draw: Callable[[Self], object], /) -> Self:
        """Draw something aside in the middle of a chain: `draw(stream)` is called once, now, with
        this stream, which is returned. `.tap(lambda orders: orders.sink(archive, name="archive"))`
        is what reading a stream twice is without a name for it.

        What reads aside gets every record, and holds the others back if it is slow: it is part of
        the job like any step. What `draw` returns is left alone.

        Raises DefinitionError for a sink, which goes into such a function, and for a function that
        draws nothing."""
        _check_tap(draw)
        before = len(self._graph.nodes)
        draw(self)
        if len(self._graph.nodes) == before:
            raise DefinitionError(
                f"tap({name_of(draw)}) has drawn no step: it is called once, with the stream; to "
                f"look at each record write .inspect({name_of(draw)})"
            )
        return self

    def batch(
        self, max_size: int, max_wait: Duration, /, **options: Unpack[StepOptions]
    ) -> Stream[list[T_co]]:
        """Emit lists of `max_size` records, in their order; one that is not full yet is emitted
        `max_wait` after its first record, and at the end of the input.

        Put it before a call that takes many records at once; `unbatch` is the way back. Each
        subtask fills its own. The records of a list that is not full are in every checkpoint."""
        self._check("batch", options)
        if type(max_size) is not int or max_size < 1:
            raise DefinitionError(f"batch({max_size!r}): write a number of records, 1 or more")
        waits = seconds(max_wait, setting="batch(max_wait)")
        return Stream(self._graph, (Connection(self._add(BatchStep(max_size, waits), options)),))

    def unbatch(self: Stream[Iterable[U]], **options: Unpack[StepOptions]) -> Stream[U]:
        """Emit the records of each list, one by one: what `batch` has put together, or what a
        function made of it."""
        self._check("unbatch", options)
        return Stream(self._graph, (Connection(self._add(UnbatchStep(_same), options)),))

    def iterate(
        self,
        body: Callable[[Stream[T_co]], tuple[Stream[T_co], Stream[U]]],
        /,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """Let records go round: draw a loop, and return what leaves it.

        `body(stream)` is called once, now. It gets the stream of the loop, which carries the
        records of this stream and those that come round, and returns `(again, output)`: what goes
        round once more, and what leaves. So `body` can end with `branch`.

        Records from outside wait while the loop is full. The loop ends when its inputs have ended
        and nothing is left inside; one out of which a record never comes never ends."""
        self._check("iterate", options)
        check_plain("iterate", body, arguments="loop")
        head = self._add(IterateStep(), options)
        drawn: Any = body(Stream(self._graph, (Connection(head),)))
        if not _is_pair_of_streams(drawn):
            raise DefinitionError(
                f"iterate: its body returned {drawn!r}; return two streams, (again, output): what "
                "goes round once more, and what leaves the loop"
            )
        again, output = drawn
        head.inputs += tuple(replace(one, back=True) for one in again._connections)
        return Stream(output._graph, output._connections)

    async def take(self, n: int) -> list[T_co]:
        """Run only what is upstream of this stream, without checkpoints, until it has emitted `n`
        records (or has ended), and return them."""
        if type(n) is not int or n < 1:
            raise DefinitionError(f"take({n!r}): write a number of records, 1 or more")
        from streamcp.runners import local

        return await local.take(self._graph, self._connections, n)

    def _call(
        self,
        verb: str,
        kind: Callable[..., StepSpec],
        fn: Callable[..., Any],
        uses: Opens[Any] | None,
        options: Mapping[str, Any],
    ) -> Step[Any, Any]:
        return Step(self._graph, self._call_node(verb, kind, fn, uses, options))

    def _call_node(
        self,
        verb: str,
        kind: Callable[..., StepSpec],
        fn: Callable[..., Any],
        uses: Opens[Any] | None,
        options: Mapping[str, Any],
    ) -> Node:
        self._check(verb, options)
        called = check_call(verb, fn, options, uses=uses)
        return self._add(kind(fn, called.calls, called.uses, called.on_error), options)

    def _check(self, verb: str, options: Mapping[str, Any]) -> None:
        check_options(verb, options, max_parallelism=self._graph.max_parallelism)

    def _add(self, spec: StepSpec, options: Mapping[str, Any]) -> Node:
        return add_node(self._graph, spec, self._connections, options)

    @property
    def ahead(self) -> Stream[T_co]:
        """Of a source: the records whose timestamps are further ahead of the clock than the
        `max_ahead` of its watermarks. They were taken out of the stream, and come with the earliest
        timestamp that is not late.

        Raises DefinitionError if it is no source that has watermarks with `max_ahead`."""
        node = self._connections[0].node
        watermarks = node.spec.watermarks if isinstance(node.spec, SourceStep) else None
        if watermarks is None or watermarks.max_ahead is None:
            raise DefinitionError(
                f"step {node.label!r} ({node.place}) takes no records out for being ahead: that "
                'does a source with watermarks=sc.Watermarks(..., max_ahead="1h")'
            )
        return Stream(self._graph, (Connection(node, "ahead"),))

    def _exchanged(self, exchange: Exchange) -> tuple[Connection, ...]:
        return tuple(replace(connection, exchange=exchange) for connection in self._connections)


def _same(records: Iterable[U]) -> Iterable[U]:
    return records


def _check_tap(draw: Callable[..., object]) -> None:
    if not callable(draw) or kind_of(draw) != "plain":
        raise DefinitionError(
            f"tap({name_of(draw)}): a function that draws is needed; a sink goes into it: "
            ".tap(lambda stream: stream.sink(...))"
        )


def _check_retry(contract: Contract) -> None:
    if contract == "plain":
        raise DefinitionError(
            "sink(retry=) waits between two calls, and a plain write cannot wait; write "
            "async def write"
        )
    if contract != "at_least_once":
        raise DefinitionError(
            "sink(retry=) would write twice into one transaction; retry inside write"
        )


def _is_pair_of_streams(value: object) -> TypeGuard[tuple[Stream[Any], Stream[Any]]]:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(one, Stream) for one in value)
    )


class Step(Stream[T_co], Generic[In_co, T_co]):
    """The stream of a step that calls a user's function on records of type In."""

    __slots__ = ()

    def __init__(self, graph: LogicalGraph, node: Node) -> None:
        super().__init__(graph, (Connection(node),))

    @property
    def errors(self) -> Stream[Failure[In_co]]:
        """The records that failed; needs `on_error="divert"`, which needs a reader of this."""
        return Stream(self._graph, (Connection(self._connections[0].node, "errors"),))

    def side(self, tag: Tag[U], /) -> Stream[U]:
        """The records that the step's functions emit by `context.emit_to(tag, record)`.

        Raises DefinitionError if it is no `process` step: the functions of others get no context
        to emit by."""
        node = self._connections[0].node
        if not isinstance(node.spec, ProcessStep):
            raise DefinitionError(
                f"step {node.label!r} ({node.place}) has no side outputs: only the functions of a "
                "keyed process get a context to emit by"
            )
        return Stream(self._graph, (Connection(node, tag.output),))


class BroadcastStream(Generic[T_co]):
    """Records that every subtask gets; to be connected with the stream whose step reads them.

    It has no verbs of its own: a step that works on it alone would do so once per subtask."""

    __slots__ = ("_graph", "connections")

    def __init__(self, graph: LogicalGraph, connections: tuple[Connection, ...]) -> None:
        self._graph = graph
        self.connections = connections


class SinkStep(Generic[In_co]):
    """The end of a stream: a sink or `for_each`."""

    __slots__ = ("_graph", "_node")

    def __init__(self, graph: LogicalGraph, node: Node) -> None:
        self._graph = graph
        self._node = node

    @property
    def errors(self) -> Stream[Failure[In_co]]:
        """The records that failed; needs `on_error="divert"`, which needs a reader of this."""
        return Stream(self._graph, (Connection(self._node, "errors"),))


def _not_broadcast(other: object) -> str:
    from streamcp.api.keyed import KeyedStream

    remedy = "only a broadcast stream can be connected with a stream that has no key"
    if isinstance(other, KeyedStream):
        remedy = "give this stream a key too: .key_by(...).connect(...)"
    elif isinstance(other, Stream):
        remedy = "write other.broadcast(), or .key_by(...) on both"
    return f"connect({type(other).__name__}): {remedy}"
