"""What a source has read of one split: its position, and what it has only collected.

What is collected counts as unread until it is taken over, together with the position after it
(rule P6). Knows neither the task nor what becomes of the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from streamcp.operators.sources import Source
from streamcp.operators.watermarks import Stamper
from streamcp.runtime.drift import DriftMember
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import Serializer

_UNCHANGING = (range, tuple)


class FrozenPosition:
    """A position that its generator may change: kept as bytes (rule P6)."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Reader:
    """Reads one split, or the whole of an undivided source (`split` None).

    `position` is the one after the last record that was taken over, `collected_position` the one
    after what is `collected`. `stamper` finds the timestamps, if there are any; `active_at` is when
    there was last a record, or no room for one. `member` is its part in a group of sources that
    keep together, if it has one."""

    __slots__ = (
        "_open",
        "_serializer",
        "active_at",
        "collected",
        "collected_position",
        "ended",
        "generator",
        "member",
        "number",
        "position",
        "split",
        "stamper",
        "step",
        "taken_over",
    )

    def __init__(
        self,
        source: Source[Any],
        split: Any,
        step: str,
        serializer: Serializer,
        stamper: Stamper[Any] | None,
        member: DriftMember | None = None,
    ) -> None:
        self.split = split
        self.member = member
        self.stamper = stamper
        self.number = 0
        self.active_at = 0.0
        self.step = step
        self.position: Any = source.start
        self.collected: Sequence[Any] = ()
        self.collected_position: Any = source.start
        self.ended = False
        self.generator: AsyncIterator[tuple[Any, Any]] | None = None
        self.taken_over = asyncio.Event()
        self._serializer = serializer
        self._open: Callable[[Any], AsyncIterator[tuple[Any, Any]]] = (
            source.open if split is None else lambda at: source.open_split(split, at)
        )

    def begin(self) -> AsyncIterator[tuple[Any, Any]]:
        """Open the generator at the position, once."""
        if self.generator is None:
            self.collected_position = self.position
            self.generator = self._open(self.thawed_position())
        return self.generator

    def thawed_position(self) -> Any:
        """The position as the generator yielded it."""
        if isinstance(self.position, FrozenPosition):
            return self._serializer.loads(self.position.data)
        return self.position

    def collect(self, record: Any) -> None:
        """Add a record to what is collected."""
        if type(self.collected) is not list:
            self.collected = list(self.collected)
        self.collected.append(record)

    def collect_batch(self, records: Sequence[Any]) -> None:
        """Add records. A list is copied, since the generator may go on using it; what cannot
        change is taken as it is, so that a range is never spelled out."""
        if not self.collected and type(records) in _UNCHANGING:
            self.collected = records
        else:
            self.collected = [*self.collected, *records]

    def keep(self, position: Any) -> None:
        """Remember the position after what was collected; freeze it if it could be changed."""
        if not is_deeply_immutable(position):
            position = FrozenPosition(self._serializer.dumps(position, step=self.step))
        self.collected_position = position

    @property
    def has_ended(self) -> bool:
        """Nothing comes from it any more: what it has collected is taken over as well."""
        return self.ended and not self.collected

    @property
    def must_wait(self) -> bool:
        """It has records, and is too far ahead of its group."""
        return bool(self.collected) and self.is_ahead

    @property
    def is_ahead(self) -> bool:
        """It is too far ahead of its group. Whoever asks is woken when that is over."""
        return self.member is not None and self.member.must_wait

    def end(self) -> None:
        """Read no more; what was only collected counts as unread."""
        self.ended = True
        self.collected, self.collected_position = (), self.position

    def take_over(self) -> Sequence[Any]:
        """Hand the collected records over: from now on they are read."""
        records, self.collected = self.collected, ()
        self.position = self.collected_position
        self.taken_over.set()
        return records
