"""The chain of a task: its fused steps, and the loops that work records through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import Any

from streamcp.channel.output_gate import BroadcastEdge, KeyedEdge, OutputEdge
from streamcp.graph.logical import HashByKey, Node
from streamcp.graph.physical import TaskPlan
from streamcp.operators.context import BroadcastContext
from streamcp.operators.steps import (
    BatchStep,
    BroadcastStep,
    Call,
    ConnectStep,
    CountStep,
    FlatMapStep,
    JoinStep,
    KeyedBroadcastStep,
    MachineStep,
    OnError,
    ProcessStep,
    ReduceStep,
    ScanStep,
    SinkStep,
    WindowStep,
)
from streamcp.operators.windows import LATE
from streamcp.runtime.batching import BatchRun, TimedBatchRun
from streamcp.runtime.broadcast_steps import BroadcastRun
from streamcp.runtime.calling import Push, Reporter, sure_key, with_service
from streamcp.runtime.event_time import EventTime
from streamcp.runtime.expiry import Expiry
from streamcp.runtime.fusing import Loop
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.keyed_steps import NOTHING, KeyedRun
from streamcp.runtime.late_records import LateRecords
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.plain_sink import PlainSinkRun
from streamcp.runtime.snapshots import Freezing
from streamcp.runtime.strictness import told
from streamcp.state.broadcast import BroadcastState
from streamcp.state.keyed import KeyedState

Edges = Mapping[tuple[Node, str], Sequence[OutputEdge]]
"""The outgoing edges of a subtask, by step and output."""


class Chain:
    """The steps of one subtask."""

    def __init__(self, plan: TaskPlan, edges: Edges, context: TaskContext) -> None:
        self.meters: dict[Node, StepMeter] = {node: StepMeter() for node in plan.members}
        self.blocking = context.blocking
        self.strict = context.strict
        self._plan = plan
        self._edges = edges
        self._context = context
        self._loops: dict[tuple[Node, int], Loop] = {}
        self._reporters: dict[Node, Reporter] = {}
        self._keyed: dict[Node, KeyedRun] = {}
        self._broadcast: dict[Node, BroadcastRun] = {}
        self._sinks: dict[Node, PlainSinkRun] = {}
        self._batches: dict[Node, BatchRun] = {}
        self._expiries: list[Expiry] = []
        self.states: dict[str, KeyedState] = {}  # per key, by step
        self.time: EventTime | None = None

    @property
    def head(self) -> str:
        """The step that takes the input."""
        return self._plan.head.label

    @property
    def steps(self) -> frozenset[str]:
        """The labels of all steps of the task."""
        return frozenset(node.label for node in self._plan.members)

    @property
    def timed(self) -> bool:
        """Records have timestamps here."""
        return self._plan.head.timed

    @property
    def untimed_ports(self) -> frozenset[int]:
        """The inputs whose records have none all the same."""
        inputs = self._plan.head.inputs
        return frozenset(one.port for one in inputs if self.timed and not one.timed)

    # ---- wiring

    def into_head(self, port: int = 0) -> Push:
        """Wire the chain of a task whose head is a synchronous step, from one of its inputs."""
        head = self._plan.head
        push = self._into(head, port)
        if isinstance(head.spec, BroadcastStep | KeyedBroadcastStep) and port == 0:
            return self.broadcast_run(head).reading(push)
        return push

    def push_behind(self, node: Node, output: str = "main") -> Push:
        """Wire what comes behind an output of a step; nothing may."""
        return self.behind(node, output) or _drop

    def behind(self, node: Node, output: str = "main") -> Push | None:
        """Wire what comes behind an output of a step: fused steps and outgoing edges."""
        steps, edges = self._steps_behind(node, output), self._edges.get((node, output), ())
        pushes = [self._into(step) for step in steps]
        pushes += [self._into_edge(node, edge) for edge in edges]
        if not pushes:
            return None
        receivers = [channel.id.receiver for edge in edges for channel in edge.channels]
        if len(pushes) == 1 and not isinstance(edges[0] if edges else None, BroadcastEdge):
            return pushes[0]
        readers = [told(step) for step in steps] + [f"task {one}" for one in receivers]
        return self.strict.shared(node, readers, _to_all(pushes))

    def _into_edge(self, node: Node, edge: OutputEdge) -> Push:
        """An edge by key looks at its records itself: loops do not push into it."""
        if isinstance(edge, KeyedEdge):
            return edge.push
        return self.strict.travelling(node, edge.push)

    def only_step_behind(self, node: Node, output: str) -> Node | None:
        """The one fused step that alone reads an output, if it is called record by record."""
        step = self._alone_behind(node, output)
        by_list = step is not None and isinstance(step.spec, SinkStep | BatchStep)
        return None if by_list else step

    def counted_only(self, node: Node, output: str) -> StepMeter | None:
        """The meter of the sink that alone reads an output, if it drops everything."""
        step = self._alone_behind(node, output)
        if step is None or not isinstance(step.spec, SinkStep):
            return None
        sink = self._plain_sink(step, step.spec)
        return sink.meter if sink.drops_everything else None

    def _alone_behind(self, node: Node, output: str) -> Node | None:
        steps = self._steps_behind(node, output)
        return steps[0] if len(steps) == 1 and not self._edges.get((node, output)) else None

    def only_keyed_edge_behind(self, node: Node, output: str) -> KeyedEdge | None:
        """The one keyed exchange that alone reads an output."""
        edges = self._edges.get((node, output), ())
        if len(edges) != 1 or self._steps_behind(node, output):
            return None
        return edges[0] if isinstance(edges[0], KeyedEdge) else None

    def _steps_behind(self, node: Node, output: str) -> list[Node]:
        return [
            member
            for member in self._plan.members
            for connection in member.inputs
            if member is not self._plan.head
            if connection.node is node and connection.output == output
        ]

    def _into(self, node: Node, port: int = 0) -> Push:
        """Wire a step: a loop over records that begins there, or a sink that takes lists."""
        if isinstance(node.spec, SinkStep):
            return self.strict.function(node, self._plain_sink(node, node.spec).push)
        if isinstance(node.spec, BatchStep):
            return self.strict.travelling(node, self._batch(node, node.spec).push)
        if (node, port) not in self._loops:
            self._loops[node, port] = Loop(self, node, port)
        return self._loops[node, port].push

    def _plain_sink(self, node: Node, spec: SinkStep) -> PlainSinkRun:
        if node not in self._sinks:
            sink, reporter, meter = spec.open(), self.reporter(node), self.meters[node]
            self._sinks[node] = PlainSinkRun(node, sink, reporter, meter, self._context)
        return self._sinks[node]

    def _batch(self, node: Node, spec: BatchStep) -> BatchRun:
        if node not in self._batches:
            emit, meter = self.push_behind(node), self.meters[node]
            make = TimedBatchRun if node.timed else BatchRun
            self._batches[node] = make(node.label, spec, emit, meter, self._context)
        return self._batches[node]

    def measure_calls(self) -> None:
        """Find out which call of the fused steps holds the event loop."""
        for loop in self._loops.values():
            loop.measure()
        for node, run in self._keyed.items():
            run.measure_timers(node, self.blocking)

    async def open_sinks(self, stack: AsyncExitStack) -> None:
        """Enter the plain sinks that are context managers."""
        for run in self._sinks.values():
            await run.open(stack)

    def reporter(self, node: Node) -> Reporter:
        """What decides about failed records of a step."""
        if node not in self._reporters:
            spec = node.spec
            on_error: OnError = spec.on_error if isinstance(spec, Call | SinkStep) else "fail"
            divert = self._diverting(node)
            self._reporters[node] = Reporter(node, on_error, divert, self.meters[node])
        return self._reporters[node]

    def _diverting(self, node: Node) -> Push:
        """Wire the errors of a step. Those of a write have no timestamp of their own."""
        push, time = self.push_behind(node, "errors"), self.time
        if time is None or not isinstance(node.spec, SinkStep):
            return push

        def stamped(failures: list[Any]) -> None:
            push([(failure, time.earliest) for failure in failures])

        return stamped

    def function(self, node: Node) -> Callable[..., Any]:
        """The step's function of one record, with its service."""
        spec, fn = node.spec, self.bare_function(node)
        assert isinstance(spec, Call)
        many = isinstance(spec, FlatMapStep)
        return self.strict.function(node, fn, many=many)

    def bare_function(self, node: Node) -> Callable[..., Any]:
        """The same, which `strict` does not look at: it may be a coroutine function."""
        spec = node.spec
        assert isinstance(spec, Call)
        if spec.uses is None:
            return spec.fn
        return with_service(spec.fn, self._context.services[spec.uses])

    def expiry(self, node: Node) -> Expiry | None:
        """Make the expiring state of a keyed step; None if its state does not expire."""
        spec = node.spec
        if not isinstance(spec, ProcessStep) or spec.ttl is None:
            return None
        made = Expiry(node.label, spec.state, spec.ttl, self._context, self.time)
        self._expiries.append(made)
        self.states[node.label] = made.state
        return made

    def keyed_state(self, node: Node, make: Callable[[], Any]) -> KeyedState:
        """Make the state of a keyed step that does not expire."""
        context = self._context
        made = self.states[node.label] = KeyedState(
            node.label,
            make,
            context.serializer,
            context.max_parallelism,
            incremental=context.incremental,
        )
        return made

    def keyed_run(self, node: Node) -> KeyedRun:
        """What a fused keyed step works with; always the same one."""
        if node not in self._keyed:
            self._keyed[node] = self._new_keyed_run(node)
        return self._keyed[node]

    def _new_keyed_run(self, node: Node) -> KeyedRun:
        spec, context = node.spec, self._context
        make: Callable[[], Any]
        match spec:
            case CountStep():
                make = int
            case ScanStep():
                make = spec.start
            case ReduceStep():
                make = _nothing
            case ProcessStep():
                make = spec.state
            case _:
                raise AssertionError(f"no keyed step: {spec!r}")
        expiry = self.expiry(node)
        run = KeyedRun(
            [self.strict.key(node, key) for key in self._keys(node)],
            self.keyed_state(node, make) if expiry is None else expiry.state,
            self.push_behind(node),
            self.reporter(node),
            self.meters[node],
            context.clock,
            self.time,
            self.side(node),
            expiry,
        )
        run.finite_timers = isinstance(spec, MachineStep)
        run.stamped = isinstance(spec, JoinStep)
        if isinstance(spec, ProcessStep):
            functions, on_timer = keyed_functions(spec, context)
            if isinstance(spec, KeyedBroadcastStep) and on_timer is not None:
                on_timer = self._reading_timer(node, on_timer)
            functions = [self.strict.keyed(node, fn) for fn in functions]
            on_timer = None if on_timer is None else self.strict.keyed(node, on_timer)
            run.process(functions, on_timer)
        if isinstance(spec, WindowStep) and self.reporter(node).fails:
            run.shortcuts = self.strict.shortcuts(spec.shortcuts)
        return run

    def _keys(self, node: Node) -> list[Callable[[Any], Any]]:
        """The key functions of a step. Behind an exchange they have been called before; where the
        failures of a fused step do not fail the job, those of its key function do all the same."""
        keys = keys_of(node)
        if node is self._plan.head or self.reporter(node).fails:
            return keys
        [before] = node.inputs
        return [sure_key(before.node, key) for key in keys]

    def side(self, node: Node) -> Callable[[str, list[Any]], None]:
        """Make what takes records for the side outputs of a step; each is wired once."""
        if isinstance(node.spec, MachineStep) and self.behind(node, LATE.output) is None:
            return LateRecords(node, self.meters[node]).drop
        wired = cache(partial(self.push_behind, node))
        return lambda output, records: wired(output)(records)

    def _reading_timer(self, node: Node, on_timer: Callable[..., Any]) -> Callable[..., Any]:
        """Let `on_timer(timestamp, state, shared, context)` read the broadcast state."""

        def call(timestamp: int, value: Any, context: Any) -> Any:
            return on_timer(timestamp, value, self.broadcast_run(node).state.value, context)

        return call

    def broadcast_run(self, node: Node) -> BroadcastRun:
        """What a step works with that has a broadcast input; always the same one."""
        if node not in self._broadcast:
            self._broadcast[node] = self._new_broadcast_run(node)
        return self._broadcast[node]

    def _new_broadcast_run(self, node: Node) -> BroadcastRun:
        spec, serializer = node.spec, self._context.serializer
        assert isinstance(spec, BroadcastStep | KeyedBroadcastStep)
        state = BroadcastState(node.label, spec.broadcast_state(), serializer)
        context: tuple[Any, ...] = ()
        if isinstance(spec, KeyedBroadcastStep):
            context = (BroadcastContext(self.keyed_run(node).state.copies),)
        on_broadcast = self.strict.changing(node, spec.on_broadcast)
        return BroadcastRun(state, on_broadcast, context, self.reporter(node))

    # ---- timers and snapshots

    @property
    def has_timers(self) -> bool:
        """Some step may set timers, or has something like them."""
        return bool(self._expiries) or self.calls_by_time

    @property
    def calls_by_time(self) -> bool:
        """Something that is due may call functions, or emit."""
        return bool(self._batches) or any(run.has_timers for run in self._keyed.values())

    @property
    def has_batches(self) -> bool:
        """Some step is a `batch`."""
        return bool(self._batches)

    def held_timestamp(self, after: int) -> int | None:
        """The earliest timestamp behind `after` in the lists that `batch` steps are filling."""
        held = (run.earliest(after) for run in self._batches.values())
        return min((at for at in held if at is not None), default=None)

    @property
    def has_open_batches(self) -> bool:
        """Some `batch` step holds records."""
        return any(run.is_open for run in self._batches.values())

    def flush_batches(self) -> None:
        """Hand on what `batch` steps hold, in the order of the steps: the input has ended."""
        for node in self._plan.members:
            if node in self._batches:
                self._batches[node].flush()

    def snapshot(self) -> list[Freezing]:
        """Begin a snapshot of every step that has a state."""
        keyed = [run.state.snapshot() for run in self._keyed.values()]
        broadcast = [run.section() for run in self._broadcast.values()]
        open_batches = [run.section() for run in self._batches.values() if run.is_open]
        return [*keyed, *broadcast, *open_batches]

    def restore(self, step: str, values: list[Any]) -> None:
        """Put the rows of a keyed step back."""
        run = next(run for run in self._keyed.values() if run.state.step == step)
        for rows in values:
            run.state.restore(rows, one_group=True)

    def restore_broadcast(self, step: str, values: list[Any]) -> None:
        """Put the broadcast state of a step back."""
        run = next(run for run in self._broadcast.values() if run.state.step == step)
        [run.state.value] = values

    def restore_batch(self, step: str, values: list[Any]) -> None:
        """Put the open batch of a step back."""
        run = next(run for run in self._batches.values() if run.step == step)
        for due, records in values:
            run.restore(due, records)

    def fire_timers(self) -> bool:
        """Fire one due timer of each step, and free some of what has expired; False if nothing is
        due."""
        fired = False
        for run in self._keyed.values():
            fired = run.fire_timers() or fired
        for batch in self._batches.values():
            fired = batch.fire() or fired
        for expiry in self._expiries:
            fired = expiry.sweep() or fired
        return fired

    def fire_event_timers(self, watermark: int, most: int) -> bool:
        """Fire some event-time timers up to a watermark, at most for `most` values: of the first
        step that has any, since what they emit comes before the watermark to those behind it.
        False if there is none."""
        for node in self._plan.members:
            run = self._keyed.get(node)
            if run is not None and run.fire_event_timers(watermark, most):
                return True
        return False

    def next_timer(self) -> int | None:
        """The time of the earliest timer, or of a look at what expires (milliseconds since the
        epoch)."""
        times = [at for run in self._keyed.values() if (at := run.state.next_timer()) is not None]
        times += [run.due for run in self._batches.values() if run.due is not None]
        times += [at for one in self._expiries if (at := one.next_sweep()) is not None]
        return min(times, default=None)


