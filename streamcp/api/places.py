"""Where the user's code called: the place that every step remembers."""

from __future__ import annotations

import sys

from streamcp.graph.logical import Place


def calling_place() -> Place:
    """Find the file and line of the innermost call from outside the framework.

    The shipped examples count as outside: they are written as users write."""
    frame = sys._getframe(1)
    while _is_framework(frame.f_globals.get("__name__", "")) and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _is_framework(module: str) -> bool:
    return (module == "streamcp" or module.startswith("streamcp.")) and not module.startswith(
        "streamcp.examples"
    )
