"""Fused steps become one loop: its source text is written here, and compiled once per text.

A call per record and step is all that remains between the steps: no intermediate lists, and
CPython runs calls of Python functions inside such a loop without leaving its interpreter. Measured
on CPython 3.11 (map, filter, exchange, count): 0.74 of the hand-written loop, against 0.38 for a
list per step (decision 0007). The text of a task's loop is shown in tracebacks.

    def work(records, f1=f1, failed1=failed1, f2=f2, failed2=failed2, push3=push3, ...):
        out3 = []
        for r in records:
            try:
                r1 = f1(r)
                r2 = f2(r1)
                out3.append(r2)
            except Exception as error:
                step = failing()
                if step == 1:
                    failed1(r, error)
                elif step == 2:
                    failed2(r1, error)
                else:
                    raise
        if out3: push3(out3)

Where records have timestamps they come and go as pairs: `for r, t in records`, `out3.append((r2,
t))`; all that comes of a record has its timestamp, but for joins. How such a text is put together
is told in `loop_text`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from streamcp.channel.output_gate import KeyedEdge
from streamcp.graph.logical import Node
from streamcp.operators.steps import (
    BranchStep,
    BroadcastStep,
    Call,
    CountStep,
    FilterStep,
    FlatMapStep,
    ForEachStep,
    InspectStep,
    IterateStep,
    JoinStep,
    KeyedBroadcastStep,
    MapStep,
    ProcessStep,
    ReduceStep,
    ScanStep,
    UnbatchStep,
)
from streamcp.runtime.batching import timestamps_of
from streamcp.runtime.blocking import MEASURED, BlockingNotices
from streamcp.runtime.broadcast_steps import BroadcastRun
from streamcp.runtime.calling import Push, Reporter, expanded
from streamcp.runtime.event_time import EventTime
from streamcp.runtime.keyed_steps import NOTHING, KeyedRun, refuse_in_place
from streamcp.runtime.loop_text import LoopText
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.strictness import Lenient
from streamcp.state.entries import EVENT, UNDATED

# CPython allows twenty nested blocks; a loop and the `try` in it are two. Deeper steps get a
# loop of their own.
DEEPEST = 6

# From so many values of a record on, counting them call by call costs less than one by one.
MANY = 3


class Fusable(Protocol):
    """What the writer asks of the chain."""

    @property
    def blocking(self) -> BlockingNotices:
        """What takes notice of calls that hold the event loop."""
        ...

    def reporter(self, node: Node) -> Reporter:
        """What decides about failed records of a step."""
        ...

    def function(self, node: Node) -> Callable[..., Any]:
        """The function of a step, with its service."""
        ...

    @property
    def strict(self) -> Lenient:
        """What looks at calls, or lets them be."""
        ...

    def keyed_run(self, node: Node) -> KeyedRun:
        """What a keyed step works with; always the same one."""
        ...

    def broadcast_run(self, node: Node) -> BroadcastRun:
        """What a step with a broadcast input works with; always the same one."""
        ...

    def behind(self, node: Node, output: str = "main") -> Push | None:
        """Whatever comes behind an output, as one call for a list; None if nothing does."""
        ...

    def only_step_behind(self, node: Node, output: str) -> Node | None:
        """The one fused step that alone reads an output."""
        ...

    def counted_only(self, node: Node, output: str) -> StepMeter | None:
        """The meter of the sink that alone reads an output, if it drops everything."""
        ...

    def only_keyed_edge_behind(self, node: Node, output: str) -> KeyedEdge | None:
        """The one keyed exchange that alone reads an output."""
        ...

    time: EventTime | None

    @property
    def untimed_ports(self) -> frozenset[int]:
        """The inputs of the head without event time, where the others have it."""
        ...


class LoopWriter:
    """Writes the loop over a batch that begins at one step, from one of its inputs.

    With `checking`, a plain function whose result would have to be awaited is refused; it is
    enough to look at the first batch. With `measuring`, each call of a user's function is timed."""

    def __init__(
        self,
        chain: Fusable,
        first: Node,
        port: int,
        *,
        checking: bool = False,
        measuring: bool = False,
    ) -> None:
        self._chain = chain
        self._first = first
        self._port = port
        self._checking = checking
        self._measuring = measuring
        self._text = LoopText()
        self._names = self._text.names
        self._names["expanded"] = expanded
        self._timed = first.timed
        self._numbers = 0

    def compile(self) -> Push:
        """Write and compile the loop."""
        self._begin_time()
        taken = "r, t" if self._timed and not self._comes_untimed else "r"
        with self._text.loop(f"for {taken} in records:"):
            self._step(self._first, "r", "len(records)")
        return self._text.compile(f"<fused steps from {self._first.label}>")

    # ---- writing

    @property
    def _comes_untimed(self) -> bool:
        """The loop begins at a broadcast input without event time, of a step that has it."""
        return self._port in self._chain.untimed_ports

    def _begin_time(self) -> None:
        if self._comes_untimed:
            self._names["time"] = self._chain.time
            self._text.before.append("t = time.earliest")

    def _stamped(self, value: str) -> str:
        """The form in which a value leaves the loop."""
        return f"({value}, t)" if self._timed else value

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _user(
        self, node: Node, fn: Callable[..., Any], *, place: int = 0, many: bool = False
    ) -> Callable[..., Any]:
        """A user's function as the loop calls it; `place` is that of the record among its
        arguments, `many` says that it may be a generator function."""
        if not self._measuring:
            return fn
        return self._chain.blocking.measured(node, fn, place=place, many=many)

    def _try(self, number: int, record: str, *lines: str, undo: str = "") -> None:
        """Write calls of user code whose failure is the record's."""
        for line in lines:
            self._text.line(line, number)
        if not self._text.handles(number):
            told = f"failed{number}({record}, error{', t' if self._timed else ''})"
            self._text.on_failure(number, *([undo] if undo else []), told)

    def _step(self, node: Node, record: str, count: str) -> None:
        """Write a step that takes `record`; `count` is the text that tells how many it took."""
        number = self._number()
        reporter = self._chain.reporter(node)
        self._names[f"failed{number}"] = reporter.report
        self._names[f"meter{number}"] = reporter.meter
        self._names[f"check{number}"] = reporter.refuse_awaitable
        self._text.after.append(f"meter{number}.records_in += {count}")
        spec = node.spec
        # Only the first step may have two inputs: such a step is never fused behind another.
        port = self._port if node is self._first else 0
        if port and isinstance(spec, BroadcastStep | KeyedBroadcastStep):
            self._from_broadcast(node, number, record)
        elif isinstance(spec, BroadcastStep):
            self._reading(node, spec, number, record)
        elif isinstance(spec, CountStep | ScanStep | ReduceStep | ProcessStep):
            self._keyed(node, number, record, count, port)
        elif isinstance(spec, BranchStep):
            self._names[f"f{number}"] = self._user(node, self._chain.strict.function(node, spec.fn))
            self._branch(node, number, record, count)
        elif isinstance(spec, IterateStep):
            self._onward(node, number, "main", record, count)
        else:
            assert isinstance(spec, Call)
            many = isinstance(spec, FlatMapStep)
            self._names[f"f{number}"] = self._user(node, self._chain.function(node), many=many)
            self._plain(node, number, record, count)

    def _plain(self, node: Node, number: int, record: str, count: str) -> None:
        call, result = f"f{number}({record})", f"r{number}"
        match node.spec:
            case MapStep():
                self._try(number, record, f"{result} = {call}")
                self._check(number, record)
                self._onward(node, number, "main", result, self._passed(node, number, count))
            case FilterStep():
                passed = self._filter(node, number, record, count)
                self._onward(node, number, "main", record, passed)
            case FlatMapStep():
                self._try(number, record, *_many(number, call))
                self._each(node, number)
            case ForEachStep():
                self._try(number, record, f"{result} = {call}")
                self._check(number, record)
            case InspectStep():
                self._try(number, record, f"{result} = {call}")
                self._check(number, record)
                self._onward(node, number, "main", record, self._passed(node, number, count))

    def _check(self, number: int, record: str) -> None:
        if self._checking:
            self._text.line(f"check{number}({record}, r{number})")

    # ---- counting

    def _rate(self, node: Node) -> float:
        """How many values came of a record up to now; 1 if there was none."""
        meter = self._chain.reporter(node).meter
        return meter.records_out / meter.records_in if meter.records_in else 1.0

    def _passed(self, node: Node, number: int, count: str) -> str:
        """Count what passes a step that emits one value per record: all, unless failed records are
        left out."""
        return count if self._chain.reporter(node).fails else self._counted(number)

    def _counted(self, number: int) -> str:
        """Count the values that pass here: by the length of the list that they come into, if
        nothing but maps is between, else one by one."""
        count = self._text.count(f"n{number}")
        count.lines.append(self._text.line(f"{count.name} += 1"))
        return count.name

    def _filter(self, node: Node, number: int, record: str, count: str) -> str:
        """Write a filter, and count what passes it; or what does not, if that is less."""
        call = f"f{number}({record})"
        if self._checking:
            self._try(number, record, f"r{number} = {call}")
            self._check(number, record)
            call = f"r{number}"
        self._try(number, record, f"if not {call}:")
        if self._rate(node) <= 0.5:
            self._text.line("    continue")
            return self._counted(number)
        left_out = f"x{number}"
        counting = self._text.count(f"n{number}", left_out, f"{count} - {left_out}")
        counting.lines.append(self._text.line(f"    {left_out} += 1"))
        self._text.line("    continue")
        counting.lines += self._text.on_failure(number, f"{left_out} += 1")
        return counting.name

    def _each(self, node: Node, number: int, *refusals: str) -> None:
        """Write the loop over the values that a call returned as `m<number>`; those of a join come
        with timestamps of their own, and so do those of a list. Each is looked at by `refusals`
        first. They are counted one by one, or call by call if there are many of a record."""
        taken, values = f"r{number}", f"m{number}"
        if isinstance(node.spec, JoinStep):
            taken = f"r{number}, t"
        elif self._timed and isinstance(node.spec, UnbatchStep):
            self._names["timestamps_of"] = timestamps_of
            taken, values = f"r{number}, t", f"zip(m{number}, timestamps_of(t, m{number}))"
        count = f"n{number}"
        many = self._rate(node) >= MANY
        if many:
            self._text.count(count).lines.append(self._text.line(f"{count} += len(m{number})"))
        with self._text.loop(f"for {taken} in {values}:"):
            for refusal in refusals:
                self._text.line(refusal)
            if not many:
                self._counted(number)
            self._onward(node, number, "main", f"r{number}", count)

    def _branch(self, node: Node, number: int, record: str, count: str) -> None:
        self._try(number, record, f"r{number} = f{number}({record})")
        self._check(number, record)
        self._try(number, record, f"yes{number} = not not r{number}")
        self._text.after.append(f"meter{number}.records_out += {count}")
        for word, output in ((f"if yes{number}:", "yes"), ("else:", "no")):
            with self._text.inside(word):
                self._collect(node, output, record)

    # ---- steps with a broadcast input

    def _from_broadcast(self, node: Node, number: int, record: str) -> None:
        """Write what an element of the broadcast input does."""
        apply = self._chain.broadcast_run(node).apply
        self._names[f"apply{number}"] = self._user(node, apply, many=True)
        self._try(number, record, f"m{number} = apply{number}({record})")
        self._each(node, number)

    def _reading(self, node: Node, spec: BroadcastStep, number: int, record: str) -> None:
        """Write the call for a record of the input that reads the broadcast state."""
        fn = self._chain.strict.function(node, spec.fn, many=True)
        self._names[f"f{number}"] = self._user(node, fn, many=True)
        shared = self._shared(node, number)
        self._try(number, record, *_many(number, f"f{number}({record}, {shared})"))
        self._each(node, number, *_refusal(number, record, shared, "refuse_shared"))

    def _shared(self, node: Node, number: int) -> str:
        """Write the look at the broadcast state, which rests while a loop runs."""
        run = self._chain.broadcast_run(node)
        self._names[f"shared{number}"] = run.state
        self._names[f"refuse_shared{number}"] = run.refuse_state
        self._text.before.append(f"b{number} = shared{number}.value")
        return f"b{number}"

    # ---- keyed steps

    def _keyed(self, node: Node, number: int, record: str, count: str, port: int) -> None:
        run = self._chain.keyed_run(node)
        self._names[f"key{number}"] = run.keys[port]
        self._names[f"state{number}"] = run.state
        self._names[f"entries{number}"] = run.state.entries
        self._names[f"insert{number}"] = run.state.insert
        self._names[f"preserve{number}"] = run.state.preserve
        # It changes only with a snapshot, and none is taken inside a loop.
        self._text.before.append(f"epoch{number} = state{number}.epoch")
        look_up = (
            f"k{number} = key{number}({record})",
            f"try: e{number} = entries{number}[k{number}]",
            f"except KeyError: e{number} = insert{number}(k{number})",
            f"if e{number}.epoch != epoch{number}: preserve{number}(e{number})",
        )
        match node.spec:
            case CountStep():
                self._try(number, record, *look_up)
                self._text.line(f"e{number}.value = c{number} = e{number}.value + 1")
                self._text.line(f"r{number} = (k{number}, c{number})")
                self._onward(node, number, "main", f"r{number}", count)
            case ScanStep() | ReduceStep():
                self._scan(node, number, record, look_up)
                self._onward(node, number, "main", f"r{number}", count)
            case ProcessStep():
                self._process(node, number, record, look_up, port)

    def _scan(self, node: Node, number: int, record: str, look_up: tuple[str, ...]) -> None:
        spec = node.spec
        assert isinstance(spec, ScanStep | ReduceStep)
        strict = self._chain.strict
        self._names[f"f{number}"] = self._user(node, strict.folding(node, spec.fn), place=1)
        self._names["NOTHING"] = NOTHING
        self._names["refuse_in_place"] = refuse_in_place
        old, new = f"v{number}", f"r{number}"
        call = f"f{number}({old}, {record})"
        if isinstance(spec, ReduceStep):
            first = record
            if (take := strict.first(node)) is not None:
                self._names[f"first{number}"] = take
                first = f"first{number}({record})"
            call = f"{first} if {old} is NOTHING else {call}"
        self._try(
            number,
            record,
            *look_up,
            f"{old} = e{number}.value",
            f"{new} = {call}",
            f"if {new} is {old}: refuse_in_place({new})",
        )
        self._text.line(f"e{number}.value = {new}")

    def _process(
        self, node: Node, number: int, record: str, look_up: tuple[str, ...], port: int
    ) -> None:
        """Write the call, its effects, and what becomes of its results; the state object must not
        be among them."""
        run, value = self._chain.keyed_run(node), f"v{number}"
        arguments = [record, value, f"context{number}"]
        # What a join returns are pairs.
        refusals = [] if isinstance(node.spec, JoinStep) else [*_refusal(number, record, value)]
        if isinstance(node.spec, KeyedBroadcastStep):
            shared = self._shared(node, number)
            arguments.insert(2, shared)
            refusals += _refusal(number, record, shared, "refuse_shared")
        self._names[f"f{number}"] = self._user(node, run.calls[port], many=True)
        self._names[f"context{number}"] = run.context
        self._names[f"effects{number}"] = run.effects
        self._names[f"refuse{number}"] = run.refuse_state
        self._names[f"commit{number}"] = run.commit
        when = self._moment(node, number, run)
        judge, update = self._expiring(number, run)
        self._try(
            number,
            record,
            *look_up,
            *self._quickly(number, record, run),
            *when,
            *judge,
            f"context{number}.key = k{number}",
            f"{value} = e{number}.value",
            *_many(number, f"f{number}({', '.join(arguments)})"),
            undo=f"effects{number}.drop()",
        )
        for line in update:
            self._text.line(line)
        timestamp = "t" if self._timed else "None"
        self._text.line(f"if effects{number}.used: commit{number}(e{number}, {timestamp})")
        self._each(node, number, *refusals)

    def _quickly(self, number: int, record: str, run: KeyedRun) -> tuple[str, ...]:
        """Write that most records need no context: where calls are measured, all have one."""
        shortcuts = run.shortcuts
        if shortcuts is None or self._measuring or not self._timed:
            return ()
        self._names[f"add{number}"] = shortcuts.add
        lines = [f"if add{number}({record}, t, e{number}.value): continue"]
        if shortcuts.begin is not None:
            self._names[f"begin{number}"] = shortcuts.begin
            self._names[f"set_timer{number}"] = run.state.set_timer
            reached = f"floors{number}[e{number}.group]"
            lines += [
                f"at{number} = begin{number}({record}, t, e{number}.value, {reached})",
                f"if at{number} is not None:",
                f"    set_timer{number}(e{number}, at{number}, {EVENT})",
                "    continue",
            ]
        return tuple(lines)

    def _moment(self, node: Node, number: int, run: KeyedRun) -> tuple[str, ...]:
        """Write when a call takes place, as its context tells it."""
        if self._timed:
            assert run.time is not None
            self._names[f"floors{number}"] = run.time.floors_of(node.label)
            return (
                f"context{number}.timestamp = t",
                f"context{number}.watermark = floors{number}[e{number}.group]",
            )
        self._names[f"now{number}"] = run.now
        self._text.before.append(f"context{number}.timestamp = now{number}()")
        return ()

    def _expiring(self, number: int, run: KeyedRun) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Write what comes before a call whose state expires, and what comes behind it.

        Timestamps are ints of more than one digit, which CPython compares slowly. In processing
        time they are floats therefore; in event time mostly one look is enough, at whether the
        entry was updated behind the watermark."""
        expiry, updated = run.expiry, f"e{number}.updated"
        if expiry is None:
            return (), ()
        self._names[f"renew{number}"] = expiry.state.renew
        now, life = f"u{number}", expiry.state.life
        if expiry.time is None:
            self._names[f"now{number}"] = run.now
            self._text.before += [f"{now} = float(now{number}())", f"o{number} = {now} - {life}"]
            judge = (f"if {updated} <= o{number}: renew{number}(e{number})",)
            return judge, (f"{updated} = {now}",)
        return (
            f"{now} = context{number}.watermark",
            f"if {updated} <= {now} and {updated} <= {now} - {life}: renew{number}(e{number})",
        ), (
            f"if t > {updated}: {updated} = t if t > {now} else {now}",
            f"elif {now} > {updated}: {updated} = {now}",
            f"elif {updated} == {UNDATED}: {updated} = t if t > {now} else {now}",
        )

    # ---- what comes behind

    def _onward(self, node: Node, number: int, output: str, value: str, count: str) -> None:
        """Write what becomes of a value: the next step, a keyed exchange, or a list."""
        self._text.after.append(f"meter{number}.records_out += {count}")
        step = self._chain.only_step_behind(node, output)
        edge = self._chain.only_keyed_edge_behind(node, output)
        counted = self._chain.counted_only(node, output)
        if step is not None and self._text.depth < DEEPEST:
            self._step(step, value, count)
        elif edge is not None:
            self._route(edge, value, count)
        elif counted is not None:
            self._names[f"dropped{number}"] = counted
            self._text.after.append(f"dropped{number}.records_in += {count}")
        else:
            out = self._collect(node, output, value)
            if out:
                self._text.count_by(count, f"len({out})")

    def _route(self, edge: KeyedEdge, value: str, count: str) -> None:
        """Write the hand-over to a keyed exchange."""
        number = self._number()
        self._names[f"key{number}"] = edge.key
        self._names[f"routes{number}"] = edge.routes.indices
        self._names[f"find{number}"] = edge.routes.find
        self._names[f"flush{number}"] = edge.flush_full
        self._names[f"failed{number}"] = edge.failed
        self._names[f"partials{number}"] = edge.partials
        append = f".append({self._stamped(value)})"
        partial = f"partials{number}"
        self._try(
            number,
            value,
            f"k{number} = key{number}({value})",
            f"try: {partial}[routes{number}[k{number}]]{append}",
            f"except KeyError: {partial}[find{number}(k{number})]{append}",
        )
        waiting = f"sum(map(len, {partial}))"
        if self._text.count_by(count, f"{waiting} - before{number}"):
            self._text.before.append(f"before{number} = {waiting}")
        self._text.after.append(f"flush{number}()")

    def _collect(self, node: Node, output: str, value: str) -> str:
        """Write that a value is put into a list, which is handed on after the loop; return its
        name. Without a reader the list is empty text: nothing is collected."""
        push = self._chain.behind(node, output)
        if push is None:
            self._text.line("pass")
            return ""
        number = self._number()
        self._names[f"push{number}"] = push
        self._text.before.append(f"out{number} = []")
        # As a call of the method: CPython has an instruction of its own for it.
        self._text.line(f"out{number}.append({self._stamped(value)})")
        self._text.after += [f"if out{number}: push{number}(out{number})"]
        return f"out{number}"


def _many(number: int, call: str) -> tuple[str, ...]:
    """Write a call that returns several values, kept as `m<number>`. CPython has an instruction
    for `type`, but none for `__class__`."""
    many = f"m{number}"
    return (
        f"{many} = {call}",
        f"if type({many}) is not list and type({many}) is not tuple: {many} = expanded({many})",
    )


def _refusal(number: int, record: str, value: str, refusal: str = "refuse") -> tuple[str, ...]:
    """Write that a state must not be among the results itself."""
    return (f"if r{number} is {value}: {refusal}{number}({record})",)


class Loop:
    """The compiled loop that begins at an input of a step. The first batch runs a checking one; how
    many values came of its records tells the next one what is best counted."""

    __slots__ = ("_fast", "_left", "_measured", "_new", "_work")

    def __init__(self, chain: Fusable, first: Node, port: int = 0) -> None:
        self._new = partial(LoopWriter, chain, first, port)
        self._work = self._new(checking=True).compile()
        self._fast: Push | None = None
        self._measured: Push | None = None
        self._left = 0

    def push(self, records: list[Any]) -> None:
        """Work a list of records through the steps."""
        self._work(records)
        if self._fast is None and records:
            self._work = self._fast = self._new().compile()

    def measure(self) -> None:
        """Time the calls for the next records one by one: some have taken too long."""
        if self._fast is None:
            return
        if self._measured is None:
            self._measured = self._new(measuring=True).compile()
        self._left = MEASURED
        self._work = self._measure

    def _measure(self, records: list[Any]) -> None:
        assert self._measured is not None
        assert self._fast is not None
        self._measured(records)
        self._left -= len(records)
        if self._left <= 0:
            self._work = self._fast
