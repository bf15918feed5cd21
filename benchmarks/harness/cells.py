"""Cells: a function that is measured in a fresh process, several times.

A process has its own garbage, its own layout of memory and its own luck; what is measured in one
process only does not tell how much of it was luck.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness.children import Child
from streamcp.runners.local import run_blocking

Cell = Callable[[Any], Awaitable[Any]]


async def in_fresh_process(cell: Cell, spec: Any, *, patience: float = 600.0) -> Any:
    """Give `await cell(spec)`, run in a process of its own as `job.run()` would set it up. `cell`
    is a module's function; `spec` and the answer are JSON values.

    Raises RuntimeError with what the process printed if it fails, or takes more than `patience`
    seconds."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        name = f"{cell.__module__}:{cell.__qualname__}"
        command = ["benchmarks.harness.cells", name, json.dumps(spec), str(answer)]
        async with Child(command) as child:
            try:
                await asyncio.wait_for(child.lines(), patience)
            except TimeoutError:
                raise RuntimeError(f"{name} took more than {patience:.0f} s: {spec}") from None
            code = await child.wait()
        if code:
            raise RuntimeError(f"{name} failed with {spec}:\n{child.errors}")
        return json.loads(await asyncio.to_thread(answer.read_text, "utf-8"))


def _main(name: str, spec: str, answer: str) -> None:
    module, _, function = name.partition(":")
    cell: Cell = getattr(import_module(module), function)

    async def measure() -> Any:
        return await cell(json.loads(spec))

    value = run_blocking(measure)
    Path(answer).write_text(json.dumps(value), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
