"""`connect` and `broadcast` add the right step, and refuse at their line what cannot work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Broadcast, Connection, HashByKey, Node
from streamcp.operators.steps import (
    AsyncOptions,
    BroadcastStep,
    ConnectStep,
    KeyedBroadcastStep,
)


@dataclass
class Visits:
    count: int = 0


@dataclass(frozen=True)
class Frozen:
    count: int = 0


@dataclass
class Rules:
    known: set[str] = field(default_factory=set)


def on_record(record: str, visits: Visits, ctx: sc.KeyContext[str]) -> list[str]:
    return [record]


async def on_record_slowly(record: str, visits: Visits, ctx: sc.KeyContext[str]) -> list[str]:
    return [record]


def each(record: str, visits: Visits, ctx: sc.KeyContext[str]) -> Iterator[str]:
    yield record


def read(record: str, rules: Rules) -> list[str]:
    return [record]


def read_each(record: str, rules: Rules) -> Iterator[str]:
    yield record


async def read_slowly(record: str, rules: Rules) -> None: ...
def learn(record: str, rules: Rules) -> None: ...
def read_keyed(record: str, visits: Visits, rules: Rules, ctx: sc.KeyContext[str]) -> list[str]:
    return [record]


def learn_keyed(record: str, rules: Rules, ctx: sc.BroadcastContext[str, Visits]) -> None: ...
def wake(timestamp: int, visits: Visits, ctx: sc.KeyContext[str]) -> None: ...
def wake_keyed(timestamp: int, visits: Visits, rules: Rules, ctx: sc.KeyContext[str]) -> None: ...


class Drawn:
    """Two sources, keyed and not."""

    def __init__(self) -> None:
        self.job = sc.Job("x")
        self.left: Any = self.job.source(sc.items(["a"]), name="left")
        self.right: Any = self.job.source(sc.items(["b"]), name="right")
        self.keyed: Any = self.left.key_by(str.lower)
        self.other: Any = self.right.key_by(str.upper)
        self.rules: Any = self.right.broadcast()

    @property
    def step(self) -> Node:
        return self.job.graph.nodes[-1]


def test_connected_streams_become_one_step_with_two_inputs() -> None:
    drawn = Drawn()
    step = drawn.keyed.connect(drawn.other).process(
        on_record, each, state=Visits, on_timer=wake, name="both", parallelism=2
    )
    assert isinstance(step, sc.Step)
    node = drawn.step
    assert isinstance(node.spec, ConnectStep)
    assert (node.spec.fn, node.spec.on_right, node.spec.on_timer) == (on_record, each, wake)
    assert (node.name, node.parallelism, node.verb) == ("both", 2, "process")
    left, right = node.inputs
    assert left == Connection(drawn.job.graph.nodes[0], "main", HashByKey(str.lower), 0)
    assert right == Connection(drawn.job.graph.nodes[1], "main", HashByKey(str.upper), 1)


def test_united_streams_come_by_one_input() -> None:
    drawn = Drawn()
    united = drawn.left.union(drawn.right).key_by(str)
    drawn.keyed.connect(united).process(on_record, on_record, state=Visits)
    assert [connection.port for connection in drawn.step.inputs] == [0, 1, 1]


def test_coroutine_functions_become_a_step_with_calls() -> None:
    drawn = Drawn()
    drawn.keyed.connect(drawn.other).process(
        on_record_slowly, on_record_slowly, state=Visits, concurrency=3, timeout="2s"
    )
    assert isinstance(drawn.step.spec, ConnectStep)
    assert drawn.step.spec.calls == AsyncOptions(concurrency=3, timeout=2.0)


def test_broadcast_beside_a_stream_becomes_a_step_with_both() -> None:
    drawn = Drawn()
    drawn.left.connect(drawn.rules).process(
        read_each, learn, broadcast_state=Rules, on_error="drop"
    )
    node = drawn.step
    assert node.spec == BroadcastStep(
        read_each, on_error="drop", on_broadcast=learn, broadcast_state=Rules
    )
    assert node.inputs[1] == Connection(drawn.job.graph.nodes[1], "main", Broadcast(), 1)


def test_broadcast_beside_a_keyed_stream_has_a_state_per_key_if_there_is_one() -> None:
    drawn = Drawn()
    connected = drawn.keyed.connect(drawn.rules)
    connected.process(
        read_keyed, learn_keyed, state=Visits, broadcast_state=Rules, on_timer=wake_keyed
    )
    assert drawn.step.spec == KeyedBroadcastStep(
        read_keyed,
        state=Visits,
        on_timer=wake_keyed,
        on_broadcast=learn_keyed,
        broadcast_state=Rules,
    )


def test_broadcast_beside_a_keyed_stream_may_do_without_a_state_per_key() -> None:
    drawn = Drawn()
    drawn.keyed.connect(drawn.rules).process(read, learn, broadcast_state=Rules)
    assert drawn.step.spec == BroadcastStep(read, on_broadcast=learn, broadcast_state=Rules)
    assert drawn.step.inputs[0].exchange == HashByKey(str.lower)


CASES: dict[str, tuple[Callable[[Drawn], object], str]] = {
    "unkeyed other": (
        lambda d: d.keyed.connect(d.right),
        "connect(Stream): give it the same kind of key, other.key_by(...), or write "
        "other.broadcast()",
    ),
    "unkeyed this": (
        lambda d: d.left.connect(d.other),
        "connect(KeyedStream): give this stream a key too: .key_by(...).connect(...)",
    ),
    "neither keyed": (
        lambda d: d.left.connect(d.right),
        "connect(Stream): write other.broadcast(), or .key_by(...) on both",
    ),
    "no stream": (
        lambda d: d.keyed.connect([1]),
        "connect(list): only a keyed or a broadcast stream can be connected",
    ),
    "no stream for a stream": (
        lambda d: d.left.connect(5),
        "connect(int): only a broadcast stream can be connected with a stream that has no key",
    ),
    "two kinds": (
        lambda d: d.keyed.connect(d.other).process(on_record, on_record_slowly, state=Visits),
        "process(on_record) is a plain function, but process(on_record_slowly) of the other input "
        "is a coroutine function; write both with async def, or neither",
    ),
    "two kinds the other way": (
        lambda d: d.keyed.connect(d.other).process(on_record_slowly, on_record, state=Visits),
        "process(on_record) is a plain function, but process(on_record_slowly) of the other",
    ),
    "arguments of the second": (
        lambda d: d.keyed.connect(d.other).process(on_record, read, state=Visits),
        "process(read) is called as read(record, state, context), which it does not accept",
    ),
    "frozen state": (
        lambda d: d.keyed.connect(d.other).process(on_record, on_record, state=Frozen),
        "state=Frozen makes a Frozen, which cannot be changed in place",
    ),
    "option of coroutines": (
        lambda d: d.keyed.connect(d.other).process(
            on_record, on_record, state=Visits, concurrency=3
        ),
        "process(on_record) is a plain function: concurrency= is for coroutine functions",
    ),
    "coroutine beside a broadcast": (
        lambda d: d.left.connect(d.rules).process(read_slowly, learn, broadcast_state=Rules),
        "process(read_slowly) is a coroutine function, but process takes a plain function",
    ),
    "broadcast state": (
        lambda d: d.left.connect(d.rules).process(read, learn, broadcast_state=Frozen),
        "broadcast_state=Frozen makes a Frozen, which cannot be changed in place",
    ),
    "arguments beside a broadcast": (
        lambda d: d.keyed.connect(d.rules).process(
            read, learn_keyed, state=Visits, broadcast_state=Rules
        ),
        "process(read) is called as read(record, state, shared, context), which it does not accept",
    ),
    "timer without state": (
        lambda d: d.keyed.connect(d.rules).process(
            read, learn, broadcast_state=Rules, on_timer=wake_keyed
        ),
        "process(on_timer=) needs state=",
    ),
    "arguments of the timer": (
        lambda d: d.keyed.connect(d.rules).process(
            read_keyed, learn_keyed, state=Visits, broadcast_state=Rules, on_timer=wake
        ),
        "on_timer=wake is called as wake(timestamp, state, shared, context)",
    ),
    "unknown option": (
        lambda d: d.left.connect(d.rules).process(read, learn, broadcast_state=Rules, nmae="x"),
        "process() has no option 'nmae'; did you mean 'name'?",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_wrong_use_is_refused_with_the_remedy(case: str) -> None:
    use, told = CASES[case]
    with pytest.raises(DefinitionError) as caught:
        use(Drawn())
    assert told in str(caught.value)


def test_place_of_a_step_with_two_inputs_is_the_line_of_its_process() -> None:
    drawn = Drawn()
    drawn.keyed.connect(drawn.other).process(on_record, on_record, state=Visits)
    assert drawn.step.place.file == __file__


def test_broadcast_stream_has_no_verbs() -> None:
    drawn = Drawn()
    assert [verb for verb in ("map", "sink", "key_by", "union") if hasattr(drawn.rules, verb)] == []
