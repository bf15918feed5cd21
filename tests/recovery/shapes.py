"""The shapes of jobs on which other systems try their unaligned checkpoints: what each is, and what
must have come out of it.

Everything is made of the parts of `topologies`, so that every record is looked at on its way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import streamcp as sc
from tests.recovery.topologies import (
    KEYS,
    MAGIC,
    SPLITS,
    Draw,
    Drawing,
    Mark,
    Seen,
    Stamp,
    World,
    intact,
    key_of,
)


def pipeline(draw: Drawing, p: int) -> None:
    """Keyed twice with the same key: the order per key is kept from end to end."""
    noted = draw.note(draw.source(p).key_by(key_of), "first", p, ordered=True)
    again = draw.note(draw.fail(noted, p).key_by(key_of), "second", p, ordered=True)
    draw.sink(again.rebalance(), p)


def forward(draw: Drawing, p: int) -> None:
    """No exchange at all: one chain per subtask, with calls outstanding; then one exchange."""

    async def call(mark: Mark) -> Mark:
        await asyncio.sleep(0.001 * (mark.number % 4))
        return mark

    called = draw.source(p).map(call, name="call", concurrency=3, parallelism=p)
    draw.sink(draw.note(draw.fail(called, p).key_by(key_of), "note", 1, ordered=True))


def dealt(draw: Drawing, p: int) -> None:
    """One exchange that deals the records out: one channel from each split to each sink."""
    failing = draw.fail(draw.source(p), p)
    draw.sink(draw.note(failing.key_by(key_of), "note", p, ordered=True), p, "copy")
    draw.sink(failing.rebalance(), p)


def union(draw: Drawing, p: int) -> None:
    """Three sources of their own parallelism and speed in one."""
    one = draw.source(p, splits=2)
    two = draw.source(1, splits=1, pause=0.001)
    three = draw.source(p + 1, splits=3)
    noted = draw.note(one.union(two, three).key_by(key_of), "note", p, ordered=True)
    draw.sink(draw.fail(noted.rebalance(), p + 1).rebalance())


def multi_input(draw: Drawing, p: int) -> None:
    """Three pipelines, joined pairwise by steps with two inputs."""
    one, two, three = (draw.hop(draw.source(p, splits=2).rebalance(), p) for _ in range(3))
    first = both(draw, one, two, "first", p + 1)
    second = both(draw, first, draw.fail(three, p), "second", p + 2)
    draw.sink(second.rebalance())


def both(draw: Drawing, left: Any, right: Any, name: str, p: int) -> Any:
    """A step whose one state knows what has come by either input."""

    def process(mark: Mark, seen: Seen, ctx: sc.KeyContext[int]) -> list[Mark]:
        trouble = seen.note(mark, ctx.key, ordered=False)
        return [replace(intact(mark), trouble=mark.trouble + trouble)]

    keyed = left.key_by(key_of).connect(right.key_by(key_of))
    return keyed.process(process, process, state=Seen, name=name, parallelism=p)


@dataclass
class Sides:
    """What waits for its partner of the other side."""

    stamp: Stamp = field(default_factory=lambda: Stamp(0))
    left: list[Mark] = field(default_factory=list)
    right: list[Mark] = field(default_factory=list)

    def pair(self) -> list[Mark]:
        pairs = min(len(self.left), len(self.right))
        out = self.left[:pairs] + self.right[:pairs]
        del self.left[:pairs], self.right[:pairs]
        return out


def cogroup(draw: Drawing, p: int) -> None:
    """Two times two sources; a record waits in the state until one of the other side comes, and
    goes on with it."""

    def on_left(mark: Mark, sides: Sides, ctx: sc.KeyContext[int]) -> list[Mark]:
        sides.left.append(mark)
        return sides.pair()

    def on_right(mark: Mark, sides: Sides, ctx: sc.KeyContext[int]) -> list[Mark]:
        sides.right.append(mark)
        return sides.pair()

    one, two, three, four = (draw.source(1, splits=1) for _ in range(4))
    left, right = draw.fail(one.union(two).rebalance(), p), three.union(four)
    paired = (
        left.key_by(key_of)
        .connect(right.key_by(key_of))
        .process(on_left, on_right, state=Sides, name="pair", parallelism=p)
    )
    draw.sink(draw.note(paired.key_by(key_of), "note", p, ordered=False).rebalance())


@dataclass
class Rules:
    """What every subtask has: all rules so far, in their order."""

    numbers: list[int] = field(default_factory=list)


def broadcast(draw: Drawing, p: int) -> None:
    """A keyed stream beside a broadcast one: its state is the same, and whole, on every subtask
    (FLINK-22815)."""

    def on_record(mark: Mark, seen: Seen, rules: Rules, ctx: sc.KeyContext[int]) -> list[Mark]:
        trouble = seen.note(mark, ctx.key, ordered=True)
        if rules.numbers != list(range(len(rules.numbers))):
            trouble += f"#rules {rules.numbers[-3:]}"
        return [replace(mark, trouble=mark.trouble + trouble)]

    def on_rule(rule: Mark, rules: Rules, ctx: sc.BroadcastContext[int, Seen]) -> None:
        rules.numbers.append(rule.number)

    rules = draw.source(1, splits=1, pause=0.002)
    records = draw.fail(draw.source(p), p)
    ruled = (
        records.key_by(key_of)
        .connect(rules.broadcast())
        .process(on_record, on_rule, state=Seen, broadcast_state=Rules, name="ruled", parallelism=p)
    )
    draw.sink(ruled, p)  # so that some subtasks are jammed, and get their rules late
    draw.sink(rules, 1, "rules")


def mixed(draw: Drawing, p: int) -> None:
    """One step read by a forward, a keyed and a dealt edge, and both ends of a branch."""

    async def call(mark: Mark) -> Mark:
        await asyncio.sleep(0.001)
        return mark

    read = draw.fail(draw.source(p), p).map(call, name="call", concurrency=2, parallelism=p)
    even, odd = read.branch(lambda mark: mark.number % 2 == 0, parallelism=p)
    straight = even.map(call, name="straight", concurrency=2, parallelism=p)
    keyed = draw.note(odd.key_by(key_of), "note", p, ordered=True)
    draw.sink(straight.union(keyed).rebalance(), p)
    draw.sink(draw.hop(read.rebalance(), 2).rebalance(), 1, "copy")


def loop(draw: Drawing, p: int) -> None:
    """Records go round as often as their number says, over a call and a keyed step."""

    async def walk(lap: Lap) -> Lap:
        await asyncio.sleep(0.0005)
        return replace(lap, left=lap.left - 1)

    def count(lap: Lap, seen: Seen, ctx: sc.KeyContext[int]) -> list[Lap]:
        came = (lap.mark.origin, lap.mark.number * 10 + lap.left)
        trouble = "#twice" if came in seen.numbers else ""
        seen.numbers.add(came)
        return [replace(lap, mark=replace(lap.mark, trouble=lap.mark.trouble + trouble))]

    def laps(stream: Any) -> Any:
        walked = stream.rebalance().map(walk, name="walk", concurrency=2, parallelism=p)
        counted = walked.key_by(lambda lap: lap.mark.key).process(
            count, state=Seen, name="count", parallelism=p
        )
        again, out = counted.branch(lambda lap: lap.left > 0, name="left", parallelism=p)
        return again.rebalance(), out

    start = draw.fail(draw.source(p), p).map(
        lambda mark: Lap(mark, 1 + mark.number % 4), parallelism=p
    )
    out = start.rebalance().iterate(laps, name="laps", parallelism=p)
    draw.sink(draw.hop(out.map(lambda lap: lap.mark, parallelism=p).rebalance(), 1))


@dataclass(frozen=True)
class Lap:
    mark: Mark
    left: int


def narrow(draw: Drawing, p: int) -> None:
    """Four sources of falling parallelism, pairs of them keyed and connected, and everything
    through steps that are wider and narrower, to one that is alone and slow."""
    four, three, two, one = (draw.source(n, splits=n) for n in (4, 3, 2, 1))
    joined = both(draw, four.union(three), two.union(one), "joined", p)
    wide = draw.hop(joined.rebalance(), 2 * p)
    noted = draw.note(wide.key_by(key_of), "note", p + 1, ordered=False)
    draw.sink(draw.fail(noted.rebalance(), 1))


def wide(draw: Drawing, p: int) -> None:
    """A long pipeline of steps that are wider and narrower, a filter, and a keyed step that knows
    its keys; then all through one sink."""
    read = draw.source(p).filter(lambda mark: mark.magic == MAGIC, parallelism=p)
    stream = draw.hop(read.rebalance(), p, "level")
    stream = draw.hop(stream.rebalance(), p + 1, "more")
    stream = draw.hop(stream.rebalance(), 2 * p, "up")
    stream = draw.hop(stream.rebalance(), p + 1, "down")
    stream = draw.note(stream.key_by(key_of), "note", p, ordered=False)
    draw.sink(draw.fail(stream.rebalance(), p).rebalance())


SHAPES: dict[str, Draw] = {
    shape.__name__: shape
    for shape in (
        pipeline,
        forward,
        dealt,
        union,
        multi_input,
        cogroup,
        broadcast,
        mixed,
        loop,
        narrow,
        wide,
    )
}
"""All of them, by name."""


def check(world: World, shape: str) -> None:
    """All invariants that hold for every shape, and those of this one."""
    assert sum(world.expected.values()) > 30
    match shape:
        case "broadcast":
            world.expect_each_once("out", "rules")
        case "cogroup":
            _expect_pairs(world)
        case _:
            world.expect_each_once()
    if shape in ("mixed", "dealt"):
        world.expect_each_once("copy")


def _expect_pairs(world: World) -> None:
    """Each record at most once, and all that had a partner."""
    found, expected = Counter(world.rows()), world.expected
    assert found <= expected
    for key in range(KEYS):
        left, right = _sides(expected, key)
        assert _sides(found, key) == (min(left, right),) * 2


def _sides(rows: Counter[tuple[int, int]], key: int) -> tuple[int, int]:
    sides = Counter(
        origin >= 3 * SPLITS for origin, number in rows if Mark(origin, number).key == key
    )
    return sides[False], sides[True]
