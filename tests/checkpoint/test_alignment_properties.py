"""Consistent cuts under any schedule: the pure machine in a simulated graph of several processes.

Some wires are local: what is sent is there at once, and a barrier passes them within one event.
The others lead to another process: elements are under way for any time, and an overtaking barrier
arrives behind what was sent before it, but ahead of everything that is queued at the receiver.

Every record is (source, number, laps): a back edge of a loop takes it one lap further, at most
twice. Each subtask keeps the set of records that it has worked off, so a cut is consistent if at
every subtask the records before the cut are exactly those that its senders sent before theirs,
each once in the state or once in what was captured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.checkpoint.alignment import (
    Abandon,
    Acknowledge,
    Alignment,
    Block,
    CloseCapture,
    Decision,
    Extent,
    Forward,
    Phase,
    Resume,
    TakeSnapshot,
)
from streamcp.checkpoint.plan import CheckpointPlan, make_plan
from streamcp.graph.physical import reachable
from streamcp.identifiers import SubtaskId

Record = tuple[int, int, int]
END = "end"
Queued = Record | int | str  # a record, a barrier in line (its number), or the end


@dataclass(frozen=True)
class Overtaking:
    """A barrier that is handled when it arrives."""

    number: int


@dataclass
class Wire:
    """A channel: what is under way, and what is queued at the receiver."""

    sender: Node
    receiver: Node
    number: int
    local: bool
    way: deque[Queued | Overtaking] = field(default_factory=deque)
    queue: deque[Queued] = field(default_factory=deque)
    back: bool = False
    sent: list[Record] = field(default_factory=list)
    capturing: list[Record] | None = None

    def pass_on(self, record: Record) -> None:
        """Push a record that the sender has worked off; a back edge ends its way some time."""
        source, number, laps = record
        if not self.back:
            self.push(record)
        elif laps < number % 3:
            self.push((source, number, laps + 1))

    def push(self, element: Queued | Overtaking) -> None:
        if isinstance(element, tuple):
            self.sent.append(element)
        self.way.append(element)

    def arrive(self) -> None:
        """The first element that is under way arrives."""
        element = self.way.popleft()
        if isinstance(element, Overtaking):
            self.receiver.overtaken(element.number, self.number)
        elif self.capturing is not None and element == self.receiver.alignment.current:
            # In line, but the snapshot is taken: it ends the capture where it arrives (P26).
            self.receiver.in_line_arrived(element, self.number)
        else:
            if self.capturing is not None and isinstance(element, tuple):
                self.capturing.append(element)
            self.queue.append(element)


@dataclass
class Cut:
    """What one subtask's snapshot of one checkpoint holds."""

    state: list[Record]
    sent: dict[int, int]  # per output: how many records were sent before the cut
    captured: dict[int, list[Record]]
    acknowledged: bool = False


