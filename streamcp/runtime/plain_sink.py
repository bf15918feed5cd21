"""A sink whose write is a plain function: it runs inline, as the last step of its task.

A barrier finds nothing of it in flight: a call has ended before anything else happens.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, cast

from streamcp.graph.logical import Node
from streamcp.operators.sinks import PlainSink
from streamcp.runtime.blocking import BLOCKING, PLAIN
from streamcp.runtime.calling import Reporter
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.meters import StepMeter


class PlainSinkRun:
    """One sink object of one subtask."""

    __slots__ = ("_context", "_node", "_reporter", "_sink", "meter")

    def __init__(
        self,
        node: Node,
        sink: PlainSink[Any],
        reporter: Reporter,
        meter: StepMeter,
        context: TaskContext,
    ) -> None:
        """Write to `sink`."""
        self._node = node
        self._context = context
        self._sink = sink
        self._reporter = reporter
        self.meter = meter

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter the sink, if it is a context manager, until the job ends."""
        if hasattr(self._sink, "__aenter__"):
            await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", self._sink))

    @property
    def drops_everything(self) -> bool:
        """Records need not be collected for it: counting them is enough."""
        return getattr(self._sink, "drops_everything", False)

    def push(self, records: list[Any]) -> None:
        """Write records. If that fails, it fails for each of them: which ones are in the target is
        not known."""
        self.meter.records_in += len(records)
        if self._node.timed:
            records = [value for value, _ in records]
        started = self._context.clock.monotonic()
        try:
            result = self._sink.write(records)  # type: ignore[func-returns-value]
        except Exception as error:  # whatever a user's sink raises
            for record in records:
                self._reporter.report(record, error)
        else:
            self._reporter.refuse_awaitable(records, result)
        seconds = self._context.clock.monotonic() - started
        if seconds >= BLOCKING:
            doing = f"in one write of {len(records)} records"
            self._context.blocking.notice(self._node, seconds, doing, PLAIN)
