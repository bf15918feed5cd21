"""What a plan asks of a running job, and whether it gets the answer that was promised (P33)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from streamcp.errors import StreamcpError
from streamcp.runners.handle import JobHandle
from streamcp.testing.simulation.branches import SAVEPOINTS
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.world import Life

_STOPS = frozenset({"stop", "stop with savepoint", "drain"})
# Virtual seconds: much more than writing a savepoint takes on the slowest disk.
_PATIENCE = 600.0


class Asking:
    """The requests to one job. Whatever ends the job, each of them is answered."""

    def __init__(self, life: Life, handle: JobHandle) -> None:
        """Nothing is asked yet."""
        self._life = life
        self._handle = handle
        self._asked: dict[asyncio.Task[Exception | None], Fault] = {}

    def ask(self, fault: Fault) -> None:
        """Ask in a task of its own."""
        answer = _error_of(self._handle, fault)
        asked = self._life.world.loop.create_task(answer, name="asked")
        self._asked[asked] = fault

    async def end(self) -> None:
        """The job has ended: wait for the answers. A crash leaves nobody who would wait."""
        if self._asked and self._life.survived is None:
            await asyncio.wait(self._asked, timeout=_PATIENCE)
        for asked, fault in self._asked.items():
            if not asked.done() and self._life.survived is None:
                self._life.violations.append(f"P33: the job has ended, but not its answer: {fault}")
            asked.cancel()
        if self._asked:
            await asyncio.wait(self._asked)
        for asked, fault in self._asked.items():
            self._look_at_error(fault, _result(asked))

    def _look_at_error(self, fault: Fault, error: Exception | None) -> None:
        """A checkpoint or stop may fail, and so may the job meanwhile: then the error says so."""
        if error is not None and not isinstance(error, StreamcpError) and not self._life.survived:
            self._life.violations.append(f"{fault} raised {type(error).__name__}: {error}")

    def check_ending(self, how: str) -> None:
        """A job goes on when a stop has failed: it stops only by one that has not."""
        stops = [asked for asked, fault in self._asked.items() if fault.action in _STOPS]
        if how == "stopped" and stops and all(map(_result, stops)):
            self._life.violations.append("P33: the job has stopped, but every stop of it failed")


async def _error_of(handle: JobHandle, fault: Fault) -> Exception | None:
    try:
        await _asked_of(handle, fault)
    except Exception as error:  # whatever it is, it is looked at when the job has ended
        return error
    return None


def _result(asked: asyncio.Task[Exception | None]) -> Exception | None:
    return None if asked.cancelled() else asked.result()


def _asked_of(handle: JobHandle, fault: Fault) -> Coroutine[Any, Any, Any]:
    match fault.action:
        case "stop":
            return handle.stop()
        case "drain":
            return handle.stop(drain=True)
        case "savepoint":
            return handle.savepoint(SAVEPOINTS, mode=fault.value)
        case "stop with savepoint":
            return handle.stop(savepoint=SAVEPOINTS, mode=fault.value)
        case _:
            return handle.checkpoint()
