"""A child process as its parent sees it: an order in, messages out, and the end of it.

A child never outlives the `async with` that started it, nor (by its standard input, which closes)
its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiofiles

from streamcp.clock import Clock
from streamcp.compare.messages import Message, RunOrder, from_line

# A message holds the statistics of a checkpoint, or the counts of every split.
_LONGEST_LINE = 1 << 24
_LOG_LINES = 20


class Child:
    """A running child; made by `start_child`. `born` is the moment (monotonic) of its start."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self.born = clock.monotonic()

    async def messages(self, until: float) -> AsyncGenerator[tuple[float, Message], None]:
        """Give what the child tells, and when (monotonic) it arrived, until the child has ended.

        Raises TimeoutError at the moment `until`."""
        assert self._process.stdout is not None
        while True:
            async with asyncio.timeout(max(until - self._clock.monotonic(), 0)):
                line = await self._process.stdout.readline()
            if not line.endswith(b"\n"):  # a killed one may break off
                return
            yield self._clock.monotonic(), from_line(line)

    async def kill(self) -> None:
        """End it at once, as `kill -9` does, and wait until it is gone."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def start_child(
    command: Sequence[str], order: RunOrder, clock: Clock
) -> AsyncIterator[Child]:
    """Start `command`, which must call `child.main`, and give it its order.

    What it prints is added to the file `log` in the folder of the run."""
    log = await asyncio.to_thread(Path(order.folder, "log").open, "ab")
    with log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LONGEST_LINE,
            # Ctrl-C is for the parent: it ends the child.
            start_new_session=True,
        )
    child = Child(process, clock)
    try:
        assert process.stdin is not None
        process.stdin.write(order.to_line())
        yield child
    finally:
        await child.kill()


async def end_of_log(folder: Path) -> str:
    """Give the last lines that the children of a run have printed."""
    async with aiofiles.open(folder / "log", encoding="utf-8", errors="replace") as file:
        text = await file.read()
    return "\n".join(text.splitlines()[-_LOG_LINES:])
