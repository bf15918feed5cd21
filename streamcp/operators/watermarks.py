"""Event time at a source: the timestamps of its records, and how far it has come.

A watermark W promises that no record with a timestamp of W or less comes any more; it never goes
back. A `Watermarks` says how both are found, a `Stamper` does it for one split of a source.
Knows neither sources nor streams, and reads no clock: it is told the time.
"""

from __future__ import annotations

import copy
import logging
import operator
import reprlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol

from typing_extensions import TypeVar

from streamcp.config import Duration
from streamcp.elements import MIN_TIMESTAMP
from streamcp.errors import StepFailed
from streamcp.operators.context import Timestamp
from streamcp.operators.watermark_settings import (
    check_callable,
    check_generator,
    checked_group,
    duration_ms,
    duration_seconds,
)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_logger = logging.getLogger(__name__)
_1990 = 631_152_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 200


class WatermarkGenerator(Protocol[T_contra]):
    """Finds watermarks by rules of its own. Its fields are in every snapshot: write a dataclass."""

    def observe(self, record: T_contra, timestamp: int, /) -> Timestamp | None:
        """Look at the next record; return the watermark behind it, or None for no new one."""
        ...


class Watermarks(Generic[T_contra]):
    """How the records of a source get their timestamps and watermarks.

    `timestamp(record)` returns milliseconds since the epoch, or an aware `datetime`. The watermark
    stays `out_of_orderness` behind the largest timestamp: how far a record may come after later
    ones without being late. `Watermarks.punctuated` and `Watermarks.custom` find it otherwise.

    - `idle_after`: a split without records for so long no longer holds the others back.
    - `max_ahead`: a record whose timestamp is further ahead of the clock is taken out: it moves no
      watermark, so that one wrong clock does not make everything else late.
    - `align`: the name of a group of sources that keep together: a split whose watermark is more
      than `max_drift` ahead of the slowest one of the group is not read until that has caught up.
      Splits that are idle or have ended are not waited for.

    Raises SettingsError for durations that are none, and for what cannot be called.
    """

    __slots__ = (
        "_observer",
        "_warned",
        "align",
        "generator",
        "idle_after",
        "lag",
        "max_ahead",
        "max_drift",
        "timestamp",
    )

    def __init__(
        self,
        timestamp: Callable[[T_contra], Timestamp],
        *,
        out_of_orderness: Duration = "0s",
        idle_after: Duration | None = None,
        max_ahead: Duration | None = None,
        align: str | None = None,
        max_drift: Duration | None = None,
    ) -> None:
        check_callable("timestamp", timestamp, "lambda record: record.ts")
        self.timestamp = timestamp
        # One more: a later record may have the largest timestamp again.
        self.lag = duration_ms("out_of_orderness", out_of_orderness) + 1
        self.idle_after = None if idle_after is None else duration_seconds("idle_after", idle_after)
        self.max_ahead = None if max_ahead is None else duration_ms("max_ahead", max_ahead)
        self.align, self.max_drift = checked_group(align, max_drift)
        self.generator: Callable[[], WatermarkGenerator[T_contra]] | None = None
        self._observer: Callable[[T_contra, int], Timestamp | None] | None = None
        self._warned = False

    @classmethod
    def punctuated(
        cls,
        timestamp: Callable[[T], Timestamp],
        watermark: Callable[[T, int], Timestamp | None],
        *,
        idle_after: Duration | None = None,
        max_ahead: Duration | None = None,
        align: str | None = None,
        max_drift: Duration | None = None,
    ) -> Watermarks[T]:
        """Let marked records tell the watermark: `watermark(record, timestamp)` returns the one
        that holds behind the record, or None where it tells none."""
        check_callable("watermark", watermark, "lambda record, timestamp: record.mark")
        made = Watermarks(
            timestamp,
            idle_after=idle_after,
            max_ahead=max_ahead,
            align=align,
            max_drift=max_drift,
        )
        made._observer = watermark
        return made

    @classmethod
    def custom(
        cls,
        timestamp: Callable[[T], Timestamp],
        generator: Callable[[], WatermarkGenerator[T]],
        *,
        idle_after: Duration | None = None,
        max_ahead: Duration | None = None,
        align: str | None = None,
        max_drift: Duration | None = None,
    ) -> Watermarks[T]:
        """Let an object find the watermarks: `generator` makes a fresh one for each split.

        Calls it once, to see that it can be made and has `observe`."""
        check_generator(generator)
        made = Watermarks(
            timestamp,
            idle_after=idle_after,
            max_ahead=max_ahead,
            align=align,
            max_drift=max_drift,
        )
        made.generator = generator
        return made

    def stamper(self, label: str) -> Stamper[T_contra]:
        """Make what stamps the records of one split; `label` names the source in errors."""
        fresh = None if self.generator is None else self.generator()
        return Stamper(self, label, self._observer, fresh)

    def _warn_if_early(self, label: str, timestamp: int) -> None:
        """Warn once, for all splits, if a first timestamp looks as if it were in seconds."""
        if timestamp < _1990 and not self._warned:
            self._warned = True
            _logger.warning(
                "source %r: the first timestamp is %d, before 1990; timestamps are milliseconds: "
                "in seconds? return round(ts * 1000)",
                label,
                timestamp,
            )


