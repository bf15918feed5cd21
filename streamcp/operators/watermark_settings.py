"""The checks of what a `Watermarks` is made from; errors name its argument and what to write."""

from __future__ import annotations

import math
from typing import Any

from streamcp.config import Duration, seconds
from streamcp.errors import SettingsError


def check_callable(argument: str, value: object, example: str) -> None:
    """Refuse what cannot be called; `example` is a function that could."""
    if not callable(value):
        raise SettingsError(f"Watermarks({argument}={value!r}): write a function, e.g. {example}")


def check_generator(generator: Any) -> None:
    """Refuse what makes no watermark generator; calls it once."""
    example = "a dataclass with observe(self, record, timestamp)"
    check_callable("generator", generator, example)
    try:
        fresh = generator()
    except Exception as error:  # of the user's own class or function: kept as the cause
        raise SettingsError(
            f"Watermarks.custom(generator=...) could not be made without arguments ({error}); "
            "give every field a default"
        ) from error
    if not callable(getattr(fresh, "observe", None)):
        raise SettingsError(
            f"Watermarks.custom(generator=...) made a {type(fresh).__name__} without observe; "
            f"write {example}"
        )


def checked_group(align: object, max_drift: Duration | None) -> tuple[str | None, int]:
    """The group's name, and the drift in milliseconds."""
    if align is None and max_drift is None:
        return None, 0
    if not isinstance(align, str) or not align or max_drift is None:
        raise SettingsError(
            f"Watermarks(align={align!r}, max_drift={max_drift!r}): write both, the name of the "
            'group and how far a source may be ahead of its slowest: align="clicks", max_drift="1m"'
        )
    return align, duration_ms("max_drift", max_drift)


def duration_seconds(argument: str, duration: Duration) -> float:
    """A duration in seconds."""
    return seconds(duration, setting=f"Watermarks({argument})")


def duration_ms(argument: str, duration: Duration) -> int:
    """A duration in milliseconds, rounded up."""
    return math.ceil(duration_seconds(argument, duration) * 1000)
