"""Sinks that keep every record, or none. Both live in the memory of the process that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)


class Collect(Generic[T]):
    """Keeps records in `records`, in the order in which they came; made by `collect()`.

    At least once: after a restart of the job a record may be there twice."""

    def __init__(self) -> None:
        self.records: list[T] = []

    def write(self, records: Sequence[T], /) -> None:
        """Add `records` at the end, all of them at once."""
        self.records.extend(records)


class Discard:
    """Drops records; made by `discard()`."""

    drops_everything = True  # so that records need not even be collected for it

    def write(self, records: Sequence[object], /) -> None:
        """Do nothing."""


def collect() -> Collect[Any]:
    """Make a sink whose `records` is a list, to look at when the job has ended.

    With worker processes the list is filled in the worker; use a file sink there."""
    return Collect()


def discard() -> Discard:
    """Make a sink that does nothing: for measuring what comes before it."""
    return Discard()
