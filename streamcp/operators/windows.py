"""What users say of windows: which there are, when their results are emitted, and what these are.

Descriptions only, checked when they are made; all times are event time. A window holds the records
with `start <= timestamp < end`, and closes when the watermark has reached `end - 1`: nothing that
belongs to it can come any more. How windows are worked is told in `windowing`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias
from zoneinfo import ZoneInfo

from typing_extensions import TypeVar

from streamcp.config import Duration, seconds
from streamcp.errors import SettingsError
from streamcp.operators.tags import Tag

K_co = TypeVar("K_co", bound=Hashable, covariant=True)
V_co = TypeVar("V_co", covariant=True)

CalendarUnit: TypeAlias = Literal["day", "week", "month", "quarter", "year"]
CALENDAR_UNITS: Final = ("day", "week", "month", "quarter", "year")
DAY_MS: Final = 86_400_000

LATE: Final[Tag[Any]] = Tag("late")
"""The side output for records that come too late for all their windows."""


@dataclass(frozen=True)  # no slots: WindowResult[str, int](...) could not be made
class WindowResult(Generic[K_co, V_co]):
    """The value of one window of one key; it held the records with `start <= timestamp < end`
    (milliseconds since the epoch)."""

    key: K_co
    start: int
    end: int
    value: V_co


class Windows:
    """How the records of a key are divided into windows: made by the classes below."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tumbling(Windows):
    """Windows of `size`, one after another, aligned to the epoch in UTC, `offset` later.

    With `timezone` (a name such as "Europe/Berlin") they are whole calendar days there, also those
    of 23 and 25 hours; `size` is then a number of days, counted from Thursday, 1 January 1970, and
    `offset` shifts the hour at which they begin.

    Raises SettingsError for a size that is not at least a millisecond, an unknown time zone, and
    with one a size that is not whole days."""

    size: Duration
    offset: Duration = field(default="0s", kw_only=True)
    timezone: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        size = whole_ms(self.size, setting="Tumbling(size)", least=1)
        whole_ms(self.offset, setting="Tumbling(offset)")
        if self.timezone is None:
            return
        zone(self.timezone, setting="Tumbling(timezone)")
        if size % DAY_MS:
            raise SettingsError(
                f"Tumbling({self.size!r}, timezone={self.timezone!r}): a time zone is for windows "
                'of whole days, e.g. "1d"; shift shorter ones by offset='
            )


@dataclass(frozen=True, slots=True)
class Calendar(Windows):
    """Calendar days, weeks (from Monday), months, quarters or years of a time zone.

    Raises SettingsError for another unit and an unknown time zone."""

    unit: CalendarUnit
    timezone: str = field(default="UTC", kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        if self.unit not in CALENDAR_UNITS:
            units = ", ".join(repr(unit) for unit in CALENDAR_UNITS)
            raise SettingsError(f"Calendar({self.unit!r}): write one of {units}")
        zone(self.timezone, setting="Calendar(timezone)")


@dataclass(frozen=True, slots=True)
class Sliding(Windows):
    """Windows of `size`, a new one beginning `every` so long, aligned to the epoch in UTC, `offset`
    later. A record is in each that covers it, and its cost does not grow with their number.

    Raises SettingsError for a size or step that is not at least a millisecond, and for a step
    longer than the size: the records between the windows would be in none."""

    size: Duration
    every: Duration
    offset: Duration = field(default="0s", kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        size = whole_ms(self.size, setting="Sliding(size)", least=1)
        every = whole_ms(self.every, setting="Sliding(every)", least=1)
        whole_ms(self.offset, setting="Sliding(offset)")
        if every > size:
            raise SettingsError(
                f"Sliding({self.size!r}, every={self.every!r}): records between the windows would "
                "be in none; write a step that is not longer than the size, or filter before"
            )


@dataclass(frozen=True, slots=True)
class Session(Windows):
    """Records that follow one another by less than `gap`: one that comes exactly `gap` after the
    last begins a new session. It ends `gap` after its last record; a record that fills the gap
    between two sessions makes one of them.

    Raises SettingsError for a gap that is not at least a millisecond."""

    gap: Duration

    def __post_init__(self) -> None:
        """Check the value."""
        whole_ms(self.gap, setting="Session(gap)", least=1)


@dataclass(frozen=True, slots=True)
class CountWindow(Windows):
    """Every `n` records of a key, in the order in which they come; with `every`, the last `n` after
    each `every` records (fewer, until there are `n`). `start` and `end` of a result are those of
    its records. Records that fill no window up are in no result.

    Raises SettingsError unless 1 <= every <= n."""

    n: int
    every: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in (("n", self.n), ("every", self.every)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise SettingsError(
                    f"CountWindow({name}={value!r}): write a number of records, 1 or more"
                )
        if self.every is not None and self.every > self.n:
            raise SettingsError(
                f"CountWindow({self.n}, every={self.every}): records between the windows would be "
                "in none; write a step that is not larger than the window"
            )


@dataclass(frozen=True, slots=True)
class Global(Windows):
    """One window per key that holds everything, and closes at the end of the input only: say by
    `emit=early(every=...)` or `emit=on_each()` when results are to come before."""


@dataclass(frozen=True, slots=True)
class Emit:
    """When results are emitted: on close, or as `early` and `on_each` say. `every` is in
    milliseconds."""

    kind: Literal["on_close", "early", "on_each"] = "on_close"
    every: int = 0


ON_CLOSE: Final = Emit()
"""The default: one result when the window closes, and one for each record that comes later, but
within the allowed lateness."""


def early(*, every: Duration) -> Emit:
    """Emit also before the close: what has changed, each time event time passes a multiple of
    `every` (since 1970).

    Raises SettingsError for an interval that is not at least a millisecond."""
    return Emit("early", whole_ms(every, setting="early(every)", least=1))


def on_each() -> Emit:
    """Emit each window's new value with each record, and nothing more at the close."""
    return Emit("on_each")


def whole_ms(duration: Duration, *, setting: str, least: int = 0) -> int:
    """Convert a duration to milliseconds; `setting` names it in the error.

    Raises SettingsError for what is no duration, no whole number of milliseconds, or less than
    `least`."""
    exact = seconds(duration, setting=setting) * 1000
    milliseconds = round(exact)
    if abs(exact - milliseconds) > 1e-6:
        raise SettingsError(f"{setting}={duration!r}: event time is in whole milliseconds")
    if milliseconds < least:
        raise SettingsError(f"{setting}={duration!r}: write at least {least} ms")
    return milliseconds


def zone(name: str, *, setting: str) -> ZoneInfo:
    """Find a time zone; `setting` names it in the error.

    Raises SettingsError if there is none of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise SettingsError(
            f'{setting}={name!r}: no such time zone; write a name such as "Europe/Berlin" (a '
            "system without time zones needs pip install tzdata)"
        ) from error
