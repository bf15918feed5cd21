"""The live view of `run` in a terminal: steps, queues and checkpoints, drawn again and again.

Views are sampled in the event loop, which costs next to nothing; rich draws them in a thread of
its own, so that no barrier waits for a drawing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive

from streamcp.cli.reports import Lines
from streamcp.cli.tables import checkpoint_table, step_table
from streamcp.config import JobSettings
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.runners.view import JobView

SAMPLES_PER_SECOND = 4
# Rates are means of so many samples: calm enough to be read.
WINDOW = 8


class Live(Lines):
    """Draws the job; lines about starts, failures and the end scroll above."""

    def __init__(self, out: Console, settings: JobSettings, clock: Callable[[], str]) -> None:
        super().__init__(out, settings, clock)
        self._views: deque[JobView] = deque(maxlen=WINDOW)
        self._running: dict[int, events.CheckpointTriggered] = {}

    @asynccontextmanager
    async def watch(self, running: JobHandle) -> AsyncIterator[None]:
        """Draw inside; the last picture stays."""
        self._sample(running)
        live = RichLive(
            get_renderable=self.render,
            console=self._out,
            refresh_per_second=SAMPLES_PER_SECOND,
            # What the job prints belongs above the picture, if both go to the terminal.
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="ellipsis",
        )
        async with super().watch(running):
            with live:
                async with asyncio.TaskGroup() as group:
                    sampling = group.create_task(self._sample_on(running), name="live view")
                    try:
                        yield
                    finally:
                        sampling.cancel()
                        self._sample(running)

    async def _sample_on(self, running: JobHandle) -> None:
        while True:
            await asyncio.sleep(1 / SAMPLES_PER_SECOND)
            self._sample(running)

    def _sample(self, running: JobHandle) -> None:
        view = running.view()
        if self._views and self._views[-1].attempt != view.attempt:
            self._views.clear()
        self._views.append(view)

    def _on_event(self, event: events.Event) -> None:
        match event:
            case events.CheckpointTriggered():
                self._running[event.checkpoint_id] = event
            case events.CheckpointCompleted():
                self._running.pop(event.checkpoint_id, None)  # the table shows it
            case events.CheckpointFailed():
                self._running.pop(event.checkpoint_id, None)
                super()._on_event(event)
            case events.JobRestarting():
                self._running.clear()
                super()._on_event(event)
            case _:
                super()._on_event(event)

    def render(self) -> RenderableType:
        """Draw the newest view. Called from the drawing thread."""
        views = tuple(self._views)
        view = views[-1]
        parts: list[RenderableType] = [
            f"\njob {view.job}, attempt {view.attempt}: {view.state}",
            step_table(views[0], view),
        ]
        if self._checkpoints is not None:
            parts.append(checkpoint_table(view.checkpoints, tuple(self._running.values())))
        return Group(*parts)
