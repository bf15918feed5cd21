"""Any schedule of several aligned checkpoints at a time, and of counted barriers (P10, P29).

The graph of `test_alignment_properties`; the coordinator triggers up to three checkpoints before
the first has ended, cancels any of them, and sources end at any time.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.checkpoint.alignment import Phase
from tests.checkpoint.test_alignment_properties import EVENTS, GRAPHS, LOOPS, Graph, Node, Record

AT_A_TIME = 3


class OverlappingRun:
    """Carries out one schedule; with `at_least_once` only one checkpoint at a time."""

    def __init__(self, graph: Graph, *, at_least_once: bool = False) -> None:
        self.graph = graph
        self.at_least_once = at_least_once
        self.at_a_time = 1 if at_least_once else AT_A_TIME
        self.n = 0
        self.running: list[int] = []
        self.whole: list[int] = []
        self.most = 0

    def event(self, kind: int, which: int) -> None:
        graph = self.graph
        open_sources = [source for source in graph.sources if not source.finished]
        if kind < 6 and open_sources:
            source = open_sources[which % len(open_sources)]
            source.produce(graph.sources.index(source))
        elif kind < 14:
            graph.deliver(which)
        elif kind == 14 and open_sources and which % 4 == 0:
            open_sources[which % len(open_sources)].finish()
        elif kind < 18 and len(self.running) < self.at_a_time:
            self.n += 1
            self.running.append(self.n)
            self.most = max(self.most, len(self.running))
            graph.trigger(self.n, unaligned=False)
        elif kind >= 18 and self.running:
            self.cancel(self.running[which % len(self.running)])
        graph.settle()
        self.look()

    def cancel(self, n: int) -> None:
        self.running.remove(n)
        for node in self.graph.nodes:
            node.cancel(n)

    def look(self) -> None:
        """The coordinator looks whether all have acknowledged."""
        for n in tuple(self.running):
            cuts = [node.cuts.get(n) for node in self.graph.nodes]
            if all(cut is not None and cut.acknowledged for cut in cuts):
                self.running.remove(n)
                self.whole.append(n)
                self.check(n)

    def check(self, n: int) -> None:
        for node in self.graph.nodes:
            assert all(node.inputs[number].back for number in node.cuts[n].captured)
        if not self.at_least_once:
            self.graph.check(n)
            return
        for node in self.graph.nodes:
            assert not missing(node, n), f"{node.id} lost records at checkpoint {n}"

    def drain(self) -> None:
        """Everything that is under way arrives: then nothing may wait for ever."""
        turn = 0
        while self.graph.deliver(turn):
            self.graph.settle()
            self.look()
            turn += 7
        assert not self.running, f"checkpoints {self.running} never became whole"
        for node in self.graph.nodes:
            assert node.alignment.phase is Phase.IDLE
            assert not node.blocked


def missing(node: Node, n: int) -> Counter[Record]:
    """Records that the senders had sent before their cuts, and that are neither in the state nor
    captured on a back edge."""
    sent: Counter[Record] = Counter()
    for wire in node.inputs:
        index = wire.sender.outputs.index(wire)
        sent.update(wire.sent[: wire.sender.cuts[n].sent[index]])
    captured = [one for part in node.cuts[n].captured.values() for one in part]
    return sent - Counter(node.cuts[n].state) - Counter(captured)


def run_schedule(run: OverlappingRun, events: list[tuple[int, int]], *, end: bool) -> None:
    for kind, which in events:
        run.event(kind, which)
    if end:
        for source in run.graph.sources:
            if not source.finished:
                source.finish()
    run.drain()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GRAPHS), st.integers(0, 127), EVENTS, st.booleans())
def test_checkpoints_that_overlap_are_each_a_consistent_cut_and_all_become_whole(
    drawing: tuple[list[tuple[int, int]], int],
    remote: int,
    events: list[tuple[int, int]],
    end: bool,
) -> None:
    run = OverlappingRun(Graph(*drawing, remote))
    run_schedule(run, events, end=end)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GRAPHS + LOOPS), st.integers(0, 127), EVENTS, st.booleans())
def test_counted_barriers_block_nothing_and_lose_nothing(
    drawing: tuple[list[tuple[int, int]], int],
    remote: int,
    events: list[tuple[int, int]],
    end: bool,
) -> None:
    run = OverlappingRun(Graph(*drawing, remote, at_least_once=True), at_least_once=True)
    for kind, which in events:
        run.event(kind, which)
        assert not any(node.blocked for node in run.graph.nodes)
    run_schedule(run, [], end=end)


def test_the_schedules_let_checkpoints_overlap() -> None:
    """The property is worth something only if older ones are still on their way."""
    most = 0
    original = OverlappingRun.drain

    def noting(self: OverlappingRun) -> None:
        nonlocal most
        most = max(most, self.most)
        original(self)

    OverlappingRun.drain = noting  # type: ignore[method-assign]
    try:
        test_checkpoints_that_overlap_are_each_a_consistent_cut_and_all_become_whole()
    finally:
        OverlappingRun.drain = original  # type: ignore[method-assign]
    assert most == AT_A_TIME
