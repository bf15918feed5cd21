"""Warnings of the framework's loggers, shown on stderr unless the program shows them itself."""

from __future__ import annotations

import logging

from rich.console import Console

# What these warn of is an event as well, which is shown as such.
_TOLD_BY_EVENTS = (
    "streamcp.coordinator.coordinator",
    "streamcp.runners.life",
    "streamcp.runtime.blocking",
)


class _ToConsole(logging.Handler):
    def __init__(self, out: Console, *, told: bool) -> None:
        super().__init__(logging.WARNING)
        self._out = out
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless an event tells the same."""
        if self._told and record.name in _TOLD_BY_EVENTS:
            return
        self._out.print(f"{record.levelname.lower()}: {self.format(record)}", style="yellow")


def show_warnings(out: Console, *, told: bool) -> None:
    """Print the warnings of streamcp to `out`; with `told`, those that no event tells.

    Does nothing if the job has set up logging itself."""
    logger = logging.getLogger("streamcp")
    if not logger.hasHandlers():
        logger.addHandler(_ToConsole(out, told=told))
