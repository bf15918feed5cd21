"""Sources that end early, so that every run of a comparison reads the same records.

What a reader has given out is part of its position: a restored one ends at the same record as an
undisturbed one. Knows nothing of checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from streamcp.operators.sources import Source


class Quota:
    """How much each reader of a source may give out: an undivided source, or one split.

    `read` has what they have given out since the beginning of the job, `limits` what they may."""

    def __init__(self, limits: Mapping[str, int] | None = None, records: int | None = None) -> None:
        """Allow each reader what `limits` says under its name, or else each source `records`,
        divided among its readers; everything, if neither is given."""
        self.limits = dict(limits or {})
        self._records = records
        self._closed = False
        self.read: dict[str, int] = {}

    def close(self) -> None:
        """Let every reader end at once."""
        self._closed = True

    def allow(self, reader: str, readers: int) -> None:
        """A reader begins, one of so many of its source."""
        self.read.setdefault(reader, 0)
        if self._records is not None:
            self.limits.setdefault(reader, math.ceil(self._records / max(readers, 1)))

    def room(self, reader: str, given: int) -> float:
        """How many more records `reader` may give out."""
        return 0 if self._closed else self.limits.get(reader, math.inf) - given


def limited(source: Source[Any], name: str, quota: Quota) -> Source[Any]:
    """Make `source` end as `quota` says. Its positions are then `(position, records so far)`.

    The annotations of its function stay visible: they declare what a snapshot may hold."""
    if source.splits is None:
        return dataclasses.replace(
            source, fn=_undivided(source, name, quota), start=(source.start, 0)
        )
    return dataclasses.replace(source, fn=_divided(source, name, quota), start=(source.start, 0))


Reading = Callable[..., AsyncIterator[tuple[Any, Any]]]


def _undivided(source: Source[Any], name: str, quota: Quota) -> Reading:
    @functools.wraps(source.fn)
    def read(position: Any, *args: Any, **kwargs: Any) -> AsyncIterator[tuple[Any, Any]]:
        inner, given = position
        quota.allow(name, 1)
        return _read(source.fn(inner, *args, **kwargs), name, given, quota, source.batches)

    return read


def _divided(source: Source[Any], name: str, quota: Quota) -> Reading:
    assert source.splits is not None
    splits = source.splits

    @functools.wraps(source.fn)
    def read(
        split: Any, position: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        inner, given = position
        reader = f"{name}[{split!r}]"
        quota.allow(reader, len(list(splits())))
        opened = source.fn(split, inner, *args, **kwargs)
        return _read(opened, reader, given, quota, source.batches)

    return read


async def _read(
    opened: AsyncIterator[tuple[Any, Any]], reader: str, given: int, quota: Quota, batches: bool
) -> AsyncIterator[tuple[Any, Any]]:
    """Asks for the next record only while there is room: it may be long in coming."""
    quota.read[reader] = given
    try:
        while (room := quota.room(reader, given)) > 0:
            try:
                value, position = await anext(opened)
            except StopAsyncIteration:
                return
            if batches and len(value) > room:
                value = value[: int(room)]  # the position lies behind, but nobody reads on
            given += len(value) if batches else 1
            quota.read[reader] = given
            yield value, (position, given)
    finally:
        if hasattr(opened, "aclose"):
            await opened.aclose()