class Node:
    """A subtask that sends on every record it works off."""

    def __init__(self, graph: Graph, number: int) -> None:
        self.graph = graph
        self.id = SubtaskId("t", number)
        self.inputs: list[Wire] = []
        self.outputs: list[Wire] = []
        self.state: list[Record] = []
        self.finished = False
        self.blocked: set[int] = set()
        self.ended: set[int] = set()
        self.cuts: dict[int, Cut] = {}
        self.gathering: Cut | None = None
        self.produced = 0

    def begin(self, *, at_least_once: bool) -> None:
        back = {wire.number for wire in self.inputs if wire.back}
        self.alignment = Alignment(len(self.inputs), back, at_least_once=at_least_once)

    # ---- facts

    def finished_channels(self) -> frozenset[int]:
        plan = self.graph.plan
        return frozenset(w.number for w in self.inputs if w.sender.id in plan.finished)

    def in_line(self, n: int) -> frozenset[int]:
        return frozenset(wire.number for wire in self.inputs if n in wire.queue)

    # ---- events

    def produce(self, source: int) -> None:
        record = (source, self.produced, 0)
        self.produced += 1
        self.state.append(record)
        for wire in self.outputs:
            wire.pass_on(record)

    def finish(self) -> None:
        """End the outputs; a subtask has finished when its end has arrived everywhere."""
        for wire in self.outputs:
            wire.push(END)
            while wire.way:
                wire.arrive()
        self.finished = True

    def take(self, number: int) -> None:
        element = self.inputs[number].queue.popleft()
        if element == END:
            self.end(number)
        elif isinstance(element, int):
            self.carry_out(self.alignment.barrier_in_line(element, number))
        else:
            assert isinstance(element, tuple)
            self.state.append(element)
            for wire in self.outputs:
                wire.pass_on(element)

    def end(self, number: int) -> None:
        self.ended.add(number)
        self.carry_out(self.alignment.end_of_input(number))
        if len(self.ended) == len(self.inputs) and not self.finished:
            self.finish()

    def in_line_arrived(self, n: int, number: int) -> None:
        self.carry_out(self.alignment.barrier_in_line(n, number))

    def overtaken(self, n: int, number: int) -> None:
        self.carry_out(
            self.alignment.barrier_overtaking(
                n, number, finished=self.finished_channels(), in_line=self.in_line(n)
            )
        )

    def trigger(self, n: int, *, unaligned: bool) -> None:
        finished = self.finished_channels()
        self.carry_out(self.alignment.trigger(n, unaligned=unaligned, finished=finished))

    def escalate(self, n: int) -> None:
        self.carry_out(
            self.alignment.escalate(n, finished=self.finished_channels(), in_line=self.in_line(n))
        )

    def cancel(self, n: int) -> None:
        for wire in self.inputs:
            if n in wire.queue:
                wire.queue.remove(n)
        self.carry_out(self.alignment.cancel(n))
        assert not self.blocked or self.alignment.current != n

    # ---- decisions

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Block(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case Resume(channels):
                    assert channels <= self.blocked
                    self.blocked -= channels
                case TakeSnapshot(n, captures, open_captures):
                    self.take_snapshot(n, captures, open_captures)
                case Forward(n, overtaking):
                    for wire in self.outputs:
                        wire.push(Overtaking(n) if overtaking else n)
                case CloseCapture(channel):
                    assert self.inputs[channel].capturing is not None
                    self.inputs[channel].capturing = None
                case Acknowledge(n):
                    assert all(wire.capturing is None for wire in self.inputs)
                    assert not self.cuts[n].acknowledged
                    self.cuts[n].acknowledged = True
                case Abandon(n):
                    self.cuts.pop(n, None)
                    for wire in self.inputs:
                        wire.capturing = None

    def take_snapshot(self, n: int, captures: Mapping[int, Extent], opened: frozenset[int]) -> None:
        assert n not in self.cuts
        sent = {index: len(wire.sent) for index, wire in enumerate(self.outputs)}
        cut = Cut(list(self.state), sent, {})
        for number, extent in captures.items():
            wire = self.inputs[number]
            elements = list(wire.queue)
            if extent == "before_barrier":
                place = elements.index(n)
                elements = elements[:place]
                del wire.queue[place]
            cut.captured[number] = [one for one in elements if isinstance(one, tuple)]
            if number in opened:
                wire.capturing = cut.captured[number]
        assert opened <= captures.keys()
        self.cuts[n] = cut


class Graph:
    """Sources first, then layers; every node sends to some nodes behind it. An edge to the node
    itself, or to one before it, is a back edge."""

    def __init__(
        self,
        edges: Sequence[tuple[int, int]],
        nodes: int,
        remote: int,
        *,
        at_least_once: bool = False,
    ) -> None:
        self.nodes = [Node(self, number) for number in range(nodes)]
        for place, (sender, receiver) in enumerate(edges):
            a, b = self.nodes[sender], self.nodes[receiver]
            local = not remote >> place & 1
            wire = Wire(a, b, len(b.inputs), local, back=receiver <= sender)
            a.outputs.append(wire)
            b.inputs.append(wire)
        for node in self.nodes:
            node.begin(at_least_once=at_least_once)
        self.loops = {self.circle(node) for node in self.nodes if any(w.back for w in node.inputs)}
        self.plan = CheckpointPlan(frozenset(), frozenset(), ())

    @property
    def wires(self) -> list[Wire]:
        return [wire for node in self.nodes for wire in node.inputs]

    def circle(self, head: Node) -> frozenset[Node]:
        """The nodes on a way from `head` and back."""
        receivers = {node: [wire.receiver for wire in node.outputs] for node in self.nodes}
        senders = {node: [wire.sender for wire in node.inputs] for node in self.nodes}
        behind, before = reachable(head, receivers), reachable(head, senders)
        return frozenset(behind & before)

    def settle(self) -> None:
        """What was sent on local wires arrives, and loops that are over end."""
        while ways := [wire for wire in self.wires if wire.local and wire.way]:
            for wire in ways:
                wire.arrive()
        for loop in [*self.loops]:
            self.end_if_over(loop)

    def end_if_over(self, loop: frozenset[Node]) -> None:
        """A loop whose outer inputs have ended, and in which no record is left, ends at once
        everywhere; barriers may still go round in it."""
        inputs = [wire for node in loop for wire in node.inputs]
        outer = [wire for wire in inputs if wire.sender not in loop]
        left = [one for w in inputs for one in (*w.way, *w.queue) if isinstance(one, tuple)]
        if not left and all(wire.number in wire.receiver.ended for wire in outer):
            self.loops.remove(loop)
            for wire in inputs:
                if wire.back and wire.number not in wire.receiver.ended:
                    wire.receiver.end(wire.number)
            self.settle()

    @property
    def sources(self) -> list[Node]:
        return [node for node in self.nodes if not node.inputs]

    def trigger(self, n: int, *, unaligned: bool) -> None:
        everyone = [node.id for node in self.nodes]
        senders = {
            node.id: frozenset(wire.sender.id for wire in node.inputs if not wire.back)
            for node in self.nodes
        }
        done = [node.id for node in self.nodes if node.finished]
        self.plan = make_plan(everyone, senders, {s.id for s in self.sources}, done)
        for node in self.nodes:
            if node.id in self.plan.finished:
                sent = {index: len(wire.sent) for index, wire in enumerate(node.outputs)}
                node.cuts[n] = Cut(list(node.state), sent, {}, acknowledged=True)
            elif node.id in self.plan.triggered:
                node.trigger(n, unaligned=unaligned)

    def deliver(self, which: int) -> bool:
        """Let one element arrive, or be taken, somewhere."""
        wires = self.wires
        arriving = [wire for wire in wires if wire.way]
        takeable = [w for w in wires if w.queue and w.number not in w.receiver.blocked]
        if not arriving and not takeable:
            return False
        place = which % (len(arriving) + len(takeable))
        if place < len(arriving):
            arriving[place].arrive()
        else:
            wire = takeable[place - len(arriving)]
            wire.receiver.take(wire.number)
        return True

    def check(self, n: int) -> None:
        """Every record is once before the cut: in the state, or captured behind it."""
        for node in self.nodes:
            cut = node.cuts[n]
            assert cut.acknowledged, f"{node.id} never acknowledged {n}"
            expected: list[Record] = []
            for wire in node.inputs:
                index = wire.sender.outputs.index(wire)
                sent = wire.sent[: wire.sender.cuts[n].sent[index]]
                captured = cut.captured.get(wire.number, [])
                # What is captured is the end of what was sent before the sender's cut, in order.
                assert captured == sent[len(sent) - len(captured) :]
                expected += sent
            if node.inputs:
                found = cut.state + [one for part in cut.captured.values() for one in part]
                assert sorted(found) == sorted(expected), f"{node.id} at checkpoint {n}"


GRAPHS: list[tuple[list[tuple[int, int]], int]] = [
    ([(0, 1)], 2),
    ([(0, 2), (1, 2)], 3),
    ([(0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)], 5),
    ([(0, 1), (0, 2), (1, 3), (2, 3)], 4),
    ([(0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5), (0, 5)], 6),
    ([(0, 1), (0, 1), (1, 2)], 3),
    ([(0, 3), (1, 3), (2, 3), (3, 4), (2, 4)], 5),
]
LOOPS: list[tuple[list[tuple[int, int]], int]] = [
    # of one node, of two, with ways that part and meet, with an input of its own in the
    # middle, with two heads, and one behind another
    ([(0, 1), (1, 1), (1, 2)], 3),
    ([(0, 1), (1, 2), (2, 1), (2, 3)], 4),
    ([(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 2), (5, 6)], 7),
    ([(0, 2), (1, 3), (2, 3), (3, 2), (3, 4)], 5),
    ([(0, 1), (0, 2), (1, 3), (2, 3), (1, 4), (2, 4), (3, 1), (4, 2), (3, 2), (3, 5)], 6),
    ([(0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (4, 3), (4, 5)], 6),
]

EVENT = st.tuples(st.integers(0, 19), st.integers(0, 20))
EVENTS = st.lists(EVENT, min_size=20, max_size=60)


class Run:
    """Carries out one schedule; one checkpoint at a time, as the coordinator keeps it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.n = 0
        self.running = False
        self.aligned = False
        self.escalated: list[Node] = []
        self.whole: list[int] = []

    def event(self, kind: int, which: int) -> None:
        self._event(kind, which)
        self.graph.settle()
        self.look()

    def _event(self, kind: int, which: int) -> None:
        graph = self.graph
        if kind < 6:
            open_sources = [s for s in graph.sources if not s.finished]
            if open_sources:
                source = open_sources[which % len(open_sources)]
                source.produce(graph.sources.index(source))
        elif kind < 14:
            self.graph.deliver(which)
        elif kind == 14:
            open_sources = [s for s in graph.sources if not s.finished]
            if open_sources and which % 4 == 0:
                open_sources[which % len(open_sources)].finish()
        elif kind < 17 and not self.running:
            self.n += 1
            self.running, self.aligned, self.escalated = True, kind == 15, []
            graph.trigger(self.n, unaligned=kind == 16)
        elif kind == 17 and self.running:
            self.cancel()
        elif kind >= 18 and self.running and self.aligned:
            # The escalation reaches the subtasks one by one, at any time.
            waiting = [node for node in graph.nodes if node not in self.escalated]
            if waiting:
                node = waiting[which % len(waiting)]
                self.escalated.append(node)
                if not node.finished:
                    node.escalate(self.n)

    def cancel(self) -> None:
        self.running = False
        for node in self.graph.nodes:
            node.cancel(self.n)

    def look(self) -> None:
        """The coordinator looks whether all have acknowledged."""
        cuts = [node.cuts.get(self.n) for node in self.graph.nodes]
        if self.running and all(cut is not None and cut.acknowledged for cut in cuts):
            self.running = False
            self.whole.append(self.n)
            self.graph.check(self.n)

    def drain(self) -> None:
        """Everything that is under way arrives: then nothing may wait for ever."""
        turn = 0
        while self.graph.deliver(turn):
            self.graph.settle()
            self.look()
            turn += 7
        assert not self.running, f"checkpoint {self.n} never became whole"
        for node in self.graph.nodes:
            assert node.alignment.phase is Phase.IDLE
            assert not node.blocked
            assert all(not wire.queue for wire in node.inputs)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(GRAPHS + LOOPS),
    st.integers(0, 127),
    EVENTS,
    st.booleans(),
    st.lists(EVENT, max_size=20),
)
def test_every_whole_checkpoint_is_a_consistent_cut_and_every_one_becomes_whole(
    drawing: tuple[list[tuple[int, int]], int],
    remote: int,
    events: list[tuple[int, int]],
    end: bool,
    after_the_end: list[tuple[int, int]],
) -> None:
    run = Run(Graph(*drawing, remote))
    for kind, which in events:
        run.event(kind, which)
    if end:
        for source in run.graph.sources:
            if not source.finished:
                source.finish()
        run.graph.settle()
        for kind, which in after_the_end:
            run.event(kind, which)
    run.drain()


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(GRAPHS + LOOPS), st.integers(0, 127), EVENTS)
def test_a_checkpoint_after_any_cancellations_captures_nothing_when_all_is_at_rest(
    drawing: tuple[list[tuple[int, int]], int], remote: int, events: list[tuple[int, int]]
) -> None:
    run = Run(Graph(*drawing, remote))
    for kind, which in events:
        run.event(kind, which)
    run.drain()
    for unaligned in (True, False):
        run.n += 1
        run.running, run.aligned, run.escalated = True, not unaligned, []
        run.graph.trigger(run.n, unaligned=unaligned)
        run.graph.settle()
        run.look()
        run.drain()
        for node in run.graph.nodes:
            assert not any(node.cuts[run.n].captured.values())


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(GRAPHS + LOOPS), st.integers(0, 127), EVENTS)
def test_an_aligned_checkpoint_that_is_not_escalated_captures_back_edges_only(
    drawing: tuple[list[tuple[int, int]], int], remote: int, events: list[tuple[int, int]]
) -> None:
    run = Run(Graph(*drawing, remote))
    for kind, which in events:
        if kind < 18 and kind != 16:
            run.event(kind, which)
    run.drain()
    for node in run.graph.nodes:
        for cut in node.cuts.values():
            assert not any(cut.captured[n] for n in cut.captured if not node.inputs[n].back)


def test_the_schedules_reach_every_kind_of_decision() -> None:
    """The simulation is worth something only if it gets everywhere."""
    seen: set[str] = set()
    original = Node.carry_out

    def noting(self: Node, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            name = type(decision).__name__
            seen.add(name)
            if isinstance(decision, TakeSnapshot):
                seen.update(f"capture {extent}" for extent in decision.captures.values())
                seen.add("open" if decision.open else "closed")
        original(self, decisions)

    Node.carry_out = noting  # type: ignore[method-assign]
    try:
        test_every_whole_checkpoint_is_a_consistent_cut_and_every_one_becomes_whole()
    finally:
        Node.carry_out = original  # type: ignore[method-assign]
    assert seen == {
        *("Block", "Resume", "TakeSnapshot", "Forward", "CloseCapture", "Acknowledge", "Abandon"),
        *("capture all", "capture before_barrier", "open", "closed"),
    }
