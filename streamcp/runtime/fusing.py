"""Fused steps become one loop: its source text is written here, and compiled once per text.

A call per record and step is all that remains between the steps: no intermediate lists, and
CPython runs calls of Python functions inside such a loop without leaving its interpreter. Measured
on CPython 3.11 (map, filter, exchange, count): 0.74 of the hand-written loop, against 0.38 for a
list per step (decision 0007). The text of a task's loop is shown in tracebacks.

    def work(records):
        out1 = []
        for r in records:
            try:
                r1 = f1(r)
            except Exception as error:
                failed1(r, error)
                continue
            out1.append(r1)
        if out1:
            push1(out1)

Where records have timestamps they come and go as pairs: `for r, t in records`, `out1.append((r1,
t))`; all that comes of a record has its timestamp, but for joins.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType, FunctionType
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
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.strictness import Lenient
from streamcp.state.entries import UNDATED

# CPython allows twenty nested blocks; a loop and the `try` in it are two. Deeper steps get a
# loop of their own.
DEEPEST = 6


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
        self._names: dict[str, Any] = {"expanded": expanded}
        self._before: list[str] = []
        self._body: list[str] = []
        self._after: list[str] = []
        self._depth = 1
        self._timed = first.timed
        self._numbers = 0
        self._counters: dict[str, int] = {}  # counts, and the lines that make them

    def compile(self) -> Push:
        """Write and compile the loop."""
        self._step(self._first, "r", "len(records)")
        self._before += [f"{count} = 0" for count in self._counters]
        self._body = [line for line in self._body if line]
        lines = ["def work(records):"]
        lines += [f"    {line}" for line in [*self._begin_time(), *self._before]]
        taken = "r, t" if self._timed and not self._comes_untimed else "r"
        lines += [f"    for {taken} in records:", *self._body]
        lines += [f"    {line}" for line in self._after]
        text = "\n".join(lines) + "\n"
        name = f"<fused steps from {self._first.label}>"
        exec(_compiled(text, name), self._names)
        work: FunctionType = self._names["work"]
        # The interpreter adapts code to the names that it finds: each loop needs its own.
        work.__code__ = work.__code__.replace()
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return work

    # ---- writing

    @property
    def _comes_untimed(self) -> bool:
        """The loop begins at a broadcast input without event time, of a step that has it."""
        return self._port in self._chain.untimed_ports

    def _begin_time(self) -> list[str]:
        if not self._comes_untimed:
            return []
        self._names["time"] = self._chain.time
        return ["t = time.earliest"]

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

    def _line(self, text: str) -> None:
        self._body.append("    " * (self._depth + 1) + text)

    def _try(self, number: int, record: str, *lines: str, undo: str = "") -> None:
        """Write calls of user code whose failure is the record's."""
        self._line("try:")
        for line in lines:
            self._line(f"    {line}")
        self._line("except Exception as error:")
        if undo:
            self._line(f"    {undo}")
        self._line(f"    failed{number}({record}, error{', t' if self._timed else ''})")
        self._line("    continue")

    def _step(self, node: Node, record: str, count: str) -> None:
        """Write a step that takes `record`; `count` is the text that tells how many it took."""
        number = self._number()
        reporter = self._chain.reporter(node)
        self._names[f"failed{number}"] = reporter.report
        self._names[f"meter{number}"] = reporter.meter
        self._names[f"check{number}"] = reporter.refuse_awaitable
        self._after.append(f"meter{number}.records_in += {count}")
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
                if self._checking:
                    self._try(number, record, f"{result} = {call}")
                    self._check(number, record)
                    call = result
                self._try(number, record, f"if not {call}:", "    continue")
                self._onward(node, number, "main", record, self._counted(number))
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
            self._line(f"check{number}({record}, r{number})")

    def _passed(self, node: Node, number: int, count: str) -> str:
        """Count what passes a step that emits one value per record: all, unless failed records are
        left out."""
        return count if self._chain.reporter(node).fails else self._counted(number)

    def _counted(self, number: int) -> str:
        """Count the values that pass here: by the length of the list that they come into, if
        nothing but maps is between, else one by one."""
        count = f"n{number}"
        self._line(f"{count} += 1")
        self._counters[count] = len(self._body) - 1
        return count

    def _counts_by(self, count: str, length: str) -> bool:
        """Replace counting one by one by a length that is known after the loop."""
        place = self._counters.pop(count, None)
        if place is None:
            return False
        self._body[place] = ""
        self._after.insert(0, f"{count} = {length}")
        return True

    def _each(self, node: Node, number: int) -> None:
        """Write the loop over the values that a call returned as `m<number>`; those of a join come
        with timestamps of their own, and so do those of a list."""
        self._before.append(f"n{number} = 0")
        self._line(f"n{number} += len(m{number})")
        taken, values = f"r{number}", f"m{number}"
        if isinstance(node.spec, JoinStep):
            taken = f"r{number}, t"
        elif self._timed and isinstance(node.spec, UnbatchStep):
            self._names["timestamps_of"] = timestamps_of
            taken, values = f"r{number}, t", f"zip(m{number}, timestamps_of(t, m{number}))"
        self._line(f"for {taken} in {values}:")
        self._depth += 1
        self._onward(node, number, "main", f"r{number}", f"n{number}")
        self._depth -= 1

    def _branch(self, node: Node, number: int, record: str, count: str) -> None:
        self._try(number, record, f"r{number} = f{number}({record})")
        self._check(number, record)
        self._try(number, record, f"yes{number} = not not r{number}")
        self._after.append(f"meter{number}.records_out += {count}")
        for word, output in ((f"if yes{number}:", "yes"), ("else:", "no")):
            self._line(word)
            self._depth += 1
            self._collect(node, output, record)
            self._depth -= 1

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
        self._refuse(number, record, shared, "refuse_shared")
        self._each(node, number)

    def _shared(self, node: Node, number: int) -> str:
        """Write the look at the broadcast state, which rests while a loop runs."""
        run = self._chain.broadcast_run(node)
        self._names[f"shared{number}"] = run.state
        self._names[f"refuse_shared{number}"] = run.refuse_state
        self._before.append(f"b{number} = shared{number}.value")
        return f"b{number}"

    def _refuse(self, number: int, record: str, value: str, refusal: str) -> None:
        """Write that a state must not be among the results itself."""
        self._line(f"for r{number} in m{number}:")
        self._line(f"    if r{number} is {value}:")
        self._line(f"        {refusal}{number}({record})")

    # ---- keyed steps

    def _keyed(self, node: Node, number: int, record: str, count: str, port: int) -> None:
        run = self._chain.keyed_run(node)
        self._names[f"key{number}"] = run.keys[port]
        self._names[f"state{number}"] = run.state
        self._names[f"entries{number}"] = run.state.entries
        self._names[f"insert{number}"] = run.state.insert
        self._names[f"preserve{number}"] = run.state.preserve
        # It changes only with a snapshot, and none is taken inside a loop.
        self._before.append(f"epoch{number} = state{number}.epoch")
        look_up = (
            f"k{number} = key{number}({record})",
            "try:",
            f"    e{number} = entries{number}[k{number}]",
            "except KeyError:",
            f"    e{number} = insert{number}(k{number})",
            f"if e{number}.epoch != epoch{number}:",
            f"    preserve{number}(e{number})",
        )
        match node.spec:
            case CountStep():
                self._try(number, record, *look_up)
                self._line(f"e{number}.value = c{number} = e{number}.value + 1")
                self._line(f"r{number} = (k{number}, c{number})")
                self._onward(node, number, "main", f"r{number}", count)
            case ScanStep() | ReduceStep():
                self._scan(node, number, record, look_up)
                self._onward(node, number, "main", f"r{number}", count)
            case ProcessStep():
                self._process(node, number, record, look_up, port)
                self._each(node, number)

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
            f"if {new} is {old}:",
            f"    refuse_in_place({new})",
        )
        self._line(f"e{number}.value = {new}")

    def _process(
        self, node: Node, number: int, record: str, look_up: tuple[str, ...], port: int
    ) -> None:
        """Write the call, its effects, and the refusal of a state object among the results."""
        run, value = self._chain.keyed_run(node), f"v{number}"
        arguments = [record, value, f"context{number}"]
        shared = ""
        if isinstance(node.spec, KeyedBroadcastStep):
            shared = self._shared(node, number)
            arguments.insert(2, shared)
        self._names[f"f{number}"] = self._user(node, run.calls[port], many=True)
        self._names[f"context{number}"] = run.context
        self._names[f"effects{number}"] = run.effects
        self._names[f"refuse{number}"] = run.refuse_state
        when: tuple[str, ...] = ()
        if self._timed:
            assert run.time is not None
            self._names[f"floors{number}"] = run.time.floors_of(node.label)
            when = (
                f"context{number}.timestamp = t",
                f"context{number}.watermark = floors{number}[e{number}.group]",
            )
        else:
            self._names[f"now{number}"] = run.now
            self._before.append(f"context{number}.timestamp = now{number}()")
        self._names[f"commit{number}"] = run.commit
        judge, update = self._expiring(number, run)
        self._try(
            number,
            record,
            *look_up,
            *when,
            *judge,
            f"context{number}.key = k{number}",
            f"{value} = e{number}.value",
            *_many(number, f"f{number}({', '.join(arguments)})"),
            undo=f"effects{number}.drop()",
        )
        if not isinstance(node.spec, JoinStep):  # what it returns are pairs
            self._refuse(number, record, value, "refuse")
        if shared:
            self._refuse(number, record, shared, "refuse_shared")
        for line in update:
            self._line(line)
        self._line(f"if effects{number}.used:")
        self._line(f"    commit{number}(e{number}, {'t' if self._timed else 'None'})")

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
            self._before += [f"{now} = float(now{number}())", f"o{number} = {now} - {life}"]
            judge = (f"if {updated} <= o{number}:", f"    renew{number}(e{number})")
            return judge, (f"{updated} = {now}",)
        return (
            f"{now} = context{number}.watermark",
            f"if {updated} <= {now}:",
            f"    if {updated} <= {now} - {life}:",
            f"        renew{number}(e{number})",
        ), (
            f"if t > {updated}:",
            f"    {updated} = t if t > {now} else {now}",
            f"elif {now} > {updated}:",
            f"    {updated} = {now}",
            f"elif {updated} == {UNDATED}:",
            f"    {updated} = t if t > {now} else {now}",
        )

    # ---- what comes behind

    def _onward(self, node: Node, number: int, output: str, value: str, count: str) -> None:
        """Write what becomes of a value: the next step, a keyed exchange, or a list."""
        self._after.append(f"meter{number}.records_out += {count}")
        step = self._chain.only_step_behind(node, output)
        edge = self._chain.only_keyed_edge_behind(node, output)
        counted = self._chain.counted_only(node, output)
        if step is not None and self._depth < DEEPEST:
            self._step(step, value, count)
        elif edge is not None:
            self._route(edge, value, count)
        elif counted is not None:
            self._line("pass")
            self._names[f"dropped{number}"] = counted
            self._after.append(f"dropped{number}.records_in += {count}")
        else:
            out = self._collect(node, output, value)
            if out:
                self._counts_by(count, f"len({out})")

    def _route(self, edge: KeyedEdge, value: str, count: str) -> None:
        """Write the hand-over to a keyed exchange."""
        number = self._number()
        self._names[f"key{number}"] = edge.key
        self._names[f"routes{number}"] = edge.routes
        self._names[f"route{number}"] = edge.route
        self._names[f"flush{number}"] = edge.flush_full
        self._names[f"failed{number}"] = edge.failed
        self._try(
            number,
            value,
            f"k{number} = key{number}({value})",
            "try:",
            f"    add{number} = routes{number}[k{number}]",
            "except KeyError:",
            f"    add{number} = route{number}(k{number})",
        )
        self._line(f"add{number}({self._stamped(value)})")
        self._names[f"partials{number}"] = edge.partials
        waiting = f"sum(map(len, partials{number}))"
        if self._counts_by(count, f"{waiting} - before{number}"):
            self._before.append(f"before{number} = {waiting}")
        self._after.append(f"flush{number}()")

    def _collect(self, node: Node, output: str, value: str) -> str:
        """Write that a value is put into a list, which is handed on after the loop; return its
        name. Without a reader the list is empty text: nothing is collected."""
        push = self._chain.behind(node, output)
        if push is None:
            self._line("pass")
            return ""
        number = self._number()
        self._names[f"push{number}"] = push
        self._before.append(f"out{number} = []")
        # As a call of the method: CPython has an instruction of its own for it.
        self._line(f"out{number}.append({self._stamped(value)})")
        self._after += [f"if out{number}:", f"    push{number}(out{number})"]
        return f"out{number}"


