"""Late records of a window or join that nobody reads: counted, and told of once (rule 7)."""

from __future__ import annotations

import logging
from typing import Any

from streamcp.graph.logical import Node
from streamcp.operators.steps import JoinStep
from streamcp.runtime.meters import StepMeter

_logger = logging.getLogger(__name__)

_WINDOW = "for all its windows", ", write allowed_lateness= at the window"
_JOIN = "to be joined", ""


class LateRecords:
    """Takes the late records of one step in one subtask."""

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
            late, remedy = _JOIN if isinstance(self._node.spec, JoinStep) else _WINDOW
            _logger.warning(
                "step %r (%s): a record came too late %s and is dropped, as all such will be; read "
                ".late of the step%s, or write more out_of_orderness= at the source",
                self._node.label,
                self._node.place,
                late,
                remedy,
            )
