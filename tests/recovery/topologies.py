"""A world for jobs of many shapes: their records, states and sinks show what is lost, doubled or
out of order, and failures come where they are told to.

A failure comes only once a checkpoint with records in its channels is complete: so each restart
replays some. The shapes themselves are in `shapes`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.storage.local import LocalStorage
from tests.recovery.world import Target, TransactionalTargetSink, run_job

Failure: TypeAlias = Literal["map", "snapshot", "restore", "open", "close"]

MAGIC = "intact"
KEYS = 7
NAME = "shape"
# How far behind the last failure a run still goes, per split.
_TAIL = 7
# The splits of the n-th source have the numbers from n × SPLITS on.
SPLITS = 10


class Induced(Exception):
    """A failure that was asked for."""


@dataclass(frozen=True)
class Mark:
    """A record: `origin` (a split) and `number` are unique together. `trouble` says what a step
    that it passed found wrong with it."""

    origin: int
    number: int
    trouble: str = ""
    magic: str = MAGIC

    @property
    def key(self) -> int:
        return (self.number * 3 + self.origin) % KEYS


def key_of(mark: Mark) -> int:
    return mark.key


def intact(mark: Mark) -> Mark:
    """A hop: records and their types arrive as they were sent."""
    if type(mark) is Mark and mark.magic == MAGIC:
        return mark
    return replace(mark, trouble=mark.trouble + "#broken")


@dataclass
class Stamp:
    """Written and read by functions of the test, which may fail."""

    key: int


@dataclass
class Seen:
    """The state of a key."""

    stamp: Stamp = field(default_factory=lambda: Stamp(-1))
    numbers: set[tuple[int, int]] = field(default_factory=set)
    newest: dict[int, int] = field(default_factory=dict)

    def note(self, mark: Mark, key: int, *, ordered: bool) -> str:
        """Say what is wrong with a record's coming here and now."""
        trouble = "" if self.stamp.key in (-1, key) and mark.key == key else "#wrong key"
        self.stamp = Stamp(key)
        if (mark.origin, mark.number) in self.numbers:
            trouble += "#twice"
        self.numbers.add((mark.origin, mark.number))
        if ordered and self.newest.get(mark.origin, -1) >= mark.number:
            trouble += "#early"
        self.newest[mark.origin] = max(mark.number, self.newest.get(mark.origin, -1))
        return trouble


class SlowSink(TransactionalTargetSink):
    """Slow enough that every queue before it is full; every other one is slower still."""

    def __init__(self, target: Target, number: int) -> None:
        super().__init__(target, lambda: None)
        self._pause = 0.002 * (1 + number % 2)

    async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
        await asyncio.sleep(self._pause * len(records))
        await super().write(records, transaction)


