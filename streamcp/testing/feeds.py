"""Sources that are fed by hand, in the place of those of a job.

Invariant: what was fed, to whatever source, is given out in the order in which it was fed, each
part only when everything before it is worked off; also what is read once more after a restore. It
must not know what runs the job: `Feeds.release` is called when everything waits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from streamcp.errors import StreamcpError
from streamcp.operators.steps import SourceStep

# No part is longer: what a test feeds at once may be more than a job works off without a rest.
_LONGEST_PART = 200

Given = tuple[Sequence[Any], int]


class Feed:
    """What one split of a source is given; an undivided source has one.

    The position is the number of records before it, as of a list. Parts are (number, end): those
    of all feeds are numbered in one row."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.ended = False
        self._parts: list[tuple[int, int]] = []
        self._end: int | None = None
        self._given = 0
        self._released = 0
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def add(self, number: int, records: Sequence[Any]) -> None:
        """Add a part."""
        self.records += records
        self._parts.append((number, len(self.records)))

    def end(self, number: int) -> None:
        """Let no more come behind what was added."""
        self.ended, self._end = True, number

    @property
    def next_part(self) -> int | None:
        """The number of the part that its reader waits for; None if nobody waits, or for none."""
        if self._waiter is None or self._waiter.done():
            return None
        left = (number for number, end in self._parts if end > self._released)
        return next(left, self._end)

    def release(self) -> None:
        """Give the next part to the reader, which waits for it."""
        assert self._waiter is not None
        ends = (end for _, end in self._parts if end > self._released)
        end = next(ends, None)
        if end is None:
            self._is_over = True
        else:
            self._released = end
        self._waiter.set_result(None)

    async def read(self, position: int) -> AsyncIterator[Given]:
        """Give out what is released, from `position` on."""
        self._given = self._released = position
        self._is_over = False
        while True:
            if self._given < self._released:
                part = self.records[self._given : self._released]
                self._given = self._released
                yield part, self._given
            elif self._is_over:
                return
            else:
                await self._wait()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Feeds:
    """The feeds of all sources of a job, by the label of the source and by split."""

    def __init__(self) -> None:
        self._feeds: dict[str, dict[Any, Feed]] = {}
        self._one_by_one: set[str] = set()
        self._numbers = count()

    def stand_in(self, label: str, spec: SourceStep, splits: Sequence[Any]) -> SourceStep:
        """Describe the source that is fed instead of `spec`; always fed what its feed has.

        `splits` are those of a divided source. The annotations of the user's function stay visible:
        they declare what a snapshot may hold."""
        divided = spec.source.splits is not None
        feeds = self._feeds.setdefault(
            label, {split: Feed() for split in (splits if divided else [None])}
        )
        if spec.watermarks is not None:
            self._one_by_one.add(label)

        @functools.wraps(spec.source.fn)
        def read(*at: Any) -> AsyncIterator[Given]:
            split, position = at if divided else (None, *at)
            return feeds[split].read(position)

        source = dataclasses.replace(
            spec.source,
            fn=read,
            start=0,
            args=(),
            kwargs={},
            splits=(lambda: list(feeds)) if divided else None,
            batches=True,
        )
        return dataclasses.replace(spec, source=source)

    def add(self, label: str, split: Any, records: Iterable[Any]) -> None:
        """Feed a source. With event time its records are parts of their own: each is followed by
        the watermark behind it, so that what is late does not depend on chance.

        Raises StreamcpError for a split that is not there, and for a feed that has ended."""
        feed = self._open_feed(label, split)
        given = [*records]
        size = 1 if label in self._one_by_one else _LONGEST_PART
        for begin in range(0, len(given), size):
            feed.add(next(self._numbers), given[begin : begin + size])

    def end(self, label: str, split: Any) -> None:
        """End a split of a source, or without a split all that have not ended.

        Raises StreamcpError for a split that is not there, and for what has ended."""
        if split is not None or len(self._feeds[label]) == 1:
            self._open_feed(label, split).end(next(self._numbers))
            return
        feeds = [feed for feed in self._feeds[label].values() if not feed.ended]
        if not feeds:
            raise StreamcpError(f"source {label!r} has ended already")
        for feed in feeds:
            feed.end(next(self._numbers))

    def end_all(self) -> None:
        """End whatever has not ended."""
        for feeds in self._feeds.values():
            for feed in feeds.values():
                if not feed.ended:
                    feed.end(next(self._numbers))

    def release(self) -> bool:
        """Give out the part that was fed first, of those that a reader waits for; False if there is
        none."""
        waiting = [
            (number, feed)
            for feeds in self._feeds.values()
            for feed in feeds.values()
            if (number := feed.next_part) is not None
        ]
        if not waiting:
            return False
        min(waiting, key=lambda one: one[0])[1].release()
        return True

    def _open_feed(self, label: str, split: Any) -> Feed:
        feeds = self._feeds[label]
        feed = _found(label, feeds, split)
        if feed.ended:
            which = "" if split is None else f", split {split!r},"
            raise StreamcpError(f"source {label!r}{which} has ended: nothing comes behind its end")
        return feed


def _found(label: str, feeds: Mapping[Any, Feed], split: Any) -> Feed:
    if split in feeds:
        return feeds[split]
    if split is None and len(feeds) == 1:
        return next(iter(feeds.values()))
    if None in feeds:
        raise StreamcpError(f"source {label!r} has no splits: leave split={split!r} out")
    names = ", ".join(map(repr, feeds))
    raise StreamcpError(
        f"source {label!r} has no split {split!r}; write one of {names}, or name others in "
        f"trial(splits={{{label!r}: [...]}})"
    )
