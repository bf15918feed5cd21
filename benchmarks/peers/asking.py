"""Asking an engine: a child process in an interpreter of its own, and its answer.

The child leads a process group of its own, which is killed whatever happens: a peer that starts a
JVM or workers leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import CHECKOUT, ENVIRONMENTS, Engine
from benchmarks.peers.work import ANSWER, Answer, Task

TIMEOUT = 300.0  # seconds; the longest task takes a minute on a quiet machine


class EngineFailed(Exception):
    """An engine did not do its task; the text says why."""


async def ask(
    engine: Engine,
    home: Path,
    workload: str,
    records: int,
    options: Mapping[str, Any] | None = None,
) -> Answer:
    """Have `engine` do one task in a fresh process. Raises EngineFailed."""
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        task = Task(
            workload,
            records,
            folder,
            time.perf_counter(),
            {**engine.options, **(options or {})},
        )
        module = f"benchmarks.peers.engines.{engine.module}"
        command = [engine.interpreter(home), "-m", module, json.dumps(asdict(task))]
        environment = _environment(engine, home)
        return read_answer(engine.name, *await run_group(command, Path(folder), environment))


async def run_group(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command in `folder`, and kill what it has started and left; return its exit code and
    what it printed. By files: who is left behind would keep a pipe open."""
    out, errors = folder / "printed", folder / "errors"
    with out.open("wb") as to, errors.open("wb") as errors_to:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=to,
            stderr=errors_to,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        code = await asyncio.wait_for(process.wait(), TIMEOUT)
    except TimeoutError:
        return -signal.SIGKILL, "", f"no answer in {TIMEOUT:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return code, out.read_text(errors="replace"), errors.read_text(errors="replace")


def _environment(engine: Engine, home: Path) -> dict[str, str]:
    """PyFlink's thread mode finds its libraries by PYTHONPATH alone; settings of streamcp that a
    developer has made are not those of a benchmark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMCP_")}
    packages: list[Path] = []
    if engine.environment is not None:
        folder = ENVIRONMENTS[engine.environment].folder(home)
        packages += folder.glob("lib/python*/site-packages")
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT, *packages)))}


def read_answer(name: str, code: int, out: str, errors: str) -> Answer:
    """Find the answer in what a child printed. Raises EngineFailed if there is none."""
    answers = [line for line in out.splitlines() if line.startswith(ANSWER)]
    if code or not answers:
        said = [line.strip() for line in (errors or out).splitlines() if line.strip()]
        raise EngineFailed(f"{name} ended with code {code}: {said[-1] if said else 'no word'}")
    return Answer(**json.loads(answers[-1].removeprefix(ANSWER)))
