"""A task whose steps are all synchronous: it works slices of its input through its chain."""

from __future__ import annotations

from typing import Any

from streamcp.runtime.meters import Waiting
from streamcp.runtime.subtask import Subtask


class StepSubtask(Subtask):
    """Takes from its gate, works, and hands on."""

    def prepare(self) -> None:
        """Wire the chain: per input channel, what works its records."""
        ports = self.gate.ports
        pushes = {port: self.chain.into_head(port) for port in ports}
        self._pushes = [pushes[port] for port in ports]
        self.turns.held = self.chain.measure_calls

    async def run(self) -> None:
        """Work until all inputs have ended."""
        clock = self.context.clock
        timed = self.chain.has_timers or self.time is not None
        while True:
            if self.held:
                await self.wait("idle")
                continue
            while timed and not self.held and self.output.writable and self.fire_timers():
                await self.turns.end_if_over(clock.monotonic())
            if self._have_work():
                self._work_slice()
                await self.turns.end_if_over(clock.monotonic())
                continue
            if self.gate.hand is None and self.gate.all_ended and not self.timers_are_due:
                break
            if self.time_is_due and self.output.writable:
                continue
            if not self.held:
                waiting: Waiting = "idle" if self.output.writable else "backpressured"
                await self.wait(waiting, timeout=self.until_timer() if timed else None)
        self.finish()

    def _have_work(self) -> bool:
        """Take elements until a batch is in hand; False if none can be worked on now."""
        writable = self.output.writable
        while self.gate.hand is None and not self.held:
            if self.take_element(data=writable) is None or self.time_is_due:
                return False
        return writable and not self.held

    def _work_slice(self) -> None:
        gate = self.gate
        channel = gate.hand_channel
        started = self.context.clock.monotonic()
        limit = min(self.slices.records, self.output.room)
        records = gate.slice(limit)
        taken = [(channel, len(records))]
        if gate.hand is None and len(records) < limit:
            records = self._with_short_batches(records, limit, taken)
        self._pushes[channel](records)
        for number, count in taken:
            gate.release(number, count)
        self.meter.records_in += len(records)
        self.slice_done(len(records), started)

    def _with_short_batches(
        self, records: list[Any], limit: int, taken: list[tuple[int, int]]
    ) -> list[Any]:
        """Work further batches off in the same slice, as long as they fit into it: of many senders
        each has few records, and a slice costs as much as some dozen."""
        gate = self.gate
        joined = records
        while (more := gate.take_whole(limit - len(joined))) is not None:
            if joined is records:
                joined = [*records]  # a batch's own list is never changed
            joined += more
            taken.append((gate.hand_channel, len(more)))
        return joined
