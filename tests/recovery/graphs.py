"""Random jobs whose output does not depend on the order in which things happen.

`draw_job` makes the same job for the same seed. Its keyed steps keep, per key, what they have
seen: a record that comes twice, or (where order is promised) too early, changes the output.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import streamcp as sc
from streamcp.config import Mode
from tests.recovery.world import Target, staged, transactional


class Crash(Exception):
    """Raised by a user's function, to see the job recover."""


class Calls:
    """Counts the calls of users' functions; the `crash_at`-th ones raise."""

    def __init__(self, crash_at: Iterable[int] = ()) -> None:
        self.count = 0
        self._crash_at = frozenset(crash_at)

    def __call__(self) -> None:
        self.count += 1
        if self.count in self._crash_at:
            raise Crash(f"call {self.count}")


@dataclass(frozen=True)
class Item:
    """A record: `origin` and `seq` are unique together, and `seq` ascends where order is kept."""

    key: int
    origin: str
    seq: tuple[int, ...]
    tag: str = ""


@dataclass
class Loose:
    """The same, in a form that might be changed."""

    key: int
    origin: str
    seq: tuple[int, ...]
    tag: str = ""


AnyItem = Item | Loose


@dataclass
class Seen:
    """The state of a key: which records came, the newest of each origin."""

    count: int = 0
    records: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    last: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def note(self, item: AnyItem, ordered: bool) -> str:
        """Say what is wrong with the coming of `item` now."""
        self.count += 1
        mark = "#twice" if (item.origin, item.seq) in self.records else ""
        self.records.add((item.origin, item.seq))
        if ordered and not item.origin.startswith("timer"):
            if self.last.get(item.origin, ()) >= item.seq:
                mark += "#early"
            self.last[item.origin] = item.seq
        return mark


def as_row(item: Any) -> list[Any]:
    """What a sink gets: plain values."""
    if isinstance(item, sc.Failure):
        return ["failure", *as_row(item.record)]
    return [item.key, item.origin, list(item.seq), item.tag]


def _source(name: str, count: int, keys: int, cls: type[Any], splits: int, waits: int) -> Any:
    def item(split: int, i: int) -> AnyItem:
        made: AnyItem = cls((i * 7 + split) % keys, f"{name}{split}", (i,))
        return made

    async def pause(i: int) -> None:
        if waits and i % waits == 0:
            await asyncio.sleep(0.001 if i % 2 else 0)

    if splits == 0:

        async def whole(position: int = 0) -> AsyncIterator[tuple[Any, int]]:
            for i in range(position, count):
                await pause(i)
                yield item(0, i), i + 1

        return sc.source(whole)()

    async def batches(split: int, position: int = 0) -> AsyncIterator[tuple[Any, int]]:
        size = 1 + split * 3
        for i in range(position, count + split * 5, size):
            await pause(i)
            end = min(i + size, count + split * 5)
            yield [item(split, j) for j in range(i, end)], end

    return sc.source(splits=lambda: list(range(splits)), batches=True)(batches)()


