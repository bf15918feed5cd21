"""How long the state of a key lives that no call updates.

Says only what is wanted. When a state is expired is told by `state.expiring`, and by whose clock by
the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcp.config import Duration, seconds
from streamcp.errors import DefinitionError, SettingsError
from streamcp.operators.context import TimerClock


@dataclass(frozen=True, slots=True)
class Ttl:
    """Drop the state of a key that no call has updated for `after`: a text such as "7d", or a
    `timedelta`; rounded to milliseconds, 1 or more.

    `clock`: None for event time on a stream with watermarks and processing time elsewhere, as of
    timers; "event" or "processing" chooses. A job with `clock="event"` on a stream without
    watermarks is refused when it is built."""

    after: Duration
    clock: TimerClock | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if seconds(self.after, setting="ttl") < 0.001:
            raise SettingsError(f"ttl={self.after!r} would drop every state at once; write more")
        if self.clock not in (None, "event", "processing"):
            raise SettingsError(
                f'Ttl(clock={self.clock!r}): write "event" or "processing", or leave it out'
            )

    @property
    def milliseconds(self) -> int:
        """The duration."""
        return round(seconds(self.after, setting="ttl") * 1000)

    def in_event_time(self, *, timed: bool) -> bool:
        """Say whether event time counts, for a step whose records have timestamps if `timed`."""
        return timed if self.clock is None else self.clock == "event"


def ttl_of(described: str, ttl: object) -> Ttl | None:
    """Read what a user gave as `ttl=` of the step that errors name as `described`.

    Raises DefinitionError for what is neither a duration nor a `Ttl`."""
    if ttl is None or isinstance(ttl, Ttl):
        return ttl
    try:
        return Ttl(ttl)  # type: ignore[arg-type]  # whatever it is, it is checked there
    except SettingsError as error:
        raise DefinitionError(f"{described}: {error}") from None