def _many(number: int, call: str) -> tuple[str, ...]:
    """Write a call that returns several values, kept as `m<number>`."""
    many = f"m{number}"
    return (
        f"{many} = {call}",
        f"if {many}.__class__ is not list and {many}.__class__ is not tuple:",
        f"    {many} = expanded({many})",
    )


# The subtasks of a task have loops of one text, and so has a restarted attempt.
@lru_cache(maxsize=256)
def _compiled(text: str, name: str) -> CodeType:
    return compile(text, name, "exec")


class Loop:
    """The compiled loop that begins at an input of a step; the first batch runs a checking one."""

    __slots__ = ("_checked", "_fast", "_left", "_measured", "_new", "_work")

    def __init__(self, chain: Fusable, first: Node, port: int = 0) -> None:
        self._new = partial(LoopWriter, chain, first, port)
        self._work = self._new(checking=True).compile()
        self._checked = False
        self._fast = self._new().compile()
        self._measured: Push | None = None
        self._left = 0

    def push(self, records: list[Any]) -> None:
        """Work a list of records through the steps."""
        self._work(records)
        if not self._checked and records:
            self._checked = True
            self._work = self._fast

    def measure(self) -> None:
        """Time the calls for the next records one by one: some have taken too long."""
        if not self._checked:
            return
        if self._measured is None:
            self._measured = self._new(measuring=True).compile()
        self._left = MEASURED
        self._work = self._measure

    def _measure(self, records: list[Any]) -> None:
        assert self._measured is not None
        self._measured(records)
        self._left -= len(records)
        if self._left <= 0:
            self._work = self._fast
