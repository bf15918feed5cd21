"""One run of a step under test: its elements are given one by one, and its output is kept.

What a run may do between two elements is plain data (`Way`). The sink is at least once, so that a
barrier passes writes that are held up; what it has is put back to the last checkpoint by a crash,
which was taken when everything waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from streamcp.api.jobs import Job
from streamcp.config import Checkpoints, Mode
from streamcp.elements import EndOfInput
from streamcp.graph.logical import LogicalGraph, Node
from streamcp.operators.steps import SinkStep
from streamcp.testing.given import Element, Inputs, input_of, passes
from streamcp.testing.simulation.loop import Style
from streamcp.testing.simulation.targets import Effect, Target
from streamcp.testing.simulation.user_parallelism import change_parallelism
from streamcp.testing.standins import StandIns
from streamcp.testing.tried import TriedJob

SINK = "verified"
# A full queue holds one record.
_FULL = 1
_PLENTY = 4096
_START_MS = 1_700_000_000_000

Cut: TypeAlias = Literal["never", "behind", "before"]
"""When the step is restored into a fresh one: never; behind each element, from a snapshot behind
it; or behind each element from a snapshot before it, so that it comes again."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a step is run. `full`: its output queue is full, and takes one record when it is asked
    for. `rescaled`: each fresh step has another parallelism."""

    name: str
    cut: Cut = "never"
    full: bool = False
    rescaled: bool = False
    mode: Mode = "unaligned"
    style: Style = "asyncio"
    seed: int = 0


class Gate:
    """Holds writes up, until they are asked for one by one; open, it lets all pass."""

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self._held: list[asyncio.Event] = []

    async def call(self, name: str, effect: Effect) -> Any:
        """Make a call of the target when its turn comes."""
        if not self.is_open:
            asked = asyncio.Event()
            self._held.append(asked)
            try:
                await asked.wait()
            finally:
                self._held.remove(asked)
        return effect()

    def ask(self) -> bool:
        """Let the write pass that has waited longest; False if none waits."""
        if not self._held:
            return False
        self._held[0].set()
        return True


class _Outside(StandIns):
    """What is outside of the step: after a crash the sink has what it had at the checkpoint."""

    def __init__(self, graph: LogicalGraph, services: Mapping[Any, Any], way: Way) -> None:
        self.gate = Gate(is_open=not way.full)
        super().__init__(graph, services, {}, collect_late=False, call=self.gate.call)
        self._rescaled = way.rescaled
        self._lives = 0
        self._kept: dict[str, Target] = {}

    def graph(self) -> LogicalGraph:
        """Make the graph of the next fresh step."""
        graph = super().graph()
        if self._rescaled:
            change_parallelism(graph.nodes, graph.max_parallelism, self._lives)
        self._lives += 1
        return graph

    def _stand_in(self, node: Node) -> Any:
        """Leave other sinks as they are: they may be the step under test."""
        if isinstance(node.spec, SinkStep) and node.label != SINK:
            return node.spec
        return super()._stand_in(node)

    def keep(self) -> None:
        """A checkpoint holds all that is not written now."""
        self._kept = {label: target.copy() for label, target in self.written.items()}

    def crash(self) -> None:
        """Go back to the last checkpoint."""
        self.written = {label: target.copy() for label, target in self._kept.items()}


class Run:
    """A run of the step that `job` holds between the sources of `inputs` and the sink `SINK`.

    `outputs` has what was written behind each element, and at last behind the end of all input."""

    def __init__(
        self, job: Callable[[int], Job], inputs: Inputs, services: Mapping[Any, Any], way: Way
    ) -> None:
        made = job(_FULL if way.full else _PLENTY)
        self._way = way
        self._inputs = inputs
        self._outside = _Outside(made.graph, services, way)
        checkpoints = Checkpoints(to="in memory", mode=way.mode)
        self._tried = TriedJob(
            made,
            self._outside,
            checkpoints,
            start_ms=_START_MS,
            seed=way.seed,
            style=way.style,
        )
        self.outputs: list[list[Any]] = []
        self._written = 0

    def run(self, elements: Sequence[Element]) -> None:
        """Give all elements, and the end. Raises what the job raises."""
        self._tried.begin()
        undisturbed = False
        try:
            for element in elements:
                self._give(element)
                self.outputs.append(self._output())
            self._finish()
            self.outputs.append(self._output())
            undisturbed = True
        finally:
            self._tried.end(undisturbed=undisturbed)

    def _output(self) -> list[Any]:
        return self._outside.records(SINK, committed=False)

    def _give(self, element: Element) -> None:
        time = passes(element)
        if time or self._inputs.count > 1:
            self._drain()  # what comes by two inputs has no order, nor has it with what time brings
        comes_again = self._way.cut == "before" and not time and not self._tried.has_finished
        if comes_again:
            self._snapshot()
        self._feed(element)
        self._tried.advance(time)
        if comes_again:
            self._tried.crash()
        self._cut_behind()

    def _feed(self, element: Element) -> None:
        source, records = self._inputs.fed(element)
        if isinstance(input_of(element)[1], EndOfInput):
            self._outside.feeds.end(source, None)
        elif records:
            self._outside.feeds.add(source, None, records)

    def _cut_behind(self) -> None:
        if self._way.cut == "behind" and not self._tried.has_finished:
            self._snapshot()
            self._tried.crash()

    def _snapshot(self) -> None:
        self._tried.rest()
        self._tried.run(self._tried.handle.checkpoint())
        self._outside.keep()

    def _drain(self) -> None:
        """Ask for records one by one, until none is held up."""
        while self._outside.gate.ask():
            self._tried.rest()
            self._cut_behind()

    def _finish(self) -> None:
        self._outside.feeds.end_all()
        self._tried.rest()
        self._drain()
        self._outside.gate.is_open = True
        self._tried.run(self._tried.handle.wait_finished())
