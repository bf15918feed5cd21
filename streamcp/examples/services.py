"""Services of the examples: each runs in a process of its own, started and ended by its job.

A service prints the port that it listens to as its first line. It also ends by itself when the
process that started it does, however that ended. Knows nothing of what is served.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

import streamcp as sc

UNTIL_STDIN_CLOSES = "--until-stdin-closes"
"""The option by which a service is told to end with the process that started it."""


@asynccontextmanager
async def started(module: str, *arguments: str) -> AsyncIterator[int]:
    """Run `python -m module arguments`, and end it at the end; gives the port that it prints.

    Raises StreamcpError if it ends before it has told its port."""
    # Its standard input is never written to: it closes when this process ends, even by kill -9.
    # A session of its own keeps Ctrl-C from it, so that calls under way are still answered.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments, UNTIL_STDIN_CLOSES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield await _port_of(module, process)
    finally:
        if process.returncode is None:
            process.kill()  # it holds nothing that could get lost
        await process.wait()


async def _port_of(module: str, process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise sc.StreamcpError(
            f"the service {module} ended with {await process.wait()} before it was ready; "
            "its own error is above"
        )
    return int(orjson.loads(line)["port"])


def tell_port(port: int) -> None:
    """Print the port, as a line of JSON."""
    print(orjson.dumps({"port": port}).decode(), flush=True)


def exit_when_stdin_closes() -> None:
    """End this process as soon as the one that started it has ended."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)  # from a thread nothing else ends the process

    threading.Thread(target=wait, daemon=True).start()
