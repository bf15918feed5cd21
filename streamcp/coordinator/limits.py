"""The settings of checkpoints as the coordinator uses them."""

from __future__ import annotations

from dataclasses import dataclass

from streamcp.config import Checkpoints, seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a job's checkpoints as plain numbers; durations in seconds.

    Without settings nothing is due by itself, and nothing expires."""

    interval: float | None
    min_pause: float
    max_concurrent: int
    timeout: float
    alignment_timeout: float
    max_age: float | None
    max_in_flight_bytes: int | None
    retain: int

    @classmethod
    def of(cls, settings: Checkpoints | None) -> Limits:
        """Convert."""
        if settings is None:
            return cls(None, 0.0, 1, float("inf"), 0.0, None, None, 1)

        def converted(name: str) -> float | None:
            value = getattr(settings, name)
            return None if value is None else seconds(value, setting=f"Checkpoints({name})")

        return cls(
            converted("every"),
            converted("min_pause") or 0.0,
            settings.max_concurrent,
            seconds(settings.timeout, setting="Checkpoints(timeout)"),
            seconds(settings.alignment_timeout, setting="Checkpoints(alignment_timeout)"),
            converted("max_age"),
            settings.max_in_flight_bytes,
            settings.retain,
        )
