"""Side outputs: a typed name for what a function emits beside its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Tag(Generic[T]):
    """The name of a side output of a step, and the type of its records: `Tag[Click]("odd")`.

    `context.emit_to(tag, record)` emits there, and `step.side(tag)` is the stream of these records.
    What is emitted to a side output that nobody reads is dropped. Two tags of one name are one."""

    name: str

    @property
    def output(self) -> str:
        """The name of the output in the graph."""
        return f"side {self.name}"
