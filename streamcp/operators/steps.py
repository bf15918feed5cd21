"""What a step does: one frozen description per verb. `graph` wires them, `runtime` runs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from streamcp.config import CircuitBreaker, Rate, Retry
from streamcp.operators.sources import Source
from streamcp.operators.ttl import Ttl
from streamcp.operators.watermarks import Watermarks

OnError: TypeAlias = Literal["fail", "drop", "divert"]
Executor: TypeAlias = Literal["thread", "process"]
Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Any, Any]]


@dataclass(frozen=True, slots=True)
class AsyncOptions:
    """How a coroutine function is called, or a plain one in an `executor`: `timeout` is in
    seconds. Of `rates` at most one has a key. With `journal` answers are kept on disk until a
    checkpoint holds them."""

    concurrency: int = 16
    ordered: bool = True
    timeout: float | None = None
    retry: Retry | None = None
    rates: tuple[Rate, ...] = ()
    breaker: CircuitBreaker | None = None
    executor: Executor | None = None
    journal: bool = False


@dataclass(frozen=True, slots=True)
class SourceStep:
    """Reads a source; with `watermarks` its records have timestamps. What is too far ahead goes to
    the output "ahead"."""

    source: Source[Any]
    watermarks: Watermarks[Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a user's function per record: the common part of the steps below.

    `calls` is None for a plain function (fused, inline) and set for a coroutine function (a
    bounded pool). `uses` opens the service that becomes the function's last argument."""

    fn: Callable[..., Any]
    calls: AsyncOptions | None = None
    uses: Opener | None = None
    on_error: OnError = "fail"

    @property
    def is_journaled(self) -> bool:
        """The answers of its calls are kept in the journal."""
        return self.calls is not None and self.calls.journal


@dataclass(frozen=True, slots=True)
class MapStep(Call):
    """Emits `fn(record)`."""


@dataclass(frozen=True, slots=True)
class LookupStep(MapStep):
    """Emits `combine(record, answer)`, where `fn(key(record))` gives the answer. At most `cache`
    answers are kept, each for `ttl` seconds (None: for good). `annotated`: the user's functions
    beside `fn`."""

    key: Callable[..., Any] = object
    combine: Callable[..., Any] = object
    cache: int = 1
    ttl: float | None = None
    annotated: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True, slots=True)
class FilterStep(Call):
    """Emits the record where `fn(record)` is true."""


@dataclass(frozen=True, slots=True)
class FlatMapStep(Call):
    """Emits every value of the iterable `fn(record)`; None for nothing."""


