"""What happened in a simulated run, line by line: byte-equal for equal seeds.

A line has the virtual time, the number of callbacks run so far, the life (how many crashes there
were before), what it is about, and what happened. No addresses, no process numbers, no real time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from streamcp.observability import events

# A user's object without a text of its own is printed with its address.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Trace:
    """Lines of one run. `now` gives the head of a line: seconds and callbacks."""

    def __init__(self, now: Callable[[], tuple[float, int]] = lambda: (0.0, 0)) -> None:
        self.lines: list[str] = []
        self.life = 0
        self.now = now

    def __str__(self) -> str:
        """All lines."""
        return "\n".join(self.lines)

    def say(self, about: str, text: str) -> None:
        """Add a line."""
        seconds, steps = self.now()
        text = _ADDRESS.sub("", text)
        self.lines.append(f"{seconds * 1000:11.3f} ms {steps:6} {self.life} {about:<10} {text}")


def event_text(event: events.Event) -> str:
    """An event of the job as one line, its moment left out: it is that of the line."""
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    del values["at_ms"]
    shown = " ".join(f"{name}={_shown(value)}" for name, value in values.items())
    return f"{type(event).__name__} {shown}"


def _shown(value: Any) -> str:
    """Figures of a checkpoint without those that say nothing."""
    if hasattr(value, "items"):
        told = {k: v for k, v in value.items() if v not in (None, 0, 0.0, "")}
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in told.items()) + "}"
    if isinstance(value, float):
        return f"{value:.6f}"
    return repr(value)
