"""What a job's settings are under test, where it says nothing else."""

from __future__ import annotations

from dataclasses import replace

from streamcp.config import JobSettings


def strictly(settings: JobSettings) -> JobSettings:
    """Make a job strict, unless it says `strict=False`."""
    return replace(settings, strict=settings.strict is not False)
