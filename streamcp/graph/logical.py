"""What the user drew: steps, and how records are divided between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from streamcp.operators.steps import (
    BroadcastStep,
    ConnectStep,
    JoinStep,
    KeyedBroadcastStep,
    SourceStep,
    StepSpec,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step was defined."""

    file: str
    line: int

    def __str__(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i sends to subtask i."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Records are dealt to all subtasks in turn."""


@dataclass(frozen=True, slots=True)
class HashByKey:
    """Records with equal keys go to the same subtask."""

    key: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every subtask gets every record."""


Exchange: TypeAlias = Forward | Rebalance | HashByKey | Broadcast


@dataclass(eq=False, slots=True)
class Node:
    """One step. `number` is its place in the order of definition; `name` is the user's, if any.

    The head of a loop gets its back edges as further inputs, once its body is drawn; all other
    inputs are of steps that were defined before. `timed`: its records have timestamps, and
    watermarks are among them."""

    number: int
    spec: StepSpec
    inputs: tuple[Connection, ...]
    place: Place
    name: str | None = None
    parallelism: int | None = None
    timed: bool = field(init=False)

    def __post_init__(self) -> None:
        """A broadcast input only brings what is to be remembered: it need not have event time."""
        if isinstance(self.spec, SourceStep):
            self.timed = self.spec.watermarks is not None
        else:
            self.timed = any(one.timed for one in self.inputs if not one.beside)

    @property
    def verb(self) -> str:
        """The word the user wrote: `map`, `source`, …."""
        two_inputs = isinstance(self.spec, ConnectStep | BroadcastStep | KeyedBroadcastStep)
        if two_inputs and not isinstance(self.spec, JoinStep):
            return "process"
        return _verb(type(self.spec).__name__)

    @property
    def label(self) -> str:
        """The user's name, or verb and number: unique within a job."""
        return self.name if self.name is not None else f"{self.verb}-{self.number}"


@dataclass(frozen=True, slots=True)
class Connection:
    """An output of `node` and how its records are divided among the receiver's subtasks.

    `output` is "main", "errors", or "yes"/"no" of a branch. `port` is the input of the receiver:
    1 for the second one of a step with two, else 0; an input may have several connections. `back`
    says that it leads back to the head of a loop."""

    node: Node
    output: str = "main"
    exchange: Exchange = Forward()
    port: int = 0
    back: bool = False

    @property
    def timed(self) -> bool:
        """Its records have timestamps."""
        return self.node.timed

    @property
    def beside(self) -> bool:
        """It is a broadcast input, which all subtasks of the receiver get."""
        return isinstance(self.exchange, Broadcast)


@dataclass(slots=True)
class LogicalGraph:
    """All steps of a job, in the order of their definition."""

    job: str
    parallelism: int = 1
    max_parallelism: int = 128
    nodes: list[Node] = field(default_factory=list)


def told(node: Node) -> str:
    """`jobs.py:12: map 'fx'`."""
    named = f" {node.name!r}" if node.name is not None else ""
    return f"{node.verb}{named} ({node.place})"


@cache
def _verb(class_name: str) -> str:
    """`FlatMapStep` to `flat_map`."""
    stem = class_name.removesuffix("Step")
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in stem).lstrip("_")