class World:
    """What outlives every failure: the checkpoints, the target, how far each split was read, the
    failures to come, and what is known of those that came."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = Target()
        self.failed: list[Failure] = []
        self.replayed: list[int] = []
        self.completed = 0
        self._failures: deque[Failure] = deque()
        self._ripe = False
        self._goes_on = False
        self._read: dict[int, int] = {}
        self._limit: dict[int, int] = {}

    # ---- failures

    def expect(self, *failures: Failure) -> None:
        """Let these come, one after another, and the sources end some time after the last."""
        self._failures = deque(failures)

    def may_fail(self, where: Failure) -> None:
        """Raise if it is time for that: those of a restart come with it, without delay."""
        due = self._ripe or where in ("restore", "open", "close")
        if due and self._failures and self._failures[0] == where:
            self._failures.popleft()
            self.failed.append(where)
            self._ripe = False
            raise Induced(where)

    def look(self, event: events.Event) -> None:
        """Note an event of the job."""
        if isinstance(event, events.JobRestored):
            self._ripe = False
            records = self.in_channels(event.checkpoint_id)
            if self.failed[-1:] == ["map"] and not records:
                # A later checkpoint was complete before the failure had ended the job: once more.
                self._failures.appendleft(self.failed.pop())
            else:
                self.replayed.append(records)
        elif isinstance(event, events.CheckpointCompleted):
            self.completed += 1
            self._ripe = self.in_channels(event.checkpoint_id) > 0
            if self._ripe and not self._failures and not self._goes_on:
                self.end()

    def in_channels(self, checkpoint_id: int) -> int:
        """How many records of channels a checkpoint holds."""
        manifest = LocalStorage(self.directory, job=NAME).load_manifest(checkpoint_id)
        sections = [s for one in manifest.acknowledgements for s in one.sections]
        return sum(section.records for section in sections if section.kind == "channel")

    # ---- sources

    def end(self) -> None:
        """Let the splits end soon."""
        for split, number in self._read.items():
            self._limit.setdefault(split, number + _TAIL)

    def read_on(self, split: int, number: int) -> bool:
        """Say whether the record `number` of a split is there to be read."""
        self._read[split] = max(number, self._read.get(split, -1))
        return number < self._limit.get(split, 1_000_000)

    @property
    def expected(self) -> Counter[tuple[int, int]]:
        """Every record that the sources had."""
        return Counter((split, i) for split, limit in self._limit.items() for i in range(limit))

    # ---- running

    def run(
        self, draw: Draw, parallelism: int, mode: Any = "unaligned", *, use: Any = None, **more: Any
    ) -> JobResult | None:
        """Run the shape once, from wherever it is."""

        async def watched(handle: JobHandle) -> None:
            handle.events.subscribe(self.look)
            if use is not None:
                await use(handle)

        return run_job(self.job(draw, parallelism, mode), use=watched, **more)

    def run_until_killed(self, draw: Draw, parallelism: int, mode: Any = "unaligned") -> None:
        """Kill the job as soon as a checkpoint with records in its channels is complete."""

        async def kill(handle: JobHandle) -> None:
            await self.until_ripe(handle)
            raise asyncio.CancelledError

        self._goes_on = True
        assert self.run(draw, parallelism, mode, use=kill) is None
        self._goes_on = False

    async def until_ripe(self, handle: JobHandle) -> None:
        """Wait until this run has a checkpoint with records in its channels."""
        self._ripe, ripe = False, asyncio.Event()
        handle.events.subscribe(lambda _: ripe.set() if self._ripe else None)
        await ripe.wait()

    def job(self, draw: Draw, parallelism: int, mode: Any) -> sc.Job:
        """Draw the job of one run."""
        settings = sc.Checkpoints(
            to=self.directory,
            every="15ms",
            mode=mode,
            alignment_timeout="3ms",
            predict=False,
            tolerable_failures=0,
        )
        job = sc.Job(
            NAME,
            checkpoints=settings,
            channel_capacity=4,
            restart=sc.Restart.fixed_delay(attempts=20, delay="1ms"),
            types=[sc.codec(Stamp, self._encode, self._decode), Mark],
        )
        draw(Drawing(job, self), parallelism)
        return job

    def _encode(self, stamp: Stamp) -> int:
        self.may_fail("snapshot")
        return stamp.key

    def _decode(self, key: int) -> Stamp:
        self.may_fail("restore")
        return Stamp(key)

    # ---- what came out

    def rows(self, sink: str = "out") -> list[tuple[int, int]]:
        """The records of a sink; none of them may be in trouble."""
        rows = self.target.records(sink)
        troubled = [row for row in rows if row[2]]
        assert not troubled, troubled[:5]
        return [(origin, number) for origin, number, _ in rows]

    def expect_each_once(self, *sinks: str) -> None:
        """No loss and no duplicate over these sinks together."""
        found = Counter(row for sink in sinks or ("out",) for row in self.rows(sink))
        assert found == self.expected

    def expect_order(self, sink: str = "out") -> None:
        """Each subtask of a sink got the records of each split in their order: one channel leads
        there from each, all the way."""
        newest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        for transaction, rows in self.target.committed.items():
            _, name, subtask, *_ = transaction.split(".")
            for origin, number, _ in rows if name == sink else ():
                assert number > newest[subtask, origin], (transaction, origin, number)
                newest[subtask, origin] = number


class Drawing:
    """Draws the parts that all shapes have in common."""

    def __init__(self, job: sc.Job, world: World) -> None:
        self.job = job
        self.world = world
        self._sources = 0

    def source(self, parallelism: int, *, splits: int = 3, pause: float = 0.0003) -> Any:
        """Read splits whose numbers no other source has."""
        self._sources += 1
        first = self._sources * SPLITS
        made = marks(self.world, pause, [first + i for i in range(splits)])
        return self.job.source(made, name=f"source{self._sources}", parallelism=parallelism)

    def fail(self, stream: Any, parallelism: int) -> Any:
        """The step that fails when it is told to: in its call, when its service opens or closes."""
        world = self.world

        @asynccontextmanager
        async def service() -> AsyncIterator[None]:
            world.may_fail("open")
            try:
                yield None
            finally:
                world.may_fail("close")

        def check(mark: Mark, _: None) -> Mark:
            world.may_fail("map")
            return intact(mark)

        return stream.map(check, uses=service, name="failing", parallelism=parallelism)

    def note(self, keyed: Any, name: str, parallelism: int, *, ordered: bool) -> Any:
        """A step whose state knows what has come."""

        def process(mark: Mark, seen: Seen, ctx: sc.KeyContext[int]) -> list[Mark]:
            trouble = seen.note(mark, ctx.key, ordered=ordered)
            return [replace(intact(mark), trouble=mark.trouble + trouble)]

        return keyed.process(process, state=Seen, name=name, parallelism=parallelism)

    def hop(self, stream: Any, parallelism: int, name: str | None = None) -> Any:
        """A step that only looks at its records."""
        return stream.map(intact, parallelism=parallelism, name=name)

    def sink(self, stream: Any, parallelism: int = 1, name: str = "out") -> None:
        """Write rows of plain values, slowly."""
        rows = stream.map(as_row, parallelism=parallelism)
        target, numbers = self.world.target, count()
        rows.sink(lambda: SlowSink(target, next(numbers)), name=name, parallelism=parallelism)


Draw: TypeAlias = Callable[[Drawing, int], None]


def as_row(mark: Mark) -> tuple[int, int, str]:
    return mark.origin, mark.number, mark.trouble


def marks(world: World, pause: float, splits: Sequence[int]) -> Any:
    """Splits that go on until the world lets them end."""

    async def read(split: int, position: int = 0) -> AsyncIterator[tuple[Sequence[Mark], int]]:
        while world.read_on(split, position):
            await asyncio.sleep(pause * (1 + split % 3))
            position += 1
            yield [Mark(split, position - 1)], position

    return sc.source(splits=lambda: list(splits), batches=True)(read)()
