"""What stands in a tried job for everything outside of it: sources, sinks, and services.

Each life of the job gets a graph of its own, made anew from the user's; what was fed and what was
written outlives it. A crash is a copy of what was written by then, so it needs no help of the job.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import NonCallableMock

from streamcp.api.functions import innermost
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Connection, LogicalGraph, Node, Place
from streamcp.operators import steps
from streamcp.operators.steps import MachineStep, Opener, SinkStep, SourceStep
from streamcp.operators.windows import LATE
from streamcp.testing.feeds import Feeds
from streamcp.testing.graphs import copied_graph
from streamcp.testing.simulation.targets import (
    Call,
    PlainSink,
    Target,
    TransactionalSink,
    make_call,
)

# The only split of a divided source, where a trial names no others.
ONE_SPLIT = ("fed",)


class StandIns:
    """The stand-ins of one job. `feeds` are its sources, `written` has a target for each sink.

    Raises DefinitionError for a service that is not replaced, and for a replacement of nothing."""

    def __init__(
        self,
        graph: LogicalGraph,
        services: Mapping[Any, Any],
        splits: Mapping[str, Sequence[Any]],
        *,
        fakes: Mapping[Any, Any] | None = None,
        collect_late: bool = True,
        call: Call = make_call,
    ) -> None:
        """`fakes` stand in for services that `services` does not name. With `collect_late` late
        records are kept, also where nobody reads them. `call` is how sinks that wait call their
        target."""
        self._graph = graph
        self._collects_late = collect_late
        self._call = call
        self._splits = splits
        self.feeds = Feeds()
        self.written: dict[str, Target] = {}
        self._openers = _openers(graph, services, fakes or {})
        kinds: dict[str, Any] = {
            "source": SourceStep,
            "sink": SinkStep,
            "window or join": MachineStep,
        }
        self.labels = {
            kind: [node.label for node in graph.nodes if isinstance(node.spec, spec)]
            for kind, spec in kinds.items()
        }
        _check_splits(graph, splits)

    def graph(self) -> LogicalGraph:
        """Make the graph of one life."""
        graph = copied_graph(self._graph)
        for node in list(graph.nodes):
            node.spec = self._stand_in(node)
            if self._collects_late and isinstance(node.spec, MachineStep):
                self._collect_late(graph, node)
        return graph

    def crash(self) -> None:
        """Go on from what is written now: what the life that ends here still does is lost."""
        self.written = {label: target.copy() for label, target in self.written.items()}

    def records(self, label: str, *, committed: bool) -> list[Any]:
        """What was written to a sink."""
        target = self.written[label]
        parts = [*target.committed.values()]
        if not committed:
            parts += target.open.values()
        return [*target.plain.get(label, ()), *(record for part in parts for record in part)]

    def late(self, step: str) -> list[Any]:
        """The late records of a window or a join."""
        return self.records(_late(step), committed=False)

    def _stand_in(self, node: Node) -> Any:
        spec = node.spec
        if isinstance(spec, SourceStep):
            return self.feeds.stand_in(node.label, spec, self._splits.get(node.label, ONE_SPLIT))
        if isinstance(spec, SinkStep):
            return self._sink(node.label, spec)
        if isinstance(spec, steps.Call) and spec.uses is not None:
            return dataclasses.replace(spec, uses=self._openers[spec.uses])
        return spec

    def _sink(self, label: str, spec: SinkStep) -> SinkStep:
        """Collect what is written, under the contract of the sink; one that is staged gets what is
        written at once, since readers can be told what is committed."""
        target = self.written.setdefault(label, Target())
        if spec.exactly_once:
            opened = functools.partial(TransactionalSink, target, label, self._call, [])
            return dataclasses.replace(spec, open=opened, kind="transactional")
        if spec.kind == "plain":
            return dataclasses.replace(spec, open=lambda: _Inline(target, label))
        return dataclasses.replace(
            spec, open=functools.partial(PlainSink, target, label, self._call, [])
        )

    def _collect_late(self, graph: LogicalGraph, node: Node) -> None:
        label = _late(node.label)
        spec = self._sink(label, SinkStep(list, "transactional"))
        late = Connection(node, LATE.output)
        number, place = len(graph.nodes) + 1, Place("trial", 0)
        graph.nodes.append(Node(number, spec, (late,), place, label, node.parallelism))


class _Inline:
    """A sink that is called in the task of the step before it."""

    def __init__(self, target: Target, label: str) -> None:
        self._records = target.plain.setdefault(label, [])

    def write(self, records: Sequence[Any], /) -> None:
        """Keep records."""
        self._records.extend(records)


def _late(step: str) -> str:
    return f"{step} (late, as the trial sees them)"


def known(labels: Iterable[str]) -> str:
    """List labels for an error."""
    return ", ".join(map(repr, labels)) or "none"


def _check_splits(graph: LogicalGraph, splits: Mapping[str, Sequence[Any]]) -> None:
    divided = [
        node.label
        for node in graph.nodes
        if isinstance(node.spec, SourceStep) and node.spec.source.splits is not None
    ]
    for label, names in splits.items():
        if label not in divided:
            raise DefinitionError(
                f"trial(splits={{{label!r}: ...}}): job {graph.job!r} has no source of that name "
                f"that has splits; it has {known(divided)}"
            )
        if not names:
            raise DefinitionError(f"trial(splits={{{label!r}: ...}}) names no split: name one")


# ---- services


def _openers(
    graph: LogicalGraph, services: Mapping[Any, Any], fakes: Mapping[Any, Any]
) -> dict[Opener, Opener]:
    """What opens the stand-in of each service; the same service is shared as before."""
    used: dict[Any, list[str]] = {}
    for node in graph.nodes:
        if isinstance(node.spec, steps.Call) and node.spec.uses is not None:
            used.setdefault(node.spec.uses, []).append(node.label)
    stand_ins = {opener: fakes[opener] for opener in used if opener in fakes}
    for key, stand_in in services.items():
        meant = [opener for opener in used if _is_meant(key, opener, used[opener])]
        if not meant:
            raise DefinitionError(
                f"services={{{_name(key)}: ...}} replaces nothing of job {graph.job!r}: its steps "
                f"use {_told(used)}; write the opener, its function or the step"
            )
        stand_ins.update(dict.fromkeys(meant, stand_in))
    missing = {opener: labels for opener, labels in used.items() if opener not in stand_ins}
    if missing:
        raise DefinitionError(
            "nothing outside is touched here: write services={opener: stand_in} for "
            f"{_told(missing)} (an opener that touches nothing outside may stand in for itself)"
        )
    return {opener: _opener(stand_in) for opener, stand_in in stand_ins.items()}


def _is_meant(key: Any, opener: Any, labels: Sequence[str]) -> bool:
    """A service is named by its opener, by the function that a partial opener calls, or by a step
    that uses it: an opener that is made where the job is drawn is in nobody else's hand."""
    return bool(key == opener or key in labels or key is innermost(opener))


def _told(used: Mapping[Any, Sequence[str]]) -> str:
    return "; ".join(
        f"{_name(opener)} (in step {known(labels)})" for opener, labels in used.items()
    )


def _opener(stand_in: Any) -> Opener:
    """An opener of a stand-in: a function or class is called each time that the service is opened,
    a context manager is entered, and any other object, and every mock, is the service itself."""
    if isinstance(stand_in, NonCallableMock):
        return lambda: nullcontext(stand_in)
    if inspect.isroutine(stand_in) or isinstance(stand_in, type | functools.partial):
        return stand_in
    if hasattr(stand_in, "__aenter__"):
        return lambda: stand_in
    return lambda: nullcontext(stand_in)


def _name(opener: Any) -> str:
    return str(getattr(innermost(opener), "__qualname__", repr(opener)))