class JobDrawing:
    """Draws one random job; `calls` is told of every call of a user's function.

    `at_least_once`: the same job in that mode, with sinks that promise no more."""

    def __init__(
        self,
        seed: int,
        calls: Calls,
        target: Target,
        directory: Path,
        jsonl: Path,
        *,
        at_least_once: bool = False,
    ) -> None:
        self._rnd = rnd = random.Random(seed)
        self._calls = calls
        self._target = target
        self._jsonl = jsonl
        self._keys = rnd.choice((1, 3, 8))
        self._class = rnd.choice((Item, Item, Loose))
        self._number = 0
        self._at_least_once = at_least_once
        self.exact: list[str] = []
        self.at_least: list[str] = []
        self.described: list[str] = []
        modes: tuple[Mode, ...] = ("aligned", "unaligned", "adaptive", "adaptive")
        self.job = sc.Job(
            "random",
            checkpoints=sc.Checkpoints(
                to=directory,
                every=rnd.choice(("2ms", "5ms", "10ms", "50ms")),
                mode="at_least_once" if at_least_once else rnd.choice(modes),
                alignment_timeout=rnd.choice(("0s", "1ms", "3ms", "20ms")),
                predict=rnd.random() < 0.5,
                retain=rnd.choice((1, 2, 5)),
                max_in_flight_bytes=rnd.choice((None, None, 2000)),
            ),
            channel_capacity=rnd.choice((1, 2, 5, 20, 50)),
            restart=sc.Restart.fixed_delay(attempts=1000, delay=rnd.choice(("0s", "2ms"))),
            types=[Item, Loose],
        )

    def draw(self) -> sc.Job:
        """Draw sources, steps and sinks."""
        rnd = self._rnd
        stream, parallelism = self._draw_source()
        ordered = True
        for _ in range(rnd.randint(2, 5)):
            stream, parallelism, ordered = self._step(stream, parallelism, ordered)
            if rnd.random() < 0.15:
                self._sink(stream)
        self._sink(stream)
        return self.job

    def _draw_source(self) -> tuple[Any, int]:
        rnd = self._rnd
        splits = rnd.choice((0, 1, 2, 3))
        count = rnd.choice((0, 1, 10, 20)) if self._number else rnd.choice((10, 20, 40))
        name = self._name("source")
        source = _source(name, count, self._keys, self._class, splits, rnd.choice((0, 0, 1, 7)))
        parallelism = rnd.randint(1, 3) if splits else 1
        return self.job.source(source, name=name, parallelism=parallelism), parallelism

    def _name(self, kind: str) -> str:
        self._number += 1
        self.described.append(f"{kind}{self._number}")
        return f"{kind}{self._number}"

    def _step(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        steps = (
            self._map,
            self._filter,
            self._flat_map,
            self._failing,
            self._async_map,
            self._async_map,
            self._async_failing,
            self._async_flat_map,
            self._rebalance,
            self._keyed,
            self._keyed,
            self._keyed_async,
            self._keyed_async,
            self._count,
            self._scan,
            self._branch,
            self._union,
        )
        drawn: tuple[Any, int, bool] = self._rnd.choice(steps)(stream, parallelism, ordered)
        return drawn

    # ---- plain steps

    def _map(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        name, calls = self._name("map"), self._calls

        def add(item: AnyItem) -> AnyItem:
            calls()
            return replace(item, tag=f"{item.tag}.{name}")

        return stream.map(add, name=name, parallelism=parallelism), parallelism, ordered

    def _filter(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        calls = self._calls

        def keep(item: AnyItem) -> bool:
            calls()
            return item.seq[-1] % 4 != 1

        made = stream.filter(keep, name=self._name("filter"), parallelism=parallelism)
        return made, parallelism, ordered

    def _flat_map(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        calls = self._calls

        def several(item: AnyItem) -> list[AnyItem]:
            calls()
            return [replace(item, seq=(*item.seq, i)) for i in range(item.seq[0] % 3)]

        made = stream.flat_map(several, name=self._name("flat_map"), parallelism=parallelism)
        return made, parallelism, ordered

    def _failing(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        name = self._name("failing")

        def fail(item: AnyItem) -> AnyItem:
            if item.seq[-1] % 5 == 2:
                raise ValueError("not this one")
            return item

        if self._rnd.random() < 0.5:
            made = stream.map(fail, name=name, parallelism=parallelism, on_error="drop")
        else:
            made = stream.map(fail, name=name, parallelism=parallelism, on_error="divert")
            self._sink(made.errors)
        return made, parallelism, ordered

    def _branch(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        calls = self._calls

        def even(item: AnyItem) -> bool:
            calls()
            return item.key % 2 == 0

        yes, no = stream.branch(even, name=self._name("branch"), parallelism=parallelism)
        if self._rnd.random() < 0.5:
            yes, _, ordered = self._async_map(yes, parallelism, ordered)
        if self._rnd.random() < 0.3:
            self._sink(no)
            return yes, parallelism, ordered
        return self._exchanged(yes.union(no), ordered)

    def _union(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        other, _ = self._draw_source()
        return self._exchanged(stream.union(other), ordered)

    def _rebalance(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        parallelism = self._rnd.randint(1, 3)
        made, _, _ = self._map(stream.rebalance(), parallelism, False)
        return made, parallelism, False

    def _exchanged(self, stream: Any, ordered: bool) -> tuple[Any, int, bool]:
        """Go on behind several inputs, which needs an exchange."""
        if self._rnd.random() < 0.5:
            return self._rebalance(stream, 0, ordered)
        return self._keyed(stream, 0, ordered)

    # ---- coroutines

    def _options(self) -> dict[str, Any]:
        rnd = self._rnd
        options: dict[str, Any] = {"concurrency": rnd.choice((1, 2, 5))}
        if rnd.random() < 0.3:
            options["timeout"] = "10s"
        return options

    def _waiting(self) -> Callable[[AnyItem], Any]:
        style = self._rnd.choice(("none", "turns", "time", "time"))

        async def wait(item: AnyItem) -> None:
            if style == "turns":
                for _ in range(item.seq[-1] % 4):
                    await asyncio.sleep(0)
            elif style == "time":
                await asyncio.sleep(0.001 * (item.seq[-1] * 5 % 4))

        return wait

    def _async_map(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        name, calls, wait = self._name("async_map"), self._calls, self._waiting()
        keeps_order = self._rnd.random() < 0.6

        async def add(item: AnyItem) -> AnyItem:
            calls()
            await wait(item)
            return replace(item, tag=f"{item.tag}.{name}")

        made = stream.map(
            add, name=name, parallelism=parallelism, ordered=keeps_order, **self._options()
        )
        return made, parallelism, ordered and keeps_order

    def _async_flat_map(
        self, stream: Any, parallelism: int, ordered: bool
    ) -> tuple[Any, int, bool]:
        calls, wait = self._calls, self._waiting()
        keeps_order = self._rnd.random() < 0.6

        async def several(item: AnyItem) -> AsyncIterator[AnyItem]:
            for i in range(item.seq[0] % 3):
                calls()
                await wait(item)
                yield replace(item, seq=(*item.seq, i))

        name = self._name("async_flat_map")
        made = stream.flat_map(
            several, name=name, parallelism=parallelism, ordered=keeps_order, **self._options()
        )
        return made, parallelism, ordered and keeps_order

    def _async_failing(self, stream: Any, parallelism: int, ordered: bool) -> tuple[Any, int, bool]:
        name, wait = self._name("async_failing"), self._waiting()
        options = self._options()
        if self._rnd.random() < 0.5:
            options["retry"] = sc.Retry(attempts=2, backoff="1ms")

        async def fail(item: AnyItem) -> bool:
            await wait(item)
            if item.seq[-1] % 5 == 2:
                raise ValueError("not this one")
            return item.seq[-1] % 5 != 3

        if self._rnd.random() < 0.5:
            made = stream.filter(
                fail, name=name, parallelism=parallelism, on_error="drop", **options
            )
        else:
            made = stream.filter(
                fail, name=name, parallelism=parallelism, on_error="divert", **options
            )
            self._sink(made.errors)
        return made, parallelism, ordered

    # ---- keyed steps

    def _keyed(self, stream: Any, _: int, ordered: bool) -> tuple[Any, int, bool]:
        name, calls, parallelism = self._name("keyed"), self._calls, self._rnd.randint(1, 3)
        timed, counted = self._rnd.random() < 0.4, self._rnd.random() < 0.4

        def process(item: AnyItem, state: Seen, ctx: sc.KeyContext[int]) -> list[Item]:
            calls()
            mark = state.note(item, ordered)
            if timed:
                ctx.set_timer(state.count)
            own = [Item(ctx.key, name, (state.count,))] if counted else []
            return [*own, Item(ctx.key, item.origin, item.seq, item.tag + mark)]

        made = stream.key_by(lambda item: item.key).process(
            process,
            state=Seen,
            on_timer=_on_timer(name, calls) if timed else None,
            name=name,
            parallelism=parallelism,
        )
        return made, parallelism, ordered

    def _keyed_async(self, stream: Any, _: int, ordered: bool) -> tuple[Any, int, bool]:
        name, calls, wait = self._name("keyed_async"), self._calls, self._waiting()
        parallelism = self._rnd.randint(1, 3)
        timed, counted = self._rnd.random() < 0.4, self._rnd.random() < 0.4

        async def process(item: AnyItem, state: Seen, ctx: sc.KeyContext[int]) -> list[Item]:
            calls()
            count = state.count
            mark = state.note(item, ordered)
            await wait(item)
            assert state.count == count + 1, "two calls of one key ran at once"
            if timed:
                ctx.set_timer(state.count)
            own = [Item(ctx.key, name, (state.count,))] if counted else []
            return [*own, Item(ctx.key, item.origin, item.seq, item.tag + mark)]

        made = stream.key_by(lambda item: item.key).process(
            process,
            state=Seen,
            on_timer=_on_timer(name, calls) if timed else None,
            name=name,
            parallelism=parallelism,
            **self._options(),
        )
        return made, parallelism, ordered

    def _count(self, stream: Any, _: int, ordered: bool) -> tuple[Any, int, bool]:
        name, parallelism = self._name("count"), self._rnd.randint(1, 3)

        def item(counted: tuple[int, int]) -> Item:
            return Item(counted[0], name, (counted[1],))

        made = stream.key_by(lambda item: item.key).count(name=name, parallelism=parallelism)
        return made.map(item, parallelism=parallelism), parallelism, True

    def _scan(self, stream: Any, _: int, ordered: bool) -> tuple[Any, int, bool]:
        name, parallelism = self._name("scan"), self._rnd.randint(1, 3)

        def add(value: Item, item: AnyItem) -> Item:
            return Item(item.key, name, (value.seq[0] + 1,))

        made = stream.key_by(lambda item: item.key).scan(
            lambda: Item(0, name, (0,)), add, name=name, parallelism=parallelism
        )
        return made, parallelism, True

    # ---- sinks

    def _sink(self, stream: Any) -> None:
        rnd = self._rnd
        kind = rnd.choice(("files", "transactional", "staged", "collect"))
        if self._at_least_once:
            kind = "collect"
        parallelism = rnd.randint(1, 3)
        rows = stream.rebalance().map(as_row, parallelism=parallelism)
        name, turns = self._name(kind), rnd.randint(0, 2)
        if kind == "collect":
            target = self._target

            async def write(records: Any) -> None:
                for _ in range(turns):
                    await asyncio.sleep(0)
                target.plain.extend((name, record) for record in records)

            rows.sink(write, name=name, parallelism=parallelism)
            self.at_least.append(name)
            return
        self.exact.append(name)
        if kind == "files":
            rows.sink(sc.files.json_lines(self._jsonl / name), name=name, parallelism=parallelism)
            return
        make = transactional if kind == "transactional" else staged
        rows.sink(make(self._target, self._calls, turns), name=name, parallelism=parallelism)


def _on_timer(name: str, calls: Calls) -> Any:
    def on_timer(timestamp: int, state: Seen, ctx: sc.KeyContext[int]) -> list[Item]:
        calls()
        return [Item(ctx.key, f"timer {name}", (timestamp,))]

    return on_timer
