"""Which answers are durable in a simulated journal, and that their calls are not made again.

What is durable is seen from outside, when an append has returned. A call is compared with what was
durable when its attempt began. Answers of a copy that has lost its job to another one do not count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from streamcp.checkpoint.journal import JournalHead
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.testing.simulation.records import Item, Loose, Seen

Asked: TypeAlias = tuple[str, bytes, bytes]
"""Step, content and state of a call."""
Past: TypeAlias = tuple[Path, str, str]
"""Directory, fork and life: attempts of one past know of each other's answers."""


def _digests() -> Serializer:
    registry = TypeRegistry()
    for one in (Item, Loose, Seen):
        registry.declare(one, step="simulation")
    return Serializer(registry)


class DurableAnswers:
    """The answers of a whole run. `owners` says which storage has begun last, per directory;
    `lost` that the machine has crashed: what is still written reaches no later life."""

    def __init__(self) -> None:
        self.owners: dict[Path, object] = {}
        self.lost = False
        self._durable: dict[Past, set[Asked]] = {}
        self._serializer = _digests()

    def of(self, directory: Path, head: JournalHead) -> set[Asked]:
        """The answers of the past that an attempt goes on with."""
        return self._durable.setdefault((directory, head.fork, head.life), set())

    def asked(self, step: str, content: Any, state: Any) -> Asked:
        """How the journal tells a call."""
        digest = self._serializer.digest
        of_state = b"" if state is None else digest(state, step=step)
        return step, digest(content, step=step), of_state
