"""csp: simulated time, a record each 100 µs of it, numbered by csp's own timer and count (in C++).

Each step is a node written in Python, except `csp.filter`, which is C++; one node for all would
be no chain any more. State and windows are user code in a node, which relies on the order of the
records. csp has neither checkpoints nor a step for coroutines.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import csp
from csp import ts

from benchmarks.peers.work import (
    PER_SECOND,
    Results,
    Task,
    is_kept,
    key_of,
    scale,
    serve,
    shift,
    time_of,
)

START = datetime(2024, 1, 1)  # noqa: DTZ001 - csp's times have no zone
STEP = timedelta(seconds=1) / PER_SECOND
RESULTS = Results()


@csp.node
def scaled(number: ts[int]) -> ts[int]:
    """The first number is 1, the first value 0."""
    with csp.start():
        RESULTS.begin()
    if csp.ticked(number):
        return scale(number - 1)


@csp.node
def kept_flag(value: ts[int]) -> ts[bool]:
    if csp.ticked(value):
        return is_kept(value)


@csp.node
def shifted(value: ts[int]) -> ts[int]:
    if csp.ticked(value):
        return shift(value)


@csp.node
def counted(value: ts[int]) -> ts[int]:
    with csp.state():
        s_counts: dict = {}  # type: ignore[type-arg]  # csp reads it
    if csp.ticked(value):
        key = key_of(value)
        number = s_counts[key] = s_counts.get(key, 0) + 1
        return number


@csp.node
def counted_per_second(number: ts[int]) -> ts[object]:
    """As the bare loop does it: nothing comes out of order."""
    with csp.state():
        s_counts: dict = {}  # type: ignore[type-arg]
        s_current = 0
    with csp.start():
        RESULTS.begin()
    with csp.stop():
        for left in s_counts.values():
            RESULTS.add_window(left)
    if csp.ticked(number):
        second = time_of(number - 1) // 1000
        if second != s_current:
            csp.output(s_counts)
            s_counts = {}
            s_current = second
        key = key_of(number - 1)
        s_counts[key] = s_counts.get(key, 0) + 1


@csp.node
def out(value: ts[int]):  # type: ignore[no-untyped-def]  # csp reads the annotations
    if csp.ticked(value):
        RESULTS.add(value)


@csp.node
def windows_out(closed: ts[object]):  # type: ignore[no-untyped-def]
    if csp.ticked(closed):
        for number in closed.values():
            RESULTS.add_window(number)


@csp.graph
def stateless_graph():  # type: ignore[no-untyped-def]
    value = scaled(csp.count(csp.timer(STEP)))
    out(shifted(csp.filter(kept_flag(value), value)))


@csp.graph
def count_graph():  # type: ignore[no-untyped-def]
    value = scaled(csp.count(csp.timer(STEP)))
    out(counted(csp.filter(kept_flag(value), value)))


@csp.graph
def windows_graph():  # type: ignore[no-untyped-def]
    windows_out(counted_per_second(csp.count(csp.timer(STEP))))


def run(graph: object, task: Task) -> Results:
    csp.run(graph, starttime=START, endtime=START + task.records * STEP)
    RESULTS.end()
    return RESULTS


if __name__ == "__main__":
    serve(
        "csp",
        {
            "stateless": lambda task: run(stateless_graph, task),
            "count": lambda task: run(count_graph, task),
            "windows": lambda task: run(windows_graph, task),
        },
    )
