"""The chain of a task: its fused steps, wired so that one call works a slice through them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamcp.channel.output_gate import OutputEdge
from streamcp.graph.logical import HashByKey, Node
from streamcp.graph.physical import TaskPlan
from streamcp.operators.steps import (
    BranchStep,
    Call,
    CountStep,
    FilterStep,
    FlatMapStep,
    ForEachStep,
    MapStep,
    OnError,
    ProcessStep,
    ReduceStep,
    ScanStep,
    SinkStep,
    StepSpec,
)
from streamcp.runtime.calling import Push, Reporter, with_service
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.keyed_steps import NOTHING, CountRun, KeyedRun, ProcessRun, ScanRun
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.plain_steps import (
    BranchRun,
    Caller,
    FilterRun,
    FlatMapRun,
    ForEachRun,
    MapRun,
)
from streamcp.state.keyed import KeyedSnapshot, KeyedState

Edges = Mapping[tuple[Node, str], Sequence[OutputEdge]]
"""The outgoing edges of a subtask, by step and output."""


class Chain:
    """The steps of one subtask. `push` works records through those that the head feeds."""

    def __init__(self, plan: TaskPlan, edges: Edges, context: TaskContext) -> None:
        self.meters: dict[Node, StepMeter] = {node: StepMeter() for node in plan.members}
        self.keyed: list[KeyedRun] = []
        self._plan = plan
        self._edges = edges
        self._context = context

    def into_head(self) -> Push:
        """Wire the chain of a task whose head is a synchronous step."""
        return self._run(self._plan.head)

    def behind(self, node: Node, output: str = "main") -> Push:
        """Wire what comes behind an output of a step: fused steps and outgoing edges."""
        pushes = [
            self._run(member)
            for member in self._plan.members
            for connection in member.inputs
            if connection.node is node and connection.output == output and member is not node
            if member is not self._plan.head
        ]
        pushes += [edge.push for edge in self._edges.get((node, output), ())]
        return _joined(pushes)

    def reporter(self, node: Node) -> Reporter:
        """Make what decides about failed records of a step."""
        spec = node.spec
        on_error: OnError = spec.on_error if isinstance(spec, Call | SinkStep) else "fail"
        divert = self.behind(node, "errors") if on_error == "divert" else _drop
        return Reporter(node, on_error, divert, self.meters[node])

    def function(self, spec: Call) -> Callable[..., Any]:
        """The step's function of one record, with its service."""
        if spec.uses is None:
            return spec.fn
        return with_service(spec.fn, self._context.services[spec.uses])

    def keyed_state(self, node: Node, make: Callable[[], Any]) -> KeyedState:
        """Make the state of a keyed step."""
        context = self._context
        return KeyedState(node.label, make, context.serializer, context.max_parallelism)

    @property
    def has_timers(self) -> bool:
        """Some step may set timers."""
        return any(run.timed for run in self.keyed)

    def snapshot(self) -> list[KeyedSnapshot]:
        """Begin a snapshot of every keyed step."""
        return [run.state.snapshot() for run in self.keyed]

    def restore(self, step: str, values: list[Any]) -> None:
        """Put the rows of a keyed step back."""
        run = next(run for run in self.keyed if run.state.step == step)
        for rows in values:
            run.state.restore(rows)

    def fire_timers(self) -> bool:
        """Fire one due timer of each keyed step; False if none is due."""
        fired = False
        for run in self.keyed:
            fired = run.fire_timers() or fired
        return fired

    def next_timer(self) -> int | None:
        """The time of the earliest timer (milliseconds since the epoch)."""
        times = [at for run in self.keyed if (at := run.state.next_timer()) is not None]
        return min(times, default=None)

    # ---- wiring

    def _run(self, node: Node) -> Push:
        spec = node.spec
        if isinstance(spec, CountStep | ScanStep | ReduceStep | ProcessStep):
            run = self._keyed_run(node, spec)
            self.keyed.append(run)
            return run.push
        return self._plain_run(node, spec)

    def _plain_run(self, node: Node, spec: StepSpec) -> Push:
        meter, reporter = self.meters[node], self.reporter(node)
        if isinstance(spec, BranchStep):
            call = Caller(spec.fn, reporter)
            return BranchRun(call, self.behind(node, "yes"), self.behind(node, "no"), meter).push
        assert isinstance(spec, Call)
        fn, emit = self.function(spec), self.behind(node)
        match spec:
            case MapStep():
                return MapRun(Caller(fn, reporter), emit, meter).push
            case FilterStep():
                return FilterRun(Caller(fn, reporter), emit, meter).push
            case FlatMapStep():
                return FlatMapRun(fn, reporter, emit, meter).push
            case ForEachStep():
                return ForEachRun(Caller(fn, reporter), meter).push
        raise AssertionError(f"no plain step: {spec!r}")

    def _keyed_run(
        self, node: Node, spec: CountStep | ScanStep | ReduceStep | ProcessStep
    ) -> KeyedRun:
        key, emit = key_of(node), self.behind(node)
        reporter, meter = self.reporter(node), self.meters[node]
        match spec:
            case CountStep():
                return CountRun(self.keyed_state(node, int), key, emit, reporter, meter)
            case ScanStep():
                state = self.keyed_state(node, spec.start)
                return ScanRun(spec.fn, state, key, emit, reporter, meter)
            case ReduceStep():
                state = self.keyed_state(node, lambda: NOTHING)
                return ScanRun(spec.fn, state, key, emit, reporter, meter)
            case ProcessStep():
                return self._process_run(node, spec, key, emit, reporter, meter)

    def _process_run(
        self,
        node: Node,
        spec: ProcessStep,
        key: Callable[[Any], Any],
        emit: Push,
        reporter: Reporter,
        meter: StepMeter,
    ) -> ProcessRun:
        context = self._context
        fn, on_timer = with_keyed_service(spec, context)
        state = self.keyed_state(node, spec.state)
        return ProcessRun(
            fn, on_timer, state, key, emit, reporter, meter, context.clock, context.serializer
        )


def key_of(node: Node) -> Callable[[Any], Any]:
    """The key function of a keyed step: that of its inputs."""
    exchange = node.inputs[0].exchange
    assert isinstance(exchange, HashByKey), f"{node.label} is not keyed"
    return exchange.key


def with_keyed_service(
    spec: ProcessStep, context: TaskContext
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """The function and the timer function of a keyed step, each with the service as its last
    argument."""
    if spec.uses is None:
        return spec.fn, spec.on_timer
    service = context.services[spec.uses]
    fn, on_timer = spec.fn, spec.on_timer

    def call(record: Any, state: Any, key_context: Any) -> Any:
        return fn(record, state, key_context, service)

    def call_timer(timestamp: int, state: Any, key_context: Any) -> Any:
        assert on_timer is not None
        return on_timer(timestamp, state, key_context, service)

    return call, None if on_timer is None else call_timer


def _drop(records: list[Any]) -> None:
    """Nobody reads this output."""


def _joined(pushes: Sequence[Push]) -> Push:
    if not pushes:
        return _drop
    if len(pushes) == 1:
        return pushes[0]

    def push_to_all(records: list[Any]) -> None:
        for push in pushes:
            push(records)

    return push_to_all