@dataclass(frozen=True, slots=True)
class UnbatchStep(FlatMapStep):
    """Emits every record of a list."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """Emits lists of up to `max_size` records; one that is not full, `max_wait` seconds after its
    first record."""

    max_size: int
    max_wait: float


@dataclass(frozen=True, slots=True)
class ForEachStep(Call):
    """Calls `fn(record)` and emits nothing: a sink, at least once."""


@dataclass(frozen=True, slots=True)
class InspectStep(Call):
    """Calls `fn(record)` for its effect, and emits the record."""


@dataclass(frozen=True, slots=True)
class BranchStep:
    """Emits each record on the output "yes" or "no"; `fn` is called once per record."""

    fn: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class IterateStep:
    """The head of a loop: passes on what comes from outside and what comes round."""


@dataclass(frozen=True, slots=True)
class ReduceStep:
    """Per key: the first record, then `fn(value, record)`; emits each new value."""

    fn: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class ScanStep:
    """Per key: starts at `start()`, then `fn(value, record)`; emits each new value."""

    start: Callable[[], Any]
    fn: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class CountStep:
    """Per key: emits `(key, number of records so far)`."""


@dataclass(frozen=True, slots=True)
class ProcessStep(Call):
    """Per key: `fn(record, state, context)`; `state` makes a fresh state, `on_timer(timestamp,
    state, context)` is called for each timer that is due. With `ttl` the state expires."""

    state: Callable[[], Any] = object
    on_timer: Callable[..., Any] | None = None
    ttl: Ttl | None = None


@dataclass(frozen=True, slots=True)
class ConnectStep(ProcessStep):
    """A `process` of two keyed inputs with one state per key: `fn` gets the records of the first
    one, `on_right` those of the second."""

    on_right: Callable[..., Any] = object


@dataclass(frozen=True, slots=True)
class DeduplicateStep(ProcessStep):
    """A `process` that lets the first record of a key pass."""


Ended: TypeAlias = tuple[Any, bool, int | None]
End: TypeAlias = Callable[[int, Any, Any], Ended | None]


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """What does for most calls of a window machine the same without a context: to tell one
    everything costs more than what there is to do. What they do not do they leave as it is, and the
    machine's own functions are to be called.

    - `add(record, timestamp, state)`: False if it has not been done.
    - `begin(record, timestamp, state, watermark)`: for a record that `add` has left, with which a
      window begins; returns the event timer that is to be set; None if it has not been done.
    - `end(at, key, state)`: for a timer; returns the one result, whether the state is empty now,
      and the event timer that is to be set, or None; None for all if it has not been done."""

    add: Callable[[Any, int, Any], bool]
    begin: Callable[[Any, int, Any, int], int | None] | None = None
    end: End | None = None


@dataclass(frozen=True, slots=True)
class WindowStep(ProcessStep):
    """A `process` whose functions are those of a window machine; late records go to a side output.

    `needs_time`: the step means nothing without event time. `annotated`: the user's functions in
    it."""

    shortcuts: Shortcuts | None = None
    needs_time: bool = True
    annotated: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TopStep(ProcessStep):
    """The best of the window results of all keys. `annotated`: the user's functions in it."""

    annotated: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinStep(ConnectStep):
    """A step of two inputs whose functions are those of a join: what they return are pairs of value
    and timestamp. Late records go to a side output. `annotated`: the user's functions in it."""

    annotated: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinAsofStep(JoinStep):
    """A join of each left record with the newest right one."""


MachineStep: TypeAlias = WindowStep | TopStep | JoinStep
"""A step whose functions are those of a state machine in event time: its chains of timers come to
an end, and it tells of late records."""


@dataclass(frozen=True, slots=True)
class BroadcastStep(Call):
    """`fn(record, shared)` reads what `on_broadcast(record, shared)` has changed: the first input
    is divided among the subtasks, the second one reaches all of them.

    `broadcast_state` makes the shared state of a subtask, the same on all of them."""

    on_broadcast: Callable[..., Any] = object
    broadcast_state: Callable[[], Any] = object


@dataclass(frozen=True, slots=True)
class KeyedBroadcastStep(ProcessStep):
    """The same with a state per key: `fn(record, state, shared, context)`, `on_broadcast(record,
    shared, context)`, `on_timer(timestamp, state, shared, context)`."""

    on_broadcast: Callable[..., Any] = object
    broadcast_state: Callable[[], Any] = object


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Writes to a sink.

    `open` returns the sink object (one per subtask). `kind` says which contract it keeps:
    "at_least_once" (`write(records)`), "plain" (the same as a plain function), "transactional"
    (with `abort`) or "staged" (without). With `timestamps` it gets pairs of record and timestamp,
    in a job that has them; a plain sink never does."""

    open: Callable[[], Any]
    kind: Literal["at_least_once", "plain", "transactional", "staged"]
    retry: Retry | None = None
    on_error: OnError = "fail"
    timestamps: bool = False

    @property
    def exactly_once(self) -> bool:
        """Every record is in the target once, to readers of committed data."""
        return self.kind in ("transactional", "staged")


StepSpec: TypeAlias = (
    SourceStep
    | MapStep
    | LookupStep
    | FilterStep
    | FlatMapStep
    | BatchStep
    | ForEachStep
    | InspectStep
    | BranchStep
    | IterateStep
    | ReduceStep
    | ScanStep
    | CountStep
    | ProcessStep
    | ConnectStep
    | JoinStep
    | BroadcastStep
    | KeyedBroadcastStep
    | SinkStep
)
