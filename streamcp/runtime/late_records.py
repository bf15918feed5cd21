"""Late records of a window step that nobody reads: counted, and told of once (rule 7)."""

from __future__ import annotations

import logging
from typing import Any

from streamcp.graph.logical import Node
from streamcp.runtime.meters import StepMeter

_logger = logging.getLogger(__name__)


class LateRecords:
    """Takes the late records of one window step in one subtask."""

    __slots__ = ("_meter", "_node", "_told")

    def __init__(self, node: Node, meter: StepMeter) -> None:
        self._node = node
        self._meter = meter
        self._told = False

    def drop(self, output: str, records: list[Any]) -> None:
        """Count records, and warn of the first."""
        self._meter.dropped += len(records)
        if not self._told:
            self._told = True
            _logger.warning(
                "step %r (%s): a record came too late for all its windows and is dropped, as all "
                "such will be; read .late of the step, write allowed_lateness= at the window, or "
                "more out_of_orderness= at the source",
                self._node.label,
                self._node.place,
            )
