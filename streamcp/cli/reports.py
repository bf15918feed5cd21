"""What `run` shows without a terminal, with `--quiet` and with `--json`."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, TextIO

from rich.console import Console

from streamcp.cli import words
from streamcp.cli.errors import INTERRUPTED, message
from streamcp.config import JobSettings
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.signals import later_run
from streamcp.runners.view import JobView


class Report(Protocol):
    """Shows one run of a job."""

    def watch(self, running: JobHandle) -> AbstractAsyncContextManager[None]:
        """Show what happens inside."""
        ...

    def on_stop(self) -> None:
        """The job was asked to stop by a signal."""
        ...

    def ended(self, result: JobResult) -> None:
        """The job has ended without an error."""
        ...

    def interrupted(self) -> None:
        """The job was ended at once by a second signal."""
        ...

    def failed(self, error: BaseException, code: int) -> None:
        """The job has ended by `error`, which is shown elsewhere; the exit code is `code`."""
        ...


class Quiet:
    """Shows nothing: warnings and errors are printed elsewhere."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self.view: JobView | None = None

    @asynccontextmanager
    async def watch(self, running: JobHandle) -> AsyncIterator[None]:
        """Keep the last view."""
        try:
            yield
        finally:
            self.view = running.view()

    def on_stop(self) -> None:
        """Say nothing."""

    def ended(self, result: JobResult) -> None:
        """Say nothing."""

    def interrupted(self) -> None:
        """Say nothing."""

    def failed(self, error: BaseException, code: int) -> None:
        """Say nothing: the error is shown."""


class Lines(Quiet):
    """Prints a line per event to stderr."""

    def __init__(self, out: Console, settings: JobSettings, clock: Callable[[], str]) -> None:
        """Begin each line with the time that `clock` tells."""
        super().__init__(out)
        self._checkpoints = settings.checkpoints
        self._clock = clock

    def say(self, line: str) -> None:
        """Print a line."""
        self._out.print(f"{self._clock()} {line}")

    @asynccontextmanager
    async def watch(self, running: JobHandle) -> AsyncIterator[None]:
        """Print events inside."""
        self.say(f"job {running.view().job}: {words.checkpointing(self._checkpoints)}")
        unsubscribe = running.events.subscribe(self._on_event)
        try:
            async with super().watch(running):
                yield
        finally:
            unsubscribe()

    def _on_event(self, event: events.Event) -> None:
        if self._checkpoints is None and isinstance(event, events.CheckpointCompleted):
            return  # nothing is durable: it only lets sinks commit
        line = words.event_line(event)
        if line is not None:
            self.say(line)

    def on_stop(self) -> None:
        """Say what the signal does."""
        how = "stopping" if self._checkpoints is None else "stopping with a last checkpoint"
        self.say(f"{how}; a second Ctrl-C ends the job at once")

    def interrupted(self) -> None:
        """Say what a later run does."""
        if self.view is not None:
            self.say(f"job {self.view.job} ended at once; {later_run(self.view)}")

    def failed(self, error: BaseException, code: int) -> None:
        """Say what a later run does; the error is shown below."""
        if self.view is not None and self._checkpoints is not None:
            self.say(f"job {self.view.job} failed; {later_run(self.view)}")

    def ended(self, result: JobResult) -> None:
        """Print how it ended, and totals."""
        for line in summary(result, self.view):
            self.say(line)


class JsonLines(Quiet):
    """Prints every event, then the result, as JSON lines to the real stdout."""

    def __init__(self, out: Console, stdout: TextIO) -> None:
        super().__init__(out)
        self._stdout = stdout

    @asynccontextmanager
    async def watch(self, running: JobHandle) -> AsyncIterator[None]:
        """Print events inside."""
        unsubscribe = running.events.subscribe(lambda event: self._print(event.as_dict()))
        try:
            async with super().watch(running):
                yield
        finally:
            unsubscribe()

    def ended(self, result: JobResult) -> None:
        """Print the result, with the totals of the steps."""
        tasks = dataclasses.asdict(self.view)["tasks"] if self.view is not None else []
        content = {"event": "Result", **dataclasses.asdict(result), "tasks": tasks}
        self._print(content)

    def interrupted(self) -> None:
        """Say that there is no result."""
        self._print({"event": "Interrupted", "exit_code": INTERRUPTED})

    def failed(self, error: BaseException, code: int) -> None:
        """Print the error."""
        content = {"event": "Error", "error": message(error), "exit_code": code}
        self._print(content)

    def _print(self, content: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # nobody reads any more: no reason to end the job
            words.print_json(content, self._stdout)


def summary(result: JobResult, view: JobView | None) -> list[str]:
    """How a job ended, in words."""
    if result.outcome == "already_finished":
        return [
            f"job {result.job} has finished already, with checkpoint {result.last_checkpoint}: "
            "there is nothing to do; --fresh starts it anew"
        ]
    durable = view is not None and view.mode != "none"
    last = result.last_checkpoint
    after = {
        "finished": "",
        "stopped": f"; a later run continues from checkpoint {last}"
        if durable and last is not None
        else "; a later run begins anew",
    }[result.outcome]
    lines = [f"job {result.job} {result.outcome} after {words.duration(result.duration)}{after}"]
    return lines + _totals(result, view if durable else None) + _steps(result, view)


def _totals(result: JobResult, view: JobView | None) -> list[str]:
    parts = []
    if view is not None:
        failed = f" ({result.failed_checkpoints} failed)" if result.failed_checkpoints else ""
        parts = [words.counted(result.completed_checkpoints, "checkpoint") + failed]
    parts.append(words.counted(result.attempts, "attempt"))
    return [f"  {', '.join(parts)}"]


def _steps(result: JobResult, view: JobView | None) -> list[str]:
    """Records of sources and sinks: the other steps are in between."""
    if view is None:
        return []
    since = " since the last restore" if result.attempts > 1 or result.restored_from else ""
    steps = [step for task in view.tasks for step in task.steps]
    read = [f"{s.name} {s.records_out:,}" for s in steps if s.verb == "source"]
    wrote = [f"{s.name} {s.records_in:,}" for s in steps if s.verb in ("sink", "for_each")]
    lines = [f"  records read{since}: {', '.join(read)}"] if read else []
    return lines + ([f"  records written{since}: {', '.join(wrote)}"] if wrote else [])
