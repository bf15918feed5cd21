"""Ctrl-C and SIGTERM for a program that belongs to a job: `job.run()` and `streamcp run` alike.

The first signal stops the job with a last checkpoint, the second ends it at once, a third
interrupts whatever the program is doing. Between `run_to_end` and the event loop only: knows no
command line and prints nothing.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from streamcp.errors import CheckpointFailed
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import first_cause
from streamcp.runners.local import run_blocking
from streamcp.runners.view import JobView

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_to_end(
    start: Callable[[], AbstractAsyncContextManager[JobHandle]],
    *,
    watch: Callable[[JobHandle], AbstractAsyncContextManager[Any]] = nullcontext,
    on_stop: Callable[[], object] = lambda: None,
    on_interrupt: Callable[[], object] = lambda: None,
) -> JobResult:
    """Run the job that `start` starts to its end in an event loop of its own; blocks.

    - `watch` is entered before anything of the job has happened, and left when it has ended.
    - `on_stop` is called in the event loop after the first signal, unless the job ends before.
    - `on_interrupt` is called at each further one, from the handler: the loop may stand still.

    In another thread than the main one, signals are left alone. Raises what ends the job;
    CheckpointFailed, saying where a later run continues, if the stop's checkpoint fails;
    KeyboardInterrupt after a second signal."""
    signals = _Signals(on_stop, on_interrupt)
    with signals.installed():
        try:
            return run_blocking(lambda: _run(start, watch, signals))
        # What a job raises when it is ended in the middle tells nothing.
        except (asyncio.CancelledError, Exception):
            if signals.count < 2:
                raise
    raise KeyboardInterrupt


class _Signals:
    """Counts signals, and passes the first two to the event loop that runs the job."""

    def __init__(self, on_stop: Callable[[], object], on_interrupt: Callable[[], object]) -> None:
        self.count = 0
        self.asked_to_stop = asyncio.Event()
        self.on_stop = on_stop
        self._on_interrupt = on_interrupt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals inside, from before the event loop is made until after it is closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._arrived) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Let the running task and its event loop hear of signals, also of earlier ones."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        for count in range(1, self.count + 1):
            self._pass_on(count)
        try:
            yield
        finally:
            self._loop = None

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= 2:
            self._on_interrupt()
        if self.count > 2:
            raise KeyboardInterrupt
        self._pass_on(self.count)

    def _pass_on(self, count: int) -> None:
        """From a signal handler the loop may be asleep: only this call wakes it."""
        if self._loop is not None and self._task is not None:
            act = self.asked_to_stop.set if count == 1 else self._task.cancel
            self._loop.call_soon_threadsafe(act)


async def _run(
    start: Callable[[], AbstractAsyncContextManager[JobHandle]],
    watch: Callable[[JobHandle], AbstractAsyncContextManager[Any]],
    signals: _Signals,
) -> JobResult:
    with signals.attached():
        async with start() as running, watch(running):
            return await _until_end(running, signals)


async def _until_end(running: JobHandle, signals: _Signals) -> JobResult:
    failure: BaseException
    try:
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(_stop_when_asked(running, signals), name="stop")
            result = await running.wait_finished()
            stopping.cancel()
        return result
    except* Exception as errors:  # whatever a job raises is raised again below
        failure = first_cause(errors)
    raise failure


async def _stop_when_asked(running: JobHandle, signals: _Signals) -> None:
    """Stop at the first signal. While the job fails and restarts, its next state decides."""
    await signals.asked_to_stop.wait()
    signals.on_stop()
    while True:
        try:
            await running.stop()
            return
        except CheckpointFailed as error:
            state = running.view().state
            if state == "ended":
                return
            if state != "restarting":
                raise CheckpointFailed(
                    f"the job ended without the checkpoint of its stop: {error}; "
                    f"{later_run(running.view())}"
                ) from error


def later_run(view: JobView) -> str:
    """Say what a later run does, if nothing more of this one is completed."""
    if view.mode == "none":
        return "the job has no checkpoints: a later run begins anew"
    if view.last_checkpoint is None and view.restored_from is not None:
        return "no checkpoint is complete since: a later run must be given the savepoint again"
    if view.last_checkpoint is None and view.attempt == 0:
        return "nothing of it ran: its checkpoints are as they were"
    if view.last_checkpoint is None:
        return "no checkpoint is complete: a later run begins anew"
    return f"a later run continues from checkpoint {view.last_checkpoint}"
