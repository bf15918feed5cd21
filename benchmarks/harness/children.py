"""Child processes that run a job, talk by lines, and may be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
_LONGEST_LINE = 1 << 24  # bytes: a line may hold a histogram


class Child:
    """`async with Child([module, argument, ...])`; whatever happens, it is dead afterwards."""

    def __init__(self, command: Sequence[str], *, prefix: Sequence[str] = ()) -> None:
        self._command = [*prefix, sys.executable, "-m", *command]
        self.errors = ""

    async def __aenter__(self) -> Child:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_LONGEST_LINE,
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        )
        assert self._process.stderr is not None
        self._reading = asyncio.create_task(self._process.stderr.read())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._process.returncode is None:
            self.kill()
        await self.wait()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def line(self, timeout: float = 120.0) -> str:
        """The next line of its output. Raises RuntimeError with its errors if it has ended."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), timeout)
        if not line:
            await self.wait()
            raise RuntimeError(f"{' '.join(self._command)} ended early:\n{self.errors}")
        return line.decode().rstrip("\n")

    async def lines(self) -> list[str]:
        """The rest of its output."""
        assert self._process.stdout is not None
        return (await self._process.stdout.read()).decode().splitlines()

    async def tell(self, line: str = "") -> None:
        """Write one line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    def kill(self) -> None:
        """kill -9: nothing in the child can react to it. Does nothing if it has ended already."""
        if self._process.returncode is None:
            # Not by the process object: that looks first whether the child has ended, and would
            # take the exit code away from whoever waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end; returns its exit code, negative for a signal."""
        code = await self._process.wait()
        self.errors = (await self._reading).decode(errors="replace")
        return code
