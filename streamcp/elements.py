"""What travels on a stream.

A record on a stream with event time is a pair of its value and its timestamp (decision 0018);
whether a stream has event time is fixed by the graph. Timestamps are milliseconds since the epoch.

A `Batch` is mutable only in `captured`. From the moment at which a snapshot or a receiver has it,
its list of values is never changed, so that any number of snapshots may refer to it; one that
waits in a channel may still grow (decision 0009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

MIN_TIMESTAMP: Final = -(2**63)
"""The watermark before the first record: nothing is known of event time yet."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""The watermark at the end of input: no record comes any more, whatever its timestamp."""

CheckpointMode: TypeAlias = Literal["aligned", "unaligned", "at_least_once"]
"""How the barriers of one checkpoint travel: in line with the data or ahead of it; or in line, and
only counted (rule P29)."""


class ListTimestamp(int):
    """The timestamp of a list of records: the latest of theirs. `each` are all, in their order."""

    each: tuple[int, ...]

    def __new__(cls, each: tuple[int, ...]) -> ListTimestamp:
        """Take the timestamps of one record or more."""
        made = super().__new__(cls, max(each))
        made.each = each
        return made


class Batch:
    """A list of records. `captured` is the handle of the snapshot that holds it, if one does."""

    __slots__ = ("captured", "values")

    def __init__(self, values: list[Any]) -> None:
        """Wrap `values`, which must not be changed from now on."""
        self.values = values
        self.captured: Any = None

    def __len__(self) -> int:
        """Count the records."""
        return len(self.values)

    def __repr__(self) -> str:
        """Show the number of records, never the records (they may be large or secret)."""
        return f"Batch({len(self.values)} records)"


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """The line between the records before a checkpoint and those after it."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with this timestamp or an earlier one comes any more, except late ones."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class IdleStatus:
    """From now on the channel does not hold event time back, or does so again."""

    idle: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel."""


Mark: TypeAlias = Watermark | IdleStatus
"""What tells of event time, in line with the records that it is about."""

InFlight: TypeAlias = Batch | Mark
"""What a snapshot captures of a channel (rule P15)."""

Element: TypeAlias = InFlight | CheckpointBarrier | EndOfInput
