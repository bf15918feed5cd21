"""The records and the state of random jobs: made so that losing, doubling or reordering shows.

What a random job puts out does not depend on the order in which things happen, as long as every
record is handled once, and in order where order is promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from streamcp.elements import MIN_TIMESTAMP
from streamcp.operators.failures import Failure

FIRST_TIMESTAMP = 1_000_000_000_000
"""That of the first record of a source; timers are set for much earlier times."""


@dataclass(frozen=True)
class Item:
    """A record: `origin` and `seq` are unique together, and `seq` ascends where order is kept."""

    key: int
    origin: str
    seq: tuple[int, ...]
    tag: str = ""

    def __str__(self) -> str:
        """`source1:3.0 of key 2`."""
        return f"{self.origin}:{'.'.join(map(str, self.seq))} of key {self.key}"


@dataclass
class Loose:
    """The same, in a form that might be changed: it is kept frozen in snapshots."""

    key: int
    origin: str
    seq: tuple[int, ...]
    tag: str = ""

    __str__ = Item.__str__


AnyItem: TypeAlias = Item | Loose


@dataclass
class Seen:
    """The state of a key: which records came, and the newest of each origin."""

    count: int = 0
    records: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    last: dict[str, tuple[int, ...]] = field(default_factory=dict)
    watermark: int = MIN_TIMESTAMP

    def note_time(self, timestamp: int, watermark: int) -> str:
        """Say what is wrong with the watermark (I4): it is behind that of an earlier record of the
        key, or it makes this one late. What comes of a timer has its time, which is long past."""
        mark = "#back" if watermark < self.watermark else ""
        self.watermark = watermark
        return mark + "#late" if FIRST_TIMESTAMP <= timestamp <= watermark else mark

    def note(self, item: AnyItem, *, ordered: bool) -> str:
        """Count a record, and say what is wrong with its coming now."""
        self.count += 1
        mark = "#twice" if (item.origin, item.seq) in self.records else ""
        self.records.add((item.origin, item.seq))
        if ordered and not item.origin.startswith("timer"):
            if self.last.get(item.origin, ()) >= item.seq:
                mark += "#early"
            self.last[item.origin] = item.seq
        return mark


def tagged(item: AnyItem, tag: str) -> Any:
    """The record with something added to its tag."""
    return replace(item, tag=f"{item.tag}{tag}")


def as_row(record: Any) -> tuple[Any, ...]:
    """What a sink gets: plain values."""
    if isinstance(record, Failure):
        return ("failure", *as_row(record.record))
    return (record.key, record.origin, record.seq, record.tag)