def keys_of(node: Node) -> list[Callable[[Any], Any]]:
    """The key function of each keyed input of a step, in their order."""
    exchanges = {connection.port: connection.exchange for connection in reversed(node.inputs)}
    in_order = (exchanges[port] for port in sorted(exchanges))
    keys = [exchange.key for exchange in in_order if isinstance(exchange, HashByKey)]
    assert keys, f"{node.label} is not keyed"
    return keys


def keyed_functions(
    spec: ProcessStep, context: TaskContext
) -> tuple[list[Callable[..., Any]], Callable[..., Any] | None]:
    """The function of each keyed input, and the timer function, each with the service as its last
    argument."""
    functions = [spec.fn, spec.on_right] if isinstance(spec, ConnectStep) else [spec.fn]
    if spec.uses is None:
        return functions, spec.on_timer
    service = context.services[spec.uses]
    on_timer = None if spec.on_timer is None else _with_fourth(spec.on_timer, service)
    return [_with_fourth(fn, service) for fn in functions], on_timer


def _with_fourth(fn: Callable[..., Any], service: Any) -> Callable[..., Any]:
    """Make the service the last argument of a function of record (or time), state and context."""
    return lambda record, state, key_context: fn(record, state, key_context, service)


def _to_all(pushes: Sequence[Push]) -> Push:
    if len(pushes) == 1:
        return pushes[0]

    def push_to_all(records: list[Any]) -> None:
        for push in pushes:
            push(records)

    return push_to_all


def _nothing() -> Any:
    return NOTHING


def _drop(records: list[Any]) -> None:
    """Nobody reads this output."""
