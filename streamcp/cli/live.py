"""The live view."""

from __future__ import annotations
from streamcp.cli.reports import Lines


class Live(Lines):
    def __init__(self, out):
        super().__init__(out, lambda: "")