class Stamped(NamedTuple, Generic[T]):
    """Records and their timestamps, equally long; and those that were taken out, being ahead."""

    records: list[T]
    timestamps: list[int]
    ahead: list[T]


class Stamper(Generic[T]):
    """Stamps the records of one split, in their order, and keeps its `watermark`: one that holds
    behind everything that was stamped."""

    __slots__ = ("_label", "_observe", "_settings", "_started", "generator", "watermark")

    def __init__(
        self,
        settings: Watermarks[T],
        label: str,
        observe: Callable[[T, int], Timestamp | None] | None,
        generator: WatermarkGenerator[T] | None,
    ) -> None:
        self.watermark = MIN_TIMESTAMP
        self.generator = generator
        self._settings = settings
        self._label = label
        self._observe = observe
        self._started = False

    def stamp(self, records: list[T], now_ms: int) -> Stamped[T]:
        """Stamp `records`, and move the watermark by those that stay; `now_ms` is the clock.

        Raises StepFailed at the first record without a usable timestamp; nothing has moved."""
        if not records:
            return Stamped(records, [], [])
        timestamps = self._timestamps(records)
        if not self._started:
            self._started = True
            self._settings._warn_if_early(self._label, timestamps[0])
        largest = max(timestamps)
        bound = self._settings.max_ahead
        if bound is not None and largest > now_ms + bound:
            return self._without_ahead(records, timestamps, now_ms + bound)
        self._advance(records, timestamps, largest)
        return Stamped(records, timestamps, [])

    def _timestamps(self, records: Sequence[T]) -> list[int]:
        timestamp = self._settings.timestamp
        try:
            stamped = [timestamp(record) for record in records]
            # A sum is an int only of ints: the cheapest look at all of them.
            if type(sum(stamped)) is int:  # type: ignore[arg-type]
                return stamped  # type: ignore[return-value]
        except Exception:  # whatever a user's function raises is told with its record, below
            pass
        return [self._one("timestamp", timestamp, record) for record in records]

    def _one(self, asked: str, function: Callable[..., Any], *arguments: Any) -> int:
        """Call a user's function that has to return a timestamp."""
        try:
            return _as_milliseconds(function(*arguments))
        except Exception as error:  # whatever a user's function raises
            raise StepFailed(
                f"source {self._label!r}: {asked}= of its Watermarks failed at record "
                f"{_SHORT.repr(arguments[0])}: {type(error).__name__}: {error}"
            ) from error

    def _without_ahead(
        self, records: Sequence[T], timestamps: Sequence[int], limit: int
    ) -> Stamped[T]:
        pairs = list(zip(records, timestamps, strict=True))
        kept = [record for record, timestamp in pairs if timestamp <= limit]
        ahead = [record for record, timestamp in pairs if timestamp > limit]
        left = [timestamp for timestamp in timestamps if timestamp <= limit]
        if left:
            self._advance(kept, left, max(left))
        return Stamped(kept, left, ahead)

    def _advance(self, records: Sequence[T], timestamps: Sequence[int], largest: int) -> None:
        if self.generator is not None:
            reached = self._observed("generator", self.generator.observe, records, timestamps)
        elif self._observe is not None:
            reached = self._observed("watermark", self._observe, records, timestamps)
        else:
            reached = largest - self._settings.lag
        if reached > self.watermark:
            self.watermark = reached

    def _observed(
        self,
        asked: str,
        observe: Callable[[T, int], Timestamp | None],
        records: Sequence[T],
        timestamps: Sequence[int],
    ) -> int:
        reached = self.watermark

        def told(record: T, timestamp: int) -> Timestamp:
            said = observe(record, timestamp)
            return MIN_TIMESTAMP if said is None else said

        for record, timestamp in zip(records, timestamps, strict=True):
            reached = max(reached, self._one(asked, told, record, timestamp))
        return reached

    def snapshot(self) -> Any:
        """Give what `restore` needs, as a plain value: later stamping does not change it."""
        return self.watermark, copy.deepcopy(self.generator)

    def restore(self, value: Any) -> None:
        """Go on from a `snapshot`, before the first record. A generator of another class than
        before starts anew; the watermark stays."""
        self.watermark, generator = value
        if type(generator) is type(self.generator):
            self.generator = generator


def _as_milliseconds(timestamp: object) -> int:
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise TypeError(
                f"{timestamp!r} is naive: of which time zone? return one with tzinfo, e.g. "
                "timestamp.replace(tzinfo=UTC)"
            )
        return (timestamp - _EPOCH) // _MILLISECOND  # exact: a window's end is never reached early
    try:
        return operator.index(timestamp)  # type: ignore[arg-type]  # numpy's integers too
    except TypeError:
        remedy = "return an int (milliseconds since the epoch) or an aware datetime"
        if isinstance(timestamp, float):
            remedy = "in seconds? return round(ts * 1000)"
        raise TypeError(f"{timestamp!r} is not a timestamp; {remedy}") from None
