"""Running a job in this process and event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from streamcp.config import JobSettings
from streamcp.graph.logical import Connection, LogicalGraph, Node, Place
from streamcp.operators.steps import SinkStep
from streamcp.runners import control
from streamcp.runners.handle import JobHandle
from streamcp.runners.life import JobLife, first_cause

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run_blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in an event loop of its own.

    This process belongs to the job, so its garbage collector is tuned: one full collection of a
    million records and states would stop every task for a tenth of a second."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main())
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@asynccontextmanager
async def start(
    job_name: str, graph: LogicalGraph, settings: JobSettings, types: Sequence[Any]
) -> AsyncIterator[JobHandle]:
    """Run a job beside the body; with checkpoints, other processes can ask it for things (see
    `control`). Leaving the body stops the job with a last checkpoint; leaving it by an exception
    ends the job at once."""
    life = JobLife(graph, settings, types)
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(life.run(), name=f"job {job_name}")
            handle = JobHandle(life, task)
            group.create_task(control.serve(life, handle, task), name=f"control of {job_name}")
            try:
                yield handle
                if not task.done():
                    await handle.stop()
            finally:
                task.cancel()
    except* Exception as errors:  # whatever the job or the body raised, without the group
        failure = first_cause(errors)
    if failure is not None:
        raise failure


async def take(graph: LogicalGraph, connections: Sequence[Connection], n: int) -> list[Any]:
    """Run what leads to `connections`, without checkpoints, until `n` records have come."""
    taken = _Taken(n)
    needed = _upstream(connections)
    sink = Node(
        len(graph.nodes) + 1,
        SinkStep(lambda: taken, "at_least_once"),
        tuple(connections),
        Place("take", n),
        parallelism=1,
    )
    nodes = [node for node in graph.nodes if node in needed]
    part = LogicalGraph(graph.job, graph.parallelism, graph.max_parallelism, [*nodes, sink])
    life = JobLife(part, JobSettings(), ())
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(life.run(), name=f"take from {graph.job}")
            running.add_done_callback(lambda _: taken.full.set())
            await taken.full.wait()
            running.cancel()
    except* Exception as errors:  # whatever the part of the job raised, without the group
        failure = first_cause(errors)
    if failure is not None:
        raise failure
    return taken.records[:n]


class _Taken:
    """Collects records until there are enough."""

    def __init__(self, n: int) -> None:
        self.records: list[Any] = []
        self.full = asyncio.Event()
        self._n = n

    async def write(self, records: Sequence[Any], /) -> None:
        """Keep records; those beyond the number are not waited for."""
        self.records.extend(records)
        if len(self.records) >= self._n:
            self.full.set()


def _upstream(connections: Sequence[Connection]) -> set[Node]:
    needed: set[Node] = set()
    waiting = [connection.node for connection in connections]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [connection.node for connection in node.inputs]
    return needed
